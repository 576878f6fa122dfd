/* Plans: what a launch needs once its arguments are known, made from what Python found out. */
#include "core.h"

#include <string.h>

static int plan_traverse(Plan *plan, visitproc visit, void *arg) {
  Py_VISIT(plan->object);
  Py_VISIT(plan->compiled);
  Py_VISIT(plan->config);
  Py_VISIT(plan->supplied);
  Py_VISIT(plan->watches);
  return 0;
}

/* There is no tp_clear: a launch relies on what its plan holds. Cycles through a plan are broken
 * at the core that holds it. */
static void plan_dealloc(Plan *plan) {
  PyObject_GC_UnTrack(plan);
  Py_XDECREF(plan->object);
  Py_XDECREF(plan->compiled);
  Py_XDECREF(plan->config);
  Py_XDECREF(plan->supplied);
  Py_XDECREF(plan->watches);
  PyMem_Free(plan->key.words);
  PyMem_Free(plan->params);
  Py_TYPE(plan)->tp_free((PyObject *)plan);
}

PyTypeObject Plan_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.Plan",
    .tp_basicsize = sizeof(Plan),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Everything that a launch needs once its arguments are known.",
    .tp_traverse = (traverseproc)plan_traverse,
    .tp_dealloc = (destructor)plan_dealloc,
};

/* Whether a key is one that this core could have made since it was armed. */
static bool own_key(const Core *core, const char *bytes, Py_ssize_t size) {
  uint64_t first;
  Py_ssize_t least = 2;
  for (int i = 0; i < core->param_count; i++)
    least += core->flags[i] & IS_SUPPLIED ? 0 : core->flags[i] & IS_EXACT ? 2 : 1;
  if (core->premises == NULL || size < least * (Py_ssize_t)sizeof first ||
      size % (Py_ssize_t)sizeof first)
    return false;
  memcpy(&first, bytes, sizeof first);
  return first >> 32 == (core->generation & 0xffffffffu);
}

/* insert(slot, plan, compiled, config, supplied, watches, layout) */
PyObject *core_insert(Core *core, PyObject *args) {
  const char *bytes;
  Py_ssize_t size;
  PyObject *object, *compiled, *config, *supplied, *watches, *layout;
  if (!PyArg_ParseTuple(args, "y#OOOO!O!O:insert", &bytes, &size, &object, &compiled, &config,
                        &PyTuple_Type, &supplied, &WatchSet_Type, &watches, &layout))
    return NULL;
  if (!own_key(core, bytes, size) || PyTuple_GET_SIZE(supplied) != core->param_count)
    Py_RETURN_FALSE; /* everything was forgotten meanwhile */
  Plan *plan = PyObject_GC_New(Plan, &Plan_Type);
  if (plan == NULL)
    return NULL;
  memset((char *)plan + sizeof(PyObject), 0, sizeof *plan - sizeof(PyObject));
  plan->object = Py_NewRef(object);
  plan->compiled = Py_NewRef(compiled);
  plan->config = config == Py_None ? NULL : Py_NewRef(config);
  plan->supplied = Py_NewRef(supplied);
  plan->watches = (WatchSet *)Py_NewRef(watches);
  PyObject_GC_Track(plan);
  if (take_key(&plan->key, bytes, size) < 0 || lay_out(core, plan, layout) < 0) {
    Py_DECREF(plan);
    return NULL;
  }
  return insert_keyed(&core->plans, &plan->key) < 0 ? NULL : Py_NewRef(Py_True);
}
