/* The OpCore type: the plans of one op, as Python sees them. op_plans.py drives it. */
#include "op.h"

#include <string.h>
#include <structmember.h>

/* ---- making one ---- */

static int fill_names(OpCore *core, PyObject *params) {
  Py_ssize_t count = PyTuple_GET_SIZE(params);
  if (count > MAX_PARAMS) {
    PyErr_Format(PyExc_ValueError, "%zd parameters are more than %d", count, MAX_PARAMS);
    return -1;
  }
  core->defaults = PyMem_Calloc(count + 1, sizeof *core->defaults);
  core->shapes.index = PyDict_New();
  core->constants = PyDict_New();
  core->reasons = PyDict_New();
  if (!core->defaults)
    PyErr_NoMemory();
  if (!core->defaults || !core->shapes.index || !core->constants || !core->reasons)
    return -1;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *name, *fallback;
    int by_name;
    if (!PARSE_ITEM(PyTuple_GET_ITEM(params, i), "UOp", &name, &fallback, &by_name))
      return -1;
    core->param_count++;
    core->defaults[i] = fallback == rt.absent ? NULL : Py_NewRef(fallback);
    PyObject *number = by_name ? PyLong_FromSsize_t(i) : NULL;
    if (by_name && (number == NULL || PyDict_SetItem(core->shapes.index, name, number) < 0)) {
      Py_XDECREF(number);
      return -1;
    }
    Py_XDECREF(number);
  }
  return 0;
}

static PyObject *op_core_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
  PyObject *function, *planner, *params;
  int positional;
  Py_ssize_t limit;
  if (!PyArg_ParseTuple(args, "OOO!in:OpCore", &function, &planner, &PyTuple_Type, &params,
                        &positional, &limit))
    return NULL;
  if (op_state.requires_grad == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "call configure_ops() first");
    return NULL;
  }
  OpCore *core = (OpCore *)type->tp_alloc(type, 0);
  if (core == NULL)
    return NULL;
  core->function = Py_NewRef(function);
  core->planner = Py_NewRef(planner);
  core->generation = 1;
  core->plans.limit = limit > 0 ? limit : 1;
  if (fill_names(core, params) < 0 || positional < 0 || positional > core->param_count) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_ValueError, "positional is not a number of parameters");
    Py_CLEAR(core);
    return NULL;
  }
  core->positional_count = positional;
  return (PyObject *)core;
}

/* ---- premises and plans ---- */

/* Forget plans and premises; keys made before are of another generation. */
static void forget(OpCore *core) {
  WatchSet *premises = core->premises;
  PyObject *old[] = {core->device_source, core->device_key, core->stream_source, core->stream_key};
  core->premises = NULL;
  core->device_source = core->device_key = core->stream_source = core->stream_key = NULL;
  core->generation++;
  if (core->constants != NULL)
    PyDict_Clear(core->constants);
  drop_keyed(&core->plans);
  Py_XDECREF(premises);
  for (int i = 0; i < 4; i++)
    Py_XDECREF(old[i]);
}

static PyObject *op_core_arm(OpCore *core, PyObject *args) {
  PyObject *premises, *device, *stream, *sources[4];
  int device_type, index_counts;
  if (!PyArg_ParseTuple(args, "O!OOip:arm", &WatchSet_Type, &premises, &device, &stream,
                        &device_type, &index_counts))
    return NULL;
  if (take_sources(device, stream, sources) < 0)
    return NULL;
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

static PyObject *op_core_clear(OpCore *core, PyObject *Py_UNUSED(ignored)) {
  forget(core);
  Py_RETURN_NONE;
}

/* Keep a plan, unless everything was forgotten since its key was made. */
static PyObject *op_core_keep(OpCore *core, PyObject *arg) {
  if (!Py_IS_TYPE(arg, &OpPlan_Type))
    return PyErr_Format(PyExc_TypeError, "not an op plan: %R", arg);
  Keyed *keyed = (Keyed *)arg;
  if (core->premises == NULL || keyed->kept || keyed->word_count < 1 ||
      keyed->words[0] >> 32 != (core->generation & 0xffffffffu))
    Py_RETURN_FALSE;
  return insert_keyed(&core->plans, (Keyed *)Py_NewRef(arg)) < 0 ? NULL : Py_NewRef(Py_True);
}

static PyObject *op_core_find(OpCore *core, PyObject *key) {
  char *bytes;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(key, &bytes, &size) < 0)
    return NULL;
  if (size == 0 || size % 8)
    return PyErr_Format(PyExc_ValueError, "not a key");
  uint64_t words[MAX_OP_WORDS];
  if (size > (Py_ssize_t)sizeof words)
    Py_RETURN_NONE;
  memcpy(words, bytes, size);
  Keyed *found = find_keyed(&core->plans, words, size / 8);
  return Py_NewRef(found == NULL ? Py_None : (PyObject *)found);
}

static PyObject *op_core_plans(OpCore *core, PyObject *Py_UNUSED(ignored)) {
  /* Appended one by one: garbage that a new list collects may change the table. */
  PyObject *found = PyList_New(0);
  for (Py_ssize_t i = 0; found != NULL && i < core->plans.count; i++)
    if (PyList_Append(found, (PyObject *)core->plans.items[i]) < 0)
      Py_CLEAR(found);
  return found;
}

static PyObject *op_core_count(OpCore *core, PyObject *reason) {
  return count_reason(core, reason) < 0 ? NULL : Py_NewRef(Py_None);
}

static int op_core_traverse(OpCore *core, visitproc visit, void *arg) {
  for (int i = 0; i < core->param_count; i++)
    Py_VISIT(core->defaults[i]);
  for (Py_ssize_t i = 0; i < core->plans.count; i++)
    Py_VISIT((PyObject *)core->plans.items[i]);
  Py_VISIT(core->function);
  Py_VISIT(core->planner);
  Py_VISIT(core->constants);
  Py_VISIT(core->reasons);
  Py_VISIT(core->premises);
  Py_VISIT(core->device_source);
  Py_VISIT(core->stream_source);
  return 0;
}

static int op_core_gc_clear(OpCore *core) {
  forget(core);
  Py_CLEAR(core->function);
  Py_CLEAR(core->planner);
  return 0;
}

static void op_core_dealloc(OpCore *core) {
  PyObject_GC_UnTrack(core);
  op_core_gc_clear(core);
  drop_shapes(&core->shapes);
  for (int i = 0; i < core->param_count; i++)
    Py_XDECREF(core->defaults[i]);
  PyMem_Free(core->defaults);
  Py_XDECREF(core->shapes.index);
  Py_XDECREF(core->constants);
  Py_XDECREF(core->reasons);
  Py_TYPE(core)->tp_free((PyObject *)core);
}

static PyMethodDef op_core_methods[] = {
    {"arm", (PyCFunction)op_core_arm, METH_VARARGS,
     "arm(premises, device, stream, device_type, index_counts): forget everything, and go by these "
     "from now on."},
    {"clear", (PyCFunction)op_core_clear, METH_NOARGS, "Forget every plan."},
    {"keep", (PyCFunction)op_core_keep, METH_O, "keep(plan): whether it is kept."},
    {"find", (PyCFunction)op_core_find, METH_O, "find(key): the plan that is kept there, or None."},
    {"plans", (PyCFunction)op_core_plans, METH_NOARGS, "The plans, oldest first."},
    {"count", (PyCFunction)op_core_count, METH_O, "count(reason): one more call as it is."},
    {NULL},
};

static PyMemberDef op_core_members[] = {
    {"reasons", T_OBJECT, offsetof(OpCore, reasons), READONLY, "Calls as it is, by reason."},
    {"replays", T_ULONGLONG, offsetof(OpCore, replays), READONLY, "Calls that were replayed."},
    {NULL},
};

PyTypeObject OpCore_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.OpCore",
    .tp_basicsize = sizeof(OpCore),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "OpCore(function, planner, params, positional, limit): the plans of one op.",
    .tp_new = op_core_new,
    .tp_traverse = (traverseproc)op_core_traverse,
    .tp_clear = (inquiry)op_core_gc_clear,
    .tp_dealloc = (destructor)op_core_dealloc,
    .tp_methods = op_core_methods,
    .tp_members = op_core_members,
};
