/* Where records go: counted together by label, with the times of the first ones kept. The type by
 * which Python starts, reads and ends a recording.
 */
#include "profile.h"

#include <string.h>
#include <structmember.h>

/* ---- groups ---- */

static bool has_stages(uint32_t kind) { return kind == FAST || kind == REPLAY; }

/* Numbers of a sample. */
static int times_of(uint32_t kind) { return has_stages(kind) ? 4 : 1; }

static int width_of(uint32_t kind) { return times_of(kind) + 1; }

static bool has_times(uint32_t kind) { return kind != FAILED && kind != FAILED_REPLAY; }

static uint64_t hash_label(const Label *label) {
  uint64_t words[3];
  memcpy(words, label, sizeof words);
  uint64_t hash = words[0] * 0x9E3779B97F4A7C15u;
  hash = (hash ^ (hash >> 29) ^ words[1]) * 0xBF58476D1CE4E5B9u;
  hash = (hash ^ (hash >> 32) ^ words[2]) * 0x94D049BB133111EBu;
  return hash ^ (hash >> 31);
}

static bool same_label(const Label *a, const Label *b) { return memcmp(a, b, sizeof *a) == 0; }

static bool grow_groups(LaunchRecorder *self) {
  Py_ssize_t capacity = self->group_capacity ? 2 * self->group_capacity : 64;
  Group *groups = PyMem_RawRealloc(self->groups, capacity * sizeof *groups);
  if (groups == NULL)
    return false;
  self->groups = groups;
  int32_t *places = PyMem_RawMalloc(2 * capacity * sizeof *places);
  if (places == NULL)
    return false;
  memset(places, -1, 2 * capacity * sizeof *places);
  Py_ssize_t mask = 2 * capacity - 1;
  for (Py_ssize_t i = 0; i < self->group_count; i++) {
    Py_ssize_t place = hash_label(&groups[i].label) & mask;
    while (places[place] >= 0)
      place = (place + 1) & mask;
    places[place] = (int32_t)i;
  }
  PyMem_RawFree(self->places);
  self->places = places;
  self->mask = mask;
  self->group_capacity = capacity;
  return true;
}

/* NULL: no memory. */
static Group *group_of(LaunchRecorder *self, const Label *label) {
  if (self->last < self->group_count && same_label(&self->groups[self->last].label, label))
    return &self->groups[self->last];
  if (self->group_count == self->group_capacity && !grow_groups(self))
    return NULL;
  Py_ssize_t place = hash_label(label) & self->mask;
  while (self->places[place] >= 0) {
    self->last = self->places[place];
    if (same_label(&self->groups[self->last].label, label))
      return &self->groups[self->last];
    place = (place + 1) & self->mask;
  }
  self->last = self->group_count++;
  self->places[place] = (int32_t)self->last;
  Group *group = &self->groups[self->last];
  memset(group, 0, sizeof *group);
  group->label = *label;
  return group;
}

static void keep_sample(LaunchRecorder *self, Group *group, const int64_t *ticks, uint64_t start) {
  if (self->samples_left <= 0 || group->samples >= self->samples_per_group)
    return;
  int times = times_of(group->label.kind), width = times + 1;
  if (group->samples == group->capacity) {
    Py_ssize_t capacity = group->capacity ? 2 * group->capacity : 32;
    int64_t *sample = PyMem_RawRealloc(group->sample, capacity * width * sizeof *sample);
    if (sample == NULL)
      return; /* counted, and not among the samples */
    group->sample = sample;
    group->capacity = capacity;
  }
  int64_t *sample = group->sample + group->samples++ * width;
  memcpy(sample, ticks, times * sizeof *ticks);
  sample[times] = (int64_t)start;
  self->samples_left--;
}

static void count_record(LaunchRecorder *self, const Record *record) {
  Group *group = group_of(self, &record->label);
  if (group == NULL) {
    self->lost++;
    return;
  }
  group->launches++;
  if (!has_times(record->label.kind))
    return;
  const uint64_t *at = record->at;
  int64_t read = self->ticks_per_read, reads = record->reads;
  int64_t ticks[4] = {(int64_t)(at[END] - at[ENTRY]) - reads * read};
  if (has_stages(record->label.kind)) {
    ticks[1] = (int64_t)(at[FOUND] - at[ENTRY]) - read;
    ticks[2] = (int64_t)(at[GRID] - at[FOUND]) - read;
    /* A replay reads once more for each of its launches, and once where it ends. */
    int64_t within = record->label.kind == REPLAY ? reads - 3 : 1;
    ticks[3] = (int64_t)(at[DRIVER] - at[GRID]) - within * read;
  }
  for (int i = 0; i < 4; i++)
    group->ticks[i] += ticks[i];
  keep_sample(self, group, ticks, at[ENTRY]);
}

/* Empty the buffer. */
void group_records(LaunchRecorder *self) {
  for (Py_ssize_t i = 0; i < self->record_count; i++)
    count_record(self, &self->records[i]);
  self->record_count = 0;
}

static void free_groups(Group *groups, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++)
    PyMem_RawFree(groups[i].sample);
  PyMem_RawFree(groups);
}

/* ---- for Python ---- */

/* The counter and the clock at one moment, and how long a tick takes. */
typedef struct {
  double ns_per_tick;
  long long ticks, ns;
} Rate;

static PyObject *column(const Group *group, int index, double ns_per_tick) {
  int width = width_of(group->label.kind);
  if (index >= times_of(group->label.kind) || !has_times(group->label.kind))
    return PyBytes_FromStringAndSize(NULL, 0);
  PyObject *bytes = PyBytes_FromStringAndSize(NULL, group->samples * sizeof(int64_t));
  for (Py_ssize_t i = 0; bytes != NULL && i < group->samples; i++) {
    double ns = (double)group->sample[i * width + index] * ns_per_tick;
    int64_t rounded = (int64_t)(ns < 0 ? ns - 0.5 : ns + 0.5);
    memcpy(PyBytes_AS_STRING(bytes) + i * sizeof rounded, &rounded, sizeof rounded);
  }
  return bytes;
}

static PyObject *columns(const Group *group, double ns_per_tick) {
  PyObject *tuple = PyTuple_New(4);
  for (int i = 0; tuple != NULL && i < 4; i++) {
    PyObject *bytes = column(group, i, ns_per_tick);
    PyObject *item =
        bytes == NULL ? NULL : Py_BuildValue("(dN)", (double)group->ticks[i] * ns_per_tick, bytes);
    if (item == NULL)
      Py_CLEAR(tuple);
    else
      PyTuple_SET_ITEM(tuple, i, item);
  }
  return tuple;
}

/* When each began, by the clock. */
static PyObject *starts(const Group *group, const Rate *rate) {
  int width = width_of(group->label.kind);
  PyObject *bytes = PyBytes_FromStringAndSize(NULL, group->samples * sizeof(int64_t));
  for (Py_ssize_t i = 0; bytes != NULL && i < group->samples; i++) {
    int64_t since = (int64_t)((uint64_t)group->sample[i * width + width - 1] - (uint64_t)rate->ticks);
    int64_t ns = rate->ns + (int64_t)((double)since * rate->ns_per_tick);
    memcpy(PyBytes_AS_STRING(bytes) + i * sizeof ns, &ns, sizeof ns);
  }
  return bytes;
}

static PyObject *group_tuple(const Group *group, const Rate *rate) {
  const Label *label = &group->label;
  PyObject *times = columns(group, rate->ns_per_tick), *began = starts(group, rate);
  if (times != NULL && began != NULL)
    return Py_BuildValue("(IIIIIIKNN)", label->range, label->thread, label->kernel, label->op,
                         label->kind, label->host_only, (unsigned long long)group->launches, times,
                         began);
  Py_XDECREF(times);
  Py_XDECREF(began);
  return NULL;
}

static PyObject *recorder_take(LaunchRecorder *self, PyObject *args) {
  Rate rate = {0};
  if (!PyArg_ParseTuple(args, "d|LL:take", &rate.ns_per_tick, &rate.ticks, &rate.ns))
    return NULL;
  group_records(self);
  /* Taken out first: what is allocated below may collect garbage, and that may launch. */
  Group *groups = self->groups;
  Py_ssize_t count = self->group_count;
  PyMem_RawFree(self->places);
  self->groups = NULL;
  self->places = NULL;
  self->group_count = self->group_capacity = self->last = 0;
  PyObject *list = PyList_New(0);
  for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
    PyObject *tuple = group_tuple(&groups[i], &rate);
    if (tuple == NULL || PyList_Append(list, tuple) < 0)
      Py_CLEAR(list);
    Py_XDECREF(tuple);
  }
  if (list == NULL)
    for (Py_ssize_t i = 0; i < count; i++)
      self->lost += groups[i].launches;
  free_groups(groups, count);
  return list;
}

static PyObject *recorder_start(LaunchRecorder *self, PyObject *number) {
  long rounds = PyLong_AsLong(number);
  if (rounds == -1 && PyErr_Occurred())
    return NULL;
  if (start_recording(self) < 0)
    return NULL;
  int64_t sample_every = self->sample_every;
  self->sample_every = 1;
  PyObject *measured = profile_calibrate(self, (int)rounds);
  self->sample_every = sample_every;
  /* Again, without what the calibration has recorded. */
  stop_recording(self);
  self->record_count = 0;
  free_groups(self->groups, self->group_count);
  self->groups = NULL;
  self->group_count = self->group_capacity = self->last = 0;
  self->lost = 0;
  if (measured != NULL && start_recording(self) < 0)
    Py_CLEAR(measured);
  return measured;
}

static PyObject *recorder_stop(LaunchRecorder *self, PyObject *Py_UNUSED(ignored)) {
  stop_recording(self);
  Py_RETURN_NONE;
}

static PyObject *recorder_set_range(LaunchRecorder *self, PyObject *number) {
  unsigned long range = PyLong_AsUnsignedLong(number);
  if (range == (unsigned long)-1 && PyErr_Occurred())
    return NULL;
  if (recorder == self && set_thread_range((uint32_t)range) < 0)
    return NULL;
  Py_RETURN_NONE;
}

static PyObject *recorder_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
  PyObject *name_of, *new_thread, *locate = NULL;
  Py_ssize_t samples_per_group, samples, sample_every = 1;
  if (!PyArg_ParseTuple(args, "OOnn|nO:LaunchRecorder", &name_of, &new_thread, &samples_per_group,
                        &samples, &sample_every, &locate))
    return NULL;
  if (sample_every < 1 || sample_every > INT32_MAX) {
    PyErr_SetString(PyExc_ValueError, "one of how many launches is recorded must be 1 or more");
    return NULL;
  }
  LaunchRecorder *self = (LaunchRecorder *)type->tp_alloc(type, 0);
  if (self == NULL)
    return NULL;
  self->name_of = Py_NewRef(name_of);
  self->new_thread = Py_NewRef(new_thread);
  self->locate = Py_XNewRef(locate);
  self->sample_every = sample_every;
  self->random = read_ticks() | 1;
  self->skip = (int64_t)(self->random % (uint64_t)(2 * sample_every - 1));
  self->samples_per_group = samples_per_group;
  self->samples_left = samples;
  self->records = PyMem_RawMalloc(BUFFER_RECORDS * sizeof *self->records);
  if (self->records == NULL) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  /* So that no launch meets a page of it that the system has yet to give. */
  memset(self->records, 0, BUFFER_RECORDS * sizeof *self->records);
  return (PyObject *)self;
}

static int recorder_traverse(LaunchRecorder *self, visitproc visit, void *arg) {
  Py_VISIT(self->name_of);
  Py_VISIT(self->new_thread);
  Py_VISIT(self->locate);
  return 0;
}

static int recorder_clear(LaunchRecorder *self) {
  Py_CLEAR(self->name_of);
  Py_CLEAR(self->new_thread);
  Py_CLEAR(self->locate);
  return 0;
}

static void recorder_dealloc(LaunchRecorder *self) {
  PyObject_GC_UnTrack(self);
  recorder_clear(self);
  free_groups(self->groups, self->group_count);
  PyMem_RawFree(self->places);
  PyMem_RawFree(self->records);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef recorder_methods[] = {
    {"start", (PyCFunction)recorder_start, METH_O,
     "start(rounds): record from now on; returns lists of the ticks between two stamps and of those "
     "that recording adds to a launch, as measured so often."},
    {"stop", (PyCFunction)recorder_stop, METH_NOARGS, "Record no longer; what was stays."},
    {"set_range", (PyCFunction)recorder_set_range, METH_O,
     "set_range(number): what this thread launches from now on is in this range."},
    {"take", (PyCFunction)recorder_take, METH_VARARGS,
     "take(ns_per_tick, ticks=0, ns=0): what was recorded since the last time, as (range, thread, "
     "kernel, op, kind, host_only, launches, ((ns in all, ns of each) in all, find, grid, driver), "
     "ns where each began), on the clock that is at ns where the counter is at ticks."},
    {NULL},
};

static PyMemberDef recorder_members[] = {
    {"lost", T_ULONGLONG, offsetof(LaunchRecorder, lost), READONLY,
     "Launches that could not be recorded."},
    {"host_only", T_UINT, offsetof(LaunchRecorder, host_only), 0,
     "1 while launches run in host-only mode, else 0."},
    {"ticks_per_read", T_LONGLONG, offsetof(LaunchRecorder, ticks_per_read), 0,
     "What is taken off between two stamps."},
    {"seen", T_ULONGLONG, offsetof(LaunchRecorder, seen), READONLY,
     "Launches and replays of which a sample was recorded; 0 where all are."},
    {NULL},
};

PyTypeObject LaunchRecorder_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.LaunchRecorder",
    .tp_basicsize = sizeof(LaunchRecorder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "LaunchRecorder(name_of, new_thread, samples_per_group, samples, sample_every=1, "
              "locate=None): times launches.",
    .tp_new = recorder_new,
    .tp_traverse = (traverseproc)recorder_traverse,
    .tp_clear = (inquiry)recorder_clear,
    .tp_dealloc = (destructor)recorder_dealloc,
    .tp_methods = recorder_methods,
    .tp_members = recorder_members,
};
