/* The path of a recorded launch: stamps into the thread's open launch, then a record into the
 * buffer. Nothing here calls Python but the first launch of a kernel or of a thread.
 *
 * Everything runs under the GIL, profile_stamp() excepted, which touches its own thread's alone.
 */
#include "profile.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool profiling;
int open_launches;
bool ticks_are_cycles;
LaunchRecorder *recorder;

/* Counts recordings, so that what a thread or a kernel kept from an earlier one is known for old. */
static uint64_t session;

#define MAX_OPEN 16

typedef struct {
  uint64_t session;
  Record record;
  int launches; /* that reached the driver from a plan */
  bool slow;
} OpenLaunch;

/* Places, not a list through the C stack: a launch may switch stacks (greenlets) while it is open. */
typedef struct {
  uint64_t session;
  uint32_t range, thread;
  int depth;
  OpenLaunch open[MAX_OPEN];
} ThreadState;

static _Thread_local ThreadState state;

/* ---- the counter ---- */

/* Whether the CPU's counter ticks evenly, whatever the frequency, in all states of sleep. */
static bool has_even_counter(void) {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1);
#else
  return false;
#endif
}

PyObject *profile_ticks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
  return PyLong_FromUnsignedLongLong(read_ticks());
}

PyObject *profile_use_clock(PyObject *Py_UNUSED(module), PyObject *use_clock) {
  int wanted = PyObject_IsTrue(use_clock);
  if (wanted < 0)
    return NULL;
  if (profiling) {
    PyErr_SetString(PyExc_RuntimeError, "launches are being recorded");
    return NULL;
  }
  ticks_are_cycles = !wanted && has_even_counter();
  return PyBool_FromLong(ticks_are_cycles);
}

/* ---- who is known by which number ---- */

static int ask_number(PyObject *function, PyObject *argument, uint32_t *number) {
  PyObject *result = argument == NULL ? PyObject_CallNoArgs(function)
                                      : PyObject_CallOneArg(function, argument);
  long value = result == NULL ? -1 : PyLong_AsLong(result);
  Py_XDECREF(result);
  if (value < 0 || value > INT32_MAX) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_ValueError, "not a number to record by");
    return -1;
  }
  *number = (uint32_t)value;
  return 0;
}

/* 0: the thread is known to the recording that runs, or none runs any more; -1: exception. */
static int know_thread(void) {
  if (state.session == session || recorder == NULL)
    return 0;
  uint64_t asked = session;
  PyObject *new_thread = Py_NewRef(recorder->new_thread);
  uint32_t number;
  int status = ask_number(new_thread, NULL, &number);
  Py_DECREF(new_thread);
  if (status == 0) {
    state.session = asked;
    state.thread = number;
    state.range = 0;
  }
  return status;
}

int profile_name(PyObject *owner, Subject *subject) {
  if (state.session != session && know_thread() < 0)
    return -1;
  if (subject->session == session || recorder == NULL)
    return 0;
  uint64_t asked = session;
  PyObject *name_of = Py_NewRef(recorder->name_of);
  uint32_t number;
  int status = ask_number(name_of, owner, &number);
  Py_DECREF(name_of);
  if (status == 0)
    *subject = (Subject){asked, number};
  return status;
}

int profile_locate(void) {
  if (recorder == NULL || recorder->locate == NULL)
    return 0;
  if (know_thread() < 0)
    return -1;
  PyObject *locate = Py_NewRef(recorder->locate);
  uint32_t number;
  int status = ask_number(locate, NULL, &number);
  Py_DECREF(locate);
  if (status == 0)
    state.range = number;
  return status;
}

/* xorshift64: Marsaglia, "Xorshift RNGs" (2003). Intervals are random, for launches come in
 * patterns: each Nth one could always be of the same kernel. */
bool profile_drawn(void) {
  LaunchRecorder *self = recorder;
  if (self == NULL || self->sample_every <= 1)
    return true;
  self->seen++;
  if (self->skip-- > 0)
    return false;
  self->random ^= self->random << 13;
  self->random ^= self->random >> 7;
  self->random ^= self->random << 17;
  self->skip = (int64_t)(self->random % (uint64_t)(2 * self->sample_every - 1));
  return true;
}

bool profile_knows(const Subject *subject) { return profiling && subject->session == session; }

/* ---- one launch ---- */

/* Not inlined into the calibration, which would then be cheaper than a launch. */
__attribute__((noinline)) int profile_begin(PyObject *owner, Subject *subject) {
  if (recorder->sample_every > 1) {
    /* One within a recorded launch is always recorded: it would be taken for a part of it. */
    if (state.depth == 0 && !profile_drawn())
      return UNRECORDED;
    if (profile_locate() < 0)
      return BEGIN_FAILED;
  }
  if ((state.session != session || subject->session != session) && profile_name(owner, subject) < 0)
    return BEGIN_FAILED;
  /* Another recording may have begun while Python ran. */
  if (!profiling || state.session != session || subject->session != session)
    return UNRECORDED;
  for (int i = 0; i < state.depth; i++)
    if (state.open[i].session == session && state.open[i].record.label.kernel == subject->number)
      return UNRECORDED;
  if (state.depth == MAX_OPEN) {
    recorder->lost++;
    return UNRECORDED;
  }
  OpenLaunch *open = &state.open[state.depth];
  open->session = session;
  open->launches = 0;
  open->slow = false;
  open->record.label = (Label){.range = state.range, .thread = state.thread,
                               .kernel = subject->number};
  int token = state.depth++;
  open_launches++;
  open->record.at[ENTRY] = read_ticks();
  return token;
}

__attribute__((noinline)) void profile_stamp(Stamp stamp) {
  if (state.depth == 0)
    return;
  OpenLaunch *open = &state.open[state.depth - 1];
  open->launches += stamp == DRIVER;
  open->record.at[stamp] = read_ticks();
}

void profile_slow(void) {
  if (state.depth > 0)
    state.open[state.depth - 1].slow = true;
}

static void put(const Record *record) {
  Record *place = &recorder->records[recorder->record_count++];
  *place = *record;
  place->label.host_only = recorder->host_only;
  if (recorder->record_count == BUFFER_RECORDS)
    group_records(recorder);
}

__attribute__((noinline)) void profile_end(int token, Outcome outcome) {
  uint64_t now = 0;
  if (token >= state.depth) /* launches that do not nest */
    return;
  OpenLaunch *open = &state.open[token];
  Record *record = &open->record;
  bool fast = open->launches == 1 && !open->slow;
  if (!fast || outcome != RETURNED_FROM_CORE)
    now = read_ticks();
  open_launches -= state.depth - token;
  state.depth = token;
  if (!profiling || open->session != session)
    return;
  record->label.kind = outcome == RAISED ? FAILED : fast ? FAST : THROUGH;
  record->at[END] = now ? now : record->at[DRIVER];
  record->reads = (fast ? 3 : 0) + (now != 0);
  put(record);
}

void profile_add(const Record *record) {
  if (!profiling || state.session != session)
    return;
  Record mine = *record;
  mine.label.range = state.range;
  mine.label.thread = state.thread;
  put(&mine);
}

/* ---- a recording ---- */

int start_recording(LaunchRecorder *self) {
  if (recorder != NULL) {
    PyErr_SetString(PyExc_RuntimeError, "launches are already being recorded");
    return -1;
  }
  recorder = (LaunchRecorder *)Py_NewRef(self);
  session++;
  profiling = true;
  return 0;
}

void stop_recording(LaunchRecorder *self) {
  if (recorder != self)
    return;
  profiling = false;
  session++;
  recorder = NULL;
  Py_DECREF(self); /* the caller holds it, too */
}

/* -1: exception. */
int set_thread_range(uint32_t range) {
  if (know_thread() < 0)
    return -1;
  state.range = range;
  return 0;
}

/* Record launches of nothing, and return ([ticks between two stamps], [ticks added by all]). */
PyObject *profile_calibrate(LaunchRecorder *self, int rounds) {
  Subject subject = {0};
  PyObject *between = PyList_New(0), *added = PyList_New(0);
  int status = between == NULL || added == NULL ? -1 : 0;
  for (int i = 0; status == 0 && i < rounds; i++) {
    uint64_t before = read_ticks();
    int token = profiling ? profile_begin(Py_None, &subject) : UNRECORDED;
    profile_mark(FOUND);
    profile_mark(GRID);
    profile_mark(DRIVER);
    if (token >= 0)
      profile_end(token, RETURNED_FROM_CORE);
    uint64_t after = read_ticks(), bare = read_ticks();
    if (token == BEGIN_FAILED)
      status = -1;
    if (token < 0)
      continue;
    const uint64_t *at = state.open[token].record.at;
    PyObject *one = PyLong_FromLongLong((long long)(at[DRIVER] - at[ENTRY]) / 3);
    PyObject *all = PyLong_FromLongLong((long long)(after - before) - (long long)(bare - after));
    if (one == NULL || all == NULL || PyList_Append(between, one) < 0 ||
        PyList_Append(added, all) < 0)
      status = -1;
    Py_XDECREF(one);
    Py_XDECREF(all);
  }
  PyObject *result = status < 0 ? NULL : PyTuple_Pack(2, between, added);
  Py_XDECREF(between);
  Py_XDECREF(added);
  return result;
}
