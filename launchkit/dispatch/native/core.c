/* The Core type, as Python sees it. c_core.py drives it. */
#include "preview.h"

#include <string.h>

/* ---- making a core ---- */

static int fill_param(Param *param, uint8_t *flags, PyObject *spec) {
  PyObject *name, *fallback;
  if (!PARSE_ITEM(spec, "UOb", &name, &fallback, flags))
    return -1;
  param->name = Py_NewRef(name);
  PyUnicode_InternInPlace(&param->name);
  param->fallback = fallback == rt.absent ? NULL : Py_NewRef(fallback);
  return 0;
}

static int fill_params_of(Core *core, PyObject *specs) {
  Py_ssize_t count = PyTuple_GET_SIZE(specs);
  if (count > MAX_PARAMS) {
    PyErr_Format(PyExc_ValueError, "%zd parameters are more than %d", count, MAX_PARAMS);
    return -1;
  }
  core->params = PyMem_Calloc(count + 1, sizeof *core->params);
  core->flags = PyMem_Calloc(count + 1, sizeof *core->flags);
  core->shapes.index = PyDict_New();
  core->template = PyDict_New();
  core->constants = PyDict_New();
  if (!core->params || !core->flags)
    PyErr_NoMemory();
  if (!core->params || !core->flags || !core->shapes.index || !core->template || !core->constants)
    return -1;
  for (Py_ssize_t i = 0; i < count; i++) {
    Param *param = &core->params[i];
    if (fill_param(param, &core->flags[i], PyTuple_GET_ITEM(specs, i)) < 0)
      return -1;
    core->param_count++;
    PyObject *number = PyLong_FromSsize_t(i);
    int status = number == NULL ? -1 : PyDict_SetItem(core->shapes.index, param->name, number);
    Py_XDECREF(number);
    if (status < 0 || PyDict_SetItem(core->template, param->name, Py_None) < 0)
      return -1;
  }
  return 0;
}

static PyObject *core_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                                 PyObject *kwnames) {
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (nargs < 1) {
    PyErr_SetString(PyExc_TypeError, "a launch needs a grid");
    return NULL;
  }
  return core_launch((Core *)self, NULL, args[0], args + 1, nargs - 1, kwnames);
}

static PyObject *core_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *params, *binder, *autotuner;
  int positional, choose_only;
  Py_ssize_t limit;
  static char *keywords[] = {"params", "positional", "binder", "autotuner", "choose_only",
                             "plan_limit", NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!iOOpn:Core", keywords, &PyTuple_Type, &params,
                                   &positional, &binder, &autotuner, &choose_only, &limit))
    return NULL;
  if (rt.miss == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "call configure() first");
    return NULL;
  }
  Core *core = (Core *)type->tp_alloc(type, 0);
  if (core == NULL)
    return NULL;
  core->vectorcall = core_vectorcall;
  core->binder = Py_NewRef(binder);
  core->choose_only = choose_only;
  core->plans.limit = limit > 0 ? limit : 1;
  core->generation = 1;
  core->complete = -1;
  if (autotuner != Py_None) {
    core->autotuner = Py_NewRef(autotuner);
    core->autotuner_dict = PyObject_GenericGetDict(autotuner, NULL);
  }
  if (fill_params_of(core, params) < 0 || (core->autotuner && !core->autotuner_dict) ||
      positional < 0 || positional > core->param_count) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_ValueError, "positional is not a number of parameters");
    Py_CLEAR(core);
    return NULL;
  }
  core->positional_count = positional;
  return (PyObject *)core;
}

/* ---- forgetting ---- */

/* Forget plans, constants and premises; keys made before are of another generation. */
static void forget(Core *core) {
  WatchSet *premises = core->premises;
  PyObject *old[] = {core->device_source, core->device_key, core->stream_source, core->stream_key};
  core->premises = NULL;
  core->device_source = core->device_key = core->stream_source = core->stream_key = NULL;
  core->generation++;
  for (int i = 0; i < core->param_count; i++)
    Py_CLEAR(core->params[i].memo);
  if (core->constants != NULL)
    PyDict_Clear(core->constants);
  drop_keyed(&core->plans);
  Py_XDECREF(premises);
  for (int i = 0; i < 4; i++)
    Py_XDECREF(old[i]);
}

static int core_traverse(Core *core, visitproc visit, void *arg) {
  for (int i = 0; i < core->param_count; i++) {
    Py_VISIT(core->params[i].fallback);
    Py_VISIT(core->params[i].memo);
  }
  for (Py_ssize_t i = 0; i < core->plans.count; i++)
    Py_VISIT(core->plans.items[i]);
  Py_VISIT(core->binder);
  Py_VISIT(core->autotuner);
  Py_VISIT(core->autotuner_dict);
  Py_VISIT(core->constants);
  Py_VISIT(core->premises);
  Py_VISIT(core->device_source);
  Py_VISIT(core->stream_source);
  return 0;
}

static int core_gc_clear(Core *core) {
  forget(core);
  Py_CLEAR(core->binder);
  Py_CLEAR(core->autotuner);
  Py_CLEAR(core->autotuner_dict);
  return 0;
}

/* Count launches in a buffer of two 64-bit numbers, or nowhere. */
static int count_into(Core *core, PyObject *buffer) {
  Py_buffer fresh;
  if (buffer != NULL && PyObject_GetBuffer(buffer, &fresh, PyBUF_WRITABLE) < 0)
    return -1;
  if (buffer != NULL && (fresh.len != 2 * sizeof(uint64_t) || (uintptr_t)fresh.buf % 8 != 0)) {
    PyBuffer_Release(&fresh);
    PyErr_SetString(PyExc_ValueError, "launches are counted in two numbers of 64 bits");
    return -1;
  }
  Py_buffer old = core->count_buffer;
  bool counted = core->launch_count != NULL;
  core->launch_count = buffer == NULL ? NULL : fresh.buf;
  if (buffer != NULL)
    core->count_buffer = fresh;
  if (counted)
    PyBuffer_Release(&old);
  return 0;
}

static void core_dealloc(Core *core) {
  PyObject_GC_UnTrack(core);
  core_gc_clear(core);
  count_into(core, NULL);
  drop_shapes(&core->shapes);
  drop_grids(core);
  for (int i = 0; i < core->param_count; i++) {
    Py_XDECREF(core->params[i].name);
    Py_XDECREF(core->params[i].fallback);
  }
  PyMem_Free(core->params);
  PyMem_Free(core->flags);
  Py_XDECREF(core->shapes.index);
  Py_XDECREF(core->template);
  Py_XDECREF(core->constants);
  Py_TYPE(core)->tp_free((PyObject *)core);
}

/* ---- methods ---- */

static PyObject *core_clear(Core *core, PyObject *Py_UNUSED(ignored)) {
  forget(core);
  Py_RETURN_NONE;
}

/* A callable, or a dictionary and the key under which the number stands. */
static int take_source(PyObject *spec, PyObject **source, PyObject **key) {
  if (PyTuple_CheckExact(spec)) {
    PyObject *dict, *name;
    if (!PARSE_ITEM(spec, "O!O", &PyDict_Type, &dict, &name))
      return -1;
    *source = Py_NewRef(dict);
    *key = Py_NewRef(name);
    return 0;
  }
  *source = spec == Py_None ? NULL : Py_NewRef(spec);
  *key = NULL;
  return 0;
}

/* Where the current device and stream are read from, as new references: two of take_source() each.
 * -1: exception, a ValueError where nothing says one of them. */
int take_sources(PyObject *device, PyObject *stream, PyObject **sources) {
  memset(sources, 0, 4 * sizeof *sources);
  if (device == Py_None || (stream == Py_None && rt.read_stream == NULL))
    PyErr_SetString(PyExc_ValueError, "nothing says which device or stream is current");
  else if (take_source(device, &sources[0], &sources[1]) == 0 &&
           take_source(stream, &sources[2], &sources[3]) == 0)
    return 0;
  for (int i = 0; i < 4; i++)
    Py_CLEAR(sources[i]);
  return -1;
}

static PyObject *core_arm(Core *core, PyObject *args) {
  PyObject *premises, *device, *stream, *sources[4];
  int device_type, index_counts;
  if (!PyArg_ParseTuple(args, "O!OOip:arm", &WatchSet_Type, &premises, &device, &stream,
                        &device_type, &index_counts))
    return NULL;
  if (take_sources(device, stream, sources) < 0)
    return NULL;
  find_driver();
  do
    forget(core);
  while (core->premises != NULL); /* a finalizer may have armed it meanwhile */
  core->device_source = sources[0];
  core->device_key = sources[1];
  core->stream_source = sources[2];
  core->stream_key = sources[3];
  core->device_type = device_type;
  core->device_index_counts = index_counts;
  core->premises = (WatchSet *)Py_NewRef(premises);
  Py_RETURN_NONE;
}

static PyObject *core_current(Core *core, PyObject *Py_UNUSED(ignored)) {
  int holds = premises_hold(core->premises);
  return holds < 0 ? NULL : PyBool_FromLong(holds);
}

/* (args, kwargs) as a vector: the values, then those of the keywords. */
static PyObject **as_vector(PyObject *args, PyObject *kwargs, PyObject **kwnames) {
  Py_ssize_t nargs = PyTuple_GET_SIZE(args), nkwargs = PyDict_GET_SIZE(kwargs);
  PyObject **vector = PyMem_Calloc(nargs + nkwargs + 1, sizeof *vector);
  *kwnames = PyTuple_New(nkwargs);
  if (vector == NULL || *kwnames == NULL) {
    PyMem_Free(vector);
    Py_CLEAR(*kwnames);
    if (!PyErr_Occurred())
      PyErr_NoMemory();
    return NULL;
  }
  for (Py_ssize_t i = 0; i < nargs; i++)
    vector[i] = PyTuple_GET_ITEM(args, i);
  Py_ssize_t position = 0, i = 0;
  PyObject *key, *value;
  while (PyDict_Next(kwargs, &position, &key, &value)) {
    PyTuple_SET_ITEM(*kwnames, i, Py_NewRef(key));
    vector[nargs + i++] = value;
  }
  return vector;
}

PyObject *with_call(Core *core, PyObject *args, CallUser use) {
  PyObject *given, *options, *grid = NULL, *kwnames, *result = NULL;
  Call call;
  if (!PyArg_ParseTuple(args, "O!O!|O", &PyTuple_Type, &given, &PyDict_Type, &options, &grid))
    return NULL;
  PyObject *copy = PyDict_Copy(options); /* the caller's may change while Python code runs */
  PyObject **vector = copy == NULL ? NULL : as_vector(given, copy, &kwnames);
  if (vector == NULL) {
    Py_XDECREF(copy);
    return NULL;
  }
  Py_INCREF(core);
  int status = bind_call(core, &call, NULL, vector, PyTuple_GET_SIZE(given), kwnames);
  if (status == 1)
    status = use(core, &call, grid, &result);
  Py_DECREF(core);
  PyMem_Free(vector);
  Py_DECREF(kwnames);
  Py_DECREF(copy);
  if (status < 0)
    return NULL;
  return status == 1 ? result : Py_NewRef(Py_None);
}

static int key_bytes(Core *core, Call *call, PyObject *Py_UNUSED(grid), PyObject **result) {
  if (core->premises == NULL)
    return 0;
  int status = make_key(core, call, true);
  if (status != 1)
    return status;
  *result = PyBytes_FromStringAndSize((char *)call->words, call->word_count * sizeof(uint64_t));
  return *result == NULL ? -1 : 1;
}

static int plan_object(Core *core, Call *call, PyObject *Py_UNUSED(grid), PyObject **result) {
  Plan *plan;
  int status = core_find(core, call, &plan);
  if (status == 1) {
    *result = Py_NewRef(plan->object);
    Py_DECREF(plan);
  }
  return status;
}

static PyObject *core_slot(Core *core, PyObject *args) { return with_call(core, args, key_bytes); }

static PyObject *core_find_method(Core *core, PyObject *args) {
  return with_call(core, args, plan_object);
}

static PyObject *core_count_into(Core *core, PyObject *buffer) {
  if (count_into(core, buffer == Py_None ? NULL : buffer) < 0)
    return NULL;
  Py_RETURN_NONE;
}

static PyObject *core_holds(Core *core, PyObject *slot) {
  uint64_t words[MAX_WORDS];
  Py_ssize_t bytes = PyBytes_Check(slot) ? PyBytes_GET_SIZE(slot) : -1;
  if (bytes < 0 || bytes > (Py_ssize_t)sizeof words || bytes % (Py_ssize_t)sizeof *words)
    return PyErr_Format(PyExc_TypeError, "not a slot: %R", slot);
  memcpy(words, PyBytes_AS_STRING(slot), bytes);
  Py_ssize_t count = bytes / (Py_ssize_t)sizeof *words;
  return PyBool_FromLong(look_up(&core->plans, words, count, hash_words(words, count)) != NULL);
}

static PyObject *core_plans(Core *core, PyObject *Py_UNUSED(ignored)) {
  /* Appended one by one: garbage that a new list collects may change the table. */
  PyObject *found = PyList_New(0);
  for (Py_ssize_t i = 0; found != NULL && i < core->plans.count; i++)
    if (PyList_Append(found, ((Plan *)core->plans.items[i])->object) < 0)
      Py_CLEAR(found);
  return found;
}

static Py_ssize_t core_length(Core *core) { return core->plans.count; }

static PyMethodDef core_methods[] = {
    {"arm", (PyCFunction)core_arm, METH_VARARGS,
     "arm(premises, device, stream, device_type, index_counts): forget everything, and go by these "
     "from now on."},
    {"current", (PyCFunction)core_current, METH_NOARGS,
     "Tell whether the core is armed and its premises hold."},
    {"clear", (PyCFunction)core_clear, METH_NOARGS, "Forget everything; the core misses until armed."},
    {"slot", (PyCFunction)core_slot, METH_VARARGS,
     "slot(args, kwargs): the place of these arguments' plan, or None."},
    {"find", (PyCFunction)core_find_method, METH_VARARGS,
     "find(args, kwargs): the plan that a launch takes, or None."},
    {"preview", (PyCFunction)core_preview, METH_VARARGS,
     "preview(args, kwargs, grid): what a launch would pass on, or None; see preview.c."},
    {"holds", (PyCFunction)core_holds, METH_O, "holds(slot): whether a plan is kept there."},
    {"insert", (PyCFunction)core_insert, METH_VARARGS,
     "insert(slot, plan, compiled, config, supplied, watches, layout): keep a plan."},
    {"count_into", (PyCFunction)core_count_into, METH_O,
     "count_into(buffer): add each launch to the first of these two numbers of 64 bits, each one of an "
     "op plan to the second; None: no longer."},
    {"plans", (PyCFunction)core_plans, METH_NOARGS, "The plans, oldest first."},
    {NULL},
};

static PySequenceMethods core_sequence = {.sq_length = (lenfunc)core_length};

PyTypeObject Core_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.Core",
    .tp_basicsize = sizeof(Core),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "The launches of one kernel: called as core(grid, *args, **kwargs).",
    .tp_new = core_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Core, vectorcall),
    .tp_traverse = (traverseproc)core_traverse,
    .tp_clear = (inquiry)core_gc_clear,
    .tp_dealloc = (destructor)core_dealloc,
    .tp_methods = core_methods,
    .tp_as_sequence = &core_sequence,
};
