/* Watching the launches of an op once, to repeat them later.
 *
 * A recording belongs to the thread that started it. It holds what the op's launches were given
 * until it is dropped, so that no address in it stands for two tensors. What it cannot see (a
 * launch through Triton, a call that waits for the GPU or changes streams) ends it with a reason.
 */
#include "core.h"

#include <frameobject.h>
#include <string.h>

struct Recording {
  PyObject_HEAD
  PyObject *reason;    /* text, or NULL while nothing stands against a plan */
  PyObject *on_end;    /* called when a launch ends it early */
  PyObject *codes;     /* tuple of code objects that must not run */
  PyObject *functions; /* tuple of C functions that must not be called */
  PyObject *types;     /* tuple of types of which no C method must be called */
  PyObject *modules;   /* set of packages whose C functions may be called */
  bool running;
  Entry *entry; /* the kernel that was launched last, or NULL */
  Py_ssize_t count, capacity;
  SeenLaunch *launches;
};

int recordings;
static _Thread_local Recording *current;

Recording *own_recording(void) { return current; }

Py_ssize_t seen_launches(const Recording *recording, const SeenLaunch **launches) {
  *launches = recording->launches;
  return recording->count;
}

static void set_reason(Recording *recording, const char *reason) {
  if (recording->reason == NULL)
    recording->reason = PyUnicode_FromString(reason);
  if (recording->reason == NULL)
    PyErr_Clear();
}

/* ---- what launches tell it ---- */

/* The kernel whose launch begins, for record_launch. */
void record_entry(Entry *entry) {
  if (current != NULL && current->entry != entry)
    Py_XSETREF(current->entry, (Entry *)Py_NewRef(entry));
}

static SeenLaunch *next_launch(Recording *recording) {
  if (recording->count == recording->capacity) {
    Py_ssize_t capacity = recording->capacity ? 2 * recording->capacity : 8;
    SeenLaunch *launches = PyMem_Realloc(recording->launches, capacity * sizeof *launches);
    if (launches == NULL)
      return NULL;
    recording->launches = launches;
    recording->capacity = capacity;
  }
  SeenLaunch *launch = &recording->launches[recording->count];
  memset(launch, 0, sizeof *launch);
  return launch;
}

/* Keep a launch that was just made. Always 1: without memory there is only no plan. */
int record_launch(Core *core, Plan *plan, const Call *call, const LaunchConfig *config,
                  void **params) {
  Recording *recording = current;
  if (recording == NULL || recording->reason != NULL)
    return 1;
  if (recording->entry == NULL) {
    set_reason(recording, "a kernel was launched past its launcher");
    return 1;
  }
  /* Another thread may have dropped them while the driver launched. */
  if (core->premises == NULL || !plan->key.kept) {
    set_reason(recording, "a kernel's plans were dropped meanwhile");
    return 1;
  }
  SeenLaunch *launch = next_launch(recording);
  if (launch != NULL) {
    launch->values = PyMem_Calloc(plan->param_count + 1, sizeof *launch->values);
    launch->tensors = PyMem_Calloc(plan->param_count + 1, sizeof *launch->tensors);
  }
  if (launch == NULL || !launch->values || !launch->tensors) {
    if (launch != NULL) {
      PyMem_Free(launch->values);
      PyMem_Free(launch->tensors);
    }
    set_reason(recording, "no memory");
    return 1;
  }
  recording->count++;
  launch->entry = (Entry *)Py_NewRef(recording->entry);
  launch->core = (Core *)Py_NewRef(core);
  launch->plan = (Plan *)Py_NewRef(plan);
  launch->premises = (WatchSet *)Py_NewRef(core->premises);
  memcpy(launch->grid, config->grid, sizeof launch->grid);
  launch->empty = !config->grid[0] || !config->grid[1] || !config->grid[2];
  launch->device = call->device;
  launch->stream = config->stream;
  for (int i = 0; i < plan->param_count; i++) {
    int index = plan->params[i].param;
    memcpy(&launch->values[i], params[i], sizeof(uint64_t));
    if (plan->params[i].source != FROM_PLAN && call->codes[index] == TENSOR)
      launch->tensors[i] = Py_NewRef(call->values[index]);
  }
  return 1;
}

static void unwatch(Recording *recording) {
  if (!recording->running)
    return;
  recording->running = false;
  PyEval_SetProfile(NULL, NULL);
}

/* No plan comes of this thread's recording, if there is one: what follows may be tuning, which
 * must not be watched. -1: exception. */
int end_recording(const char *reason) {
  Recording *recording = current;
  /* Not by its reason: a recording that something else has spoiled is still watching. */
  if (recording == NULL || !recording->running)
    return 0;
  set_reason(recording, reason);
  Py_INCREF(recording);
  unwatch(recording);
  PyObject *result = PyObject_CallNoArgs(recording->on_end);
  Py_DECREF(recording);
  Py_XDECREF(result);
  return result == NULL ? -1 : 0;
}

/* ---- what the interpreter tells it ---- */

static bool in_tuple(PyObject *tuple, const void *object) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
    if (PyTuple_GET_ITEM(tuple, i) == object)
      return true;
  return false;
}

static bool is_of(PyTypeObject *type, PyObject *types) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); i++)
    if (PyType_IsSubtype(type, (PyTypeObject *)PyTuple_GET_ITEM(types, i)))
      return true;
  return false;
}

/* The type that defines a C method, or that the function belongs to otherwise; borrowed or NULL. */
static PyTypeObject *owner_of(PyObject *function) {
  if (Py_IS_TYPE(function, &PyMethodDescr_Type))
    return PyDescr_TYPE(function);
  PyObject *self = PyCFunction_Check(function) ? PyCFunction_GET_SELF(function) : NULL;
  if (self == NULL || PyModule_Check(self))
    return NULL;
  PyTypeObject *type = PyType_Check(self) ? (PyTypeObject *)self : Py_TYPE(self);
  PyObject *name = PyUnicode_FromString(((PyCFunctionObject *)function)->m_ml->ml_name);
  PyObject *found = name == NULL ? NULL : _PyType_Lookup(type, name);
  Py_XDECREF(name);
  bool method = found != NULL && (Py_IS_TYPE(found, &PyMethodDescr_Type) ||
                                  Py_IS_TYPE(found, &PyClassMethodDescr_Type));
  return method ? PyDescr_TYPE(found) : type;
}

/* Whether a C function is of a package whose functions only compute, or launch where it is seen. */
static bool is_known(Recording *recording, PyObject *function, PyTypeObject *owner) {
  PyObject *module = PyCFunction_Check(function) ? ((PyCFunctionObject *)function)->m_module : NULL;
  Py_XINCREF(module);
  if (module == NULL && owner != NULL)
    module = PyObject_GetAttrString((PyObject *)owner, "__module__");
  const char *name = module != NULL && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : NULL;
  PyObject *package = NULL;
  if (name != NULL)
    package = PyUnicode_FromStringAndSize(name, (Py_ssize_t)strcspn(name, "."));
  int known = package == NULL ? -1 : PySet_Contains(recording->modules, package);
  if (known != 1 && recording->reason == NULL)
    recording->reason = PyUnicode_FromFormat("it calls %R", function);
  Py_XDECREF(package);
  Py_XDECREF(module);
  PyErr_Clear();
  return known == 1;
}

static int on_event(PyObject *self, PyFrameObject *frame, int what, PyObject *arg) {
  Recording *recording = (Recording *)self;
  if (what == PyTrace_CALL) {
    PyCodeObject *code = PyFrame_GetCode(frame);
    if (in_tuple(recording->codes, code))
      set_reason(recording, "a launch went through Triton");
    Py_DECREF(code);
  } else if (what == PyTrace_C_CALL && arg != NULL) {
    PyTypeObject *owner = owner_of(arg);
    if (in_tuple(recording->functions, arg) || (owner != NULL && is_of(owner, recording->types)))
      set_reason(recording, "it waits for the GPU, or changes streams");
    else if (!is_known(recording, arg, owner))
      set_reason(recording, "it calls an unknown function");
  }
  return 0;
}

/* ---- the type ---- */

static PyObject *recording_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
  PyObject *on_end, *codes, *functions, *types, *modules;
  if (!PyArg_ParseTuple(args, "OO!O!O!O!:Recording", &on_end, &PyTuple_Type, &codes, &PyTuple_Type,
                        &functions, &PyTuple_Type, &types, &PyFrozenSet_Type, &modules))
    return NULL;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); i++)
    if (!PyType_Check(PyTuple_GET_ITEM(types, i)))
      return PyErr_Format(PyExc_TypeError, "not a type: %R", PyTuple_GET_ITEM(types, i));
  Recording *recording = (Recording *)type->tp_alloc(type, 0);
  if (recording == NULL)
    return NULL;
  recording->on_end = Py_NewRef(on_end);
  recording->codes = Py_NewRef(codes);
  recording->functions = Py_NewRef(functions);
  recording->types = Py_NewRef(types);
  recording->modules = Py_NewRef(modules);
  return (PyObject *)recording;
}

static PyObject *recording_start(Recording *recording, PyObject *Py_UNUSED(ignored)) {
  if (current != NULL) {
    PyErr_SetString(PyExc_RuntimeError, "this thread is already recording");
    return NULL;
  }
  current = (Recording *)Py_NewRef(recording);
  recordings++;
  recording->running = true;
  PyEval_SetProfile(on_event, (PyObject *)recording);
  Py_RETURN_NONE;
}

static PyObject *recording_stop(Recording *recording, PyObject *Py_UNUSED(ignored)) {
  if (current != recording)
    Py_RETURN_NONE;
  unwatch(recording);
  current = NULL;
  recordings--;
  Py_CLEAR(recording->entry);
  Py_DECREF(recording); /* the caller holds it, too */
  Py_RETURN_NONE;
}

static PyObject *recording_refuse(Recording *recording, PyObject *reason) {
  if (!PyUnicode_Check(reason))
    return PyErr_Format(PyExc_TypeError, "not a reason: %R", reason);
  if (recording->reason == NULL)
    recording->reason = Py_NewRef(reason);
  Py_RETURN_NONE;
}

/* [(entry, core, device, stream)] of the launches. */
static PyObject *recording_launches(Recording *recording, PyObject *Py_UNUSED(ignored)) {
  PyObject *list = PyList_New(recording->count);
  for (Py_ssize_t i = 0; list != NULL && i < recording->count; i++) {
    SeenLaunch *launch = &recording->launches[i];
    PyObject *item = Py_BuildValue("(OOlK)", launch->entry, launch->core, launch->device,
                                   (unsigned long long)(uintptr_t)launch->stream);
    if (item == NULL)
      Py_CLEAR(list);
    else
      PyList_SET_ITEM(list, i, item);
  }
  return list;
}

/* The tensors whose addresses kernels were given. */
static PyObject *recording_tensors(Recording *recording, PyObject *Py_UNUSED(ignored)) {
  PyObject *list = PyList_New(0);
  for (Py_ssize_t i = 0; list != NULL && i < recording->count; i++)
    for (int j = 0; list != NULL && j < recording->launches[i].plan->param_count; j++)
      if (recording->launches[i].tensors[j] != NULL &&
          PyList_Append(list, recording->launches[i].tensors[j]) < 0)
        Py_CLEAR(list);
  return list;
}

static PyObject *recording_reason(Recording *recording, void *Py_UNUSED(closure)) {
  return Py_NewRef(recording->reason ? recording->reason : Py_None);
}

static int recording_traverse(Recording *recording, visitproc visit, void *arg) {
  Py_VISIT(recording->on_end);
  Py_VISIT(recording->entry);
  Py_VISIT(recording->codes);
  Py_VISIT(recording->functions);
  Py_VISIT(recording->types);
  Py_VISIT(recording->modules);
  for (Py_ssize_t i = 0; i < recording->count; i++) {
    SeenLaunch *launch = &recording->launches[i];
    Py_VISIT(launch->entry);
    Py_VISIT(launch->core);
    Py_VISIT(launch->plan);
    Py_VISIT(launch->premises);
    for (int j = 0; j < launch->plan->param_count; j++)
      Py_VISIT(launch->tensors[j]);
  }
  return 0;
}

/* There is no tp_clear: whatever could hold a recording in a cycle is on_end's, which has one. */
static void recording_dealloc(Recording *recording) {
  PyObject_GC_UnTrack(recording);
  for (Py_ssize_t i = 0; i < recording->count; i++) {
    SeenLaunch *launch = &recording->launches[i];
    for (int j = 0; j < launch->plan->param_count; j++)
      Py_XDECREF(launch->tensors[j]);
    PyMem_Free(launch->values);
    PyMem_Free(launch->tensors);
    Py_XDECREF(launch->premises);
    Py_DECREF(launch->plan);
    Py_DECREF(launch->core);
    Py_DECREF(launch->entry);
  }
  PyMem_Free(recording->launches);
  Py_XDECREF(recording->entry);
  Py_XDECREF(recording->reason);
  Py_XDECREF(recording->on_end);
  Py_XDECREF(recording->codes);
  Py_XDECREF(recording->functions);
  Py_XDECREF(recording->types);
  Py_XDECREF(recording->modules);
  Py_TYPE(recording)->tp_free((PyObject *)recording);
}

static PyMethodDef recording_methods[] = {
    {"start", (PyCFunction)recording_start, METH_NOARGS, "Watch this thread from now on."},
    {"stop", (PyCFunction)recording_stop, METH_NOARGS, "Watch it no longer."},
    {"refuse", (PyCFunction)recording_refuse, METH_O, "refuse(reason): no plan comes of this."},
    {"launches", (PyCFunction)recording_launches, METH_NOARGS,
     "(entry, core, device, stream) of each launch."},
    {"tensors", (PyCFunction)recording_tensors, METH_NOARGS,
     "The tensors whose addresses kernels were given."},
    {NULL},
};

static PyGetSetDef recording_getset[] = {
    {"reason", (getter)recording_reason, NULL, "Why no plan comes of it, or None.", NULL},
    {NULL},
};

PyTypeObject Recording_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.Recording",
    .tp_basicsize = sizeof(Recording),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Recording(on_end, codes, functions, types, modules): an op's launches, as they are made.",
    .tp_new = recording_new,
    .tp_traverse = (traverseproc)recording_traverse,
    .tp_dealloc = (destructor)recording_dealloc,
    .tp_methods = recording_methods,
    .tp_getset = recording_getset,
};
