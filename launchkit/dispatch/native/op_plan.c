/* Op plans: the launches of a recorded op, ready to be repeated with other addresses. */
#include "op.h"

#include <string.h>

/* ---- frames ---- */

static const uint64_t no_scratch;

/* NULL: no memory; no exception is set. */
Frame *make_frame(const OpPlan *plan) {
  size_t pointers = (size_t)plan->value_count + 2 * (size_t)plan->launch_count;
  size_t bytes = sizeof(Frame) + plan->value_count * sizeof(uint64_t) +
                 plan->launch_count * sizeof(LaunchConfig) + pointers * sizeof(void *) +
                 (plan->launch_count + 1) * sizeof(uint64_t);
  Frame *frame = PyMem_RawMalloc(bytes);
  if (frame == NULL)
    return NULL;
  frame->configs = (LaunchConfig *)(frame + 1);
  frame->values = (uint64_t *)(frame->configs + plan->launch_count);
  frame->stamps = frame->values + plan->value_count;
  frame->params = (void **)(frame->stamps + plan->launch_count + 1);
  memcpy(frame->values, plan->values, plan->value_count * sizeof *frame->values);
  void **next = frame->params;
  for (int i = 0; i < plan->launch_count; i++) {
    const OpLaunch *launch = &plan->launches[i];
    Plan *kernel = launch->plan;
    LaunchConfig config = {.block = {kernel->threads, 1, 1},
                           .shared_bytes = kernel->shared_bytes,
                           .attributes = kernel->attributes,
                           .attribute_count = kernel->attribute_count};
    memcpy(config.grid, launch->grid, sizeof config.grid);
    frame->configs[i] = config;
    for (int j = 0; j < kernel->param_count; j++)
      *next++ = &frame->values[launch->first_value + j];
    *next++ = (void *)&no_scratch;
    *next++ = (void *)&no_scratch;
  }
  return frame;
}

/* ---- premises ---- */

/* 1: every launch would be made again as it was, 0: not, -1: exception. `in_front`: nothing may
 * stand between a kernel and its core, either. */
int op_plan_holds(const OpPlan *plan, bool in_front) {
  for (int i = 0; i < plan->launch_count; i++) {
    const OpLaunch *launch = &plan->launches[i];
    if (!launch->plan->key.kept || (in_front && launch->entry->fast != (PyObject *)launch->core))
      return 0;
    int holds = watches_hold(launch->premises);
    if (holds == 1)
      holds = watches_hold(launch->plan->watches);
    if (holds != 1)
      return holds;
  }
  return 1;
}

/* ---- making one ---- */

static int count_launches(OpPlan *plan, const SeenLaunch *seen, Py_ssize_t count) {
  size_t values = 0, tensors = 0;
  for (Py_ssize_t i = 0; i < count; i++)
    for (int j = 0; j < seen[i].plan->param_count; j++) {
      values++;
      tensors += seen[i].tensors[j] != NULL;
    }
  plan->launches = PyMem_Calloc(count + 1, sizeof *plan->launches);
  plan->values = PyMem_Calloc(values + 1, sizeof *plan->values);
  plan->addresses = PyMem_Calloc(tensors + 1, sizeof *plan->addresses);
  if (plan->launches && plan->values && plan->addresses)
    return 0;
  PyErr_NoMemory();
  return -1;
}

/* Where a tensor's address comes from; sources: tuple of (tensor, from, place). 1: found, 0: not
 * among them, -1: exception. A place of -1: an empty tensor, whose address is always 0. */
static int find_source(PyObject *sources, PyObject *tensor, Address *address) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sources); i++) {
    PyObject *known;
    long long place;
    if (!PARSE_ITEM(PyTuple_GET_ITEM(sources, i), "OiL", &known, &address->from, &place))
      return -1;
    address->place = place;
    if (known == tensor)
      return 1;
  }
  return 0;
}

static int take_launch(OpPlan *plan, const SeenLaunch *seen, PyObject *sources) {
  OpLaunch *launch = &plan->launches[plan->launch_count++];
  launch->entry = (Entry *)Py_NewRef(seen->entry);
  launch->core = (Core *)Py_NewRef(seen->core);
  launch->plan = (Plan *)Py_NewRef(seen->plan);
  launch->premises = (WatchSet *)Py_NewRef(seen->premises);
  memcpy(launch->grid, seen->grid, sizeof launch->grid);
  launch->empty = seen->empty;
  launch->first_value = plan->value_count;
  for (int i = 0; i < seen->plan->param_count; i++) {
    int value = plan->value_count++;
    plan->values[value] = seen->values[i];
    if (seen->tensors[i] == NULL)
      continue;
    Address *address = &plan->addresses[plan->address_count];
    int found = find_source(sources, seen->tensors[i], address);
    if (found != 1)
      return found;
    if (address->place < 0)
      continue;
    plan->values[value] = 0; /* no stale address can be launched */
    address->value = value;
    plan->address_count++;
  }
  return 1;
}

static bool in_range(const OpPlan *plan, Py_ssize_t tensors) {
  for (int i = 0; i < plan->address_count; i++) {
    const Address *address = &plan->addresses[i];
    int64_t end = address->from == FROM_ARGUMENT    ? tensors
                  : address->from == FROM_WORKSPACE ? plan->workspace_bytes
                                                    : plan->maker_count;
    if (address->from < FROM_ARGUMENT || address->from > FROM_RESULT || address->place >= end)
      return false;
  }
  return true;
}

static bool good_makers(PyObject *makers) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(makers); i++) {
    PyObject *item = PyTuple_GET_ITEM(makers, i), *callable, *args, *names;
    if (!PARSE_ITEM(item, "OO!O!", &callable, &PyTuple_Type, &args, &PyTuple_Type, &names))
      return false;
    if (PyTuple_GET_SIZE(names) > PyTuple_GET_SIZE(args)) {
      PyErr_SetString(PyExc_ValueError, "more keywords than arguments");
      return false;
    }
  }
  return true;
}

static bool good_results(PyObject *results, Py_ssize_t tensors, Py_ssize_t makers) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results); i++) {
    PyObject *place;
    int from;
    if (!PARSE_ITEM(PyTuple_GET_ITEM(results, i), "iO", &from, &place))
      return false;
    Py_ssize_t end = from == FROM_ARGUMENT ? tensors : makers, index = 0;
    if (from >= 0 && (index = PyLong_AsSsize_t(place)) == -1 && PyErr_Occurred())
      return false;
    if (from >= 0 && (index < 0 || index >= end || from == FROM_WORKSPACE)) {
      PyErr_SetString(PyExc_ValueError, "a result that is nowhere");
      return false;
    }
  }
  return true;
}

static PyObject *op_plan_new(PyTypeObject *Py_UNUSED(type), PyObject *args,
                             PyObject *Py_UNUSED(kwargs)) {
  const char *key;
  Py_ssize_t size;
  Recording *recording;
  PyObject *sources, *makers, *results, *container;
  long long workspace_bytes;
  int tensors;
  if (!PyArg_ParseTuple(args, "y#O!iO!LO!O!O:OpPlan", &key, &size, &Recording_Type, &recording,
                        &tensors, &PyTuple_Type, &sources, &workspace_bytes, &PyTuple_Type, &makers,
                        &PyTuple_Type, &results, &container))
    return NULL;
  if (!good_makers(makers) || !good_results(results, tensors, PyTuple_GET_SIZE(makers)))
    return NULL;
  if (PyTuple_GET_SIZE(makers) > MAX_RESULTS || workspace_bytes < 0 || size % 8) {
    PyErr_SetString(PyExc_ValueError, "no such op plan");
    return NULL;
  }
  const SeenLaunch *seen;
  Py_ssize_t count = seen_launches(recording, &seen);
  OpPlan *plan = PyObject_GC_New(OpPlan, &OpPlan_Type);
  if (plan == NULL)
    return NULL;
  memset((char *)plan + sizeof(PyObject), 0, sizeof *plan - sizeof(PyObject));
  plan->workspace_bytes = workspace_bytes;
  plan->makers = Py_NewRef(makers);
  plan->maker_count = (int)PyTuple_GET_SIZE(makers);
  plan->results = Py_NewRef(results);
  plan->container = Py_NewRef(container);
  PyObject_GC_Track(plan);
  int status = take_key(&plan->key, key, size) < 0 || count_launches(plan, seen, count) < 0 ? -1 : 1;
  for (Py_ssize_t i = 0; status == 1 && i < count; i++)
    status = take_launch(plan, &seen[i], sources);
  if (status == 0) { /* a tensor that no later call would have */
    Py_DECREF(plan);
    Py_RETURN_NONE;
  }
  if (status == 1 && !in_range(plan, tensors)) {
    PyErr_SetString(PyExc_ValueError, "an address that is nowhere");
    status = -1;
  }
  if (status == 1 && (plan->frame = make_frame(plan)) == NULL) {
    PyErr_NoMemory();
    status = -1;
  }
  if (status < 0)
    Py_CLEAR(plan);
  return (PyObject *)plan;
}

/* ---- what Python sees ---- */

static PyObject *op_plan_hold(OpPlan *plan, PyObject *Py_UNUSED(ignored)) {
  Py_INCREF(plan);
  int holds = op_plan_holds(plan, false);
  Py_DECREF(plan);
  return holds < 0 ? NULL : PyBool_FromLong(holds);
}

static const char *const PLACES[] = {"argument", "workspace", "result"};

static PyObject *params_of(const OpPlan *plan, const OpLaunch *launch) {
  int count = launch->plan->param_count;
  PyObject *params = PyTuple_New(count);
  for (int i = 0; params != NULL && i < count; i++) {
    PyObject *param = PyLong_FromUnsignedLongLong(plan->values[launch->first_value + i]);
    for (int j = 0; param != NULL && j < plan->address_count; j++) {
      const Address *address = &plan->addresses[j];
      if (address->value == launch->first_value + i) {
        Py_DECREF(param);
        param = Py_BuildValue("(sL)", PLACES[address->from], (long long)address->place);
      }
    }
    if (param == NULL)
      Py_CLEAR(params);
    else
      PyTuple_SET_ITEM(params, i, param);
  }
  return params;
}

/* [(entry, function, grid, threads, shared bytes, parameters)] */
static PyObject *op_plan_launches(OpPlan *plan, PyObject *Py_UNUSED(ignored)) {
  PyObject *list = PyList_New(0);
  for (int i = 0; list != NULL && i < plan->launch_count; i++) {
    const OpLaunch *launch = &plan->launches[i];
    const Plan *kernel = launch->plan;
    PyObject *params = params_of(plan, launch);
    PyObject *item =
        params == NULL
            ? NULL
            : Py_BuildValue("(OK(III)IIN)", launch->entry,
                            (unsigned long long)(uintptr_t)kernel->function, launch->grid[0],
                            launch->grid[1], launch->grid[2], kernel->threads,
                            kernel->shared_bytes, params);
    if (item == NULL || PyList_Append(list, item) < 0)
      Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

static PyObject *op_plan_workspace(OpPlan *plan, void *Py_UNUSED(closure)) {
  return PyLong_FromLongLong(plan->workspace_bytes);
}

static PyObject *op_plan_results(OpPlan *plan, void *Py_UNUSED(closure)) {
  return Py_BuildValue("(OOO)", plan->container, plan->results, plan->makers);
}

static int op_plan_traverse(OpPlan *plan, visitproc visit, void *arg) {
  for (int i = 0; i < plan->launch_count; i++) {
    Py_VISIT(plan->launches[i].entry);
    Py_VISIT(plan->launches[i].core);
    Py_VISIT(plan->launches[i].plan);
    Py_VISIT(plan->launches[i].premises);
  }
  Py_VISIT(plan->makers);
  Py_VISIT(plan->results);
  Py_VISIT(plan->container);
  return 0;
}

/* There is no tp_clear: a replay relies on what its plan holds. Cycles through a plan are broken
 * at the OpCore that holds it. */
static void op_plan_dealloc(OpPlan *plan) {
  PyObject_GC_UnTrack(plan);
  for (int i = 0; i < plan->launch_count; i++) {
    Py_XDECREF(plan->launches[i].premises);
    Py_XDECREF(plan->launches[i].plan);
    Py_XDECREF(plan->launches[i].core);
    Py_XDECREF(plan->launches[i].entry);
  }
  Py_XDECREF(plan->makers);
  Py_XDECREF(plan->results);
  Py_XDECREF(plan->container);
  PyMem_Free(plan->key.words);
  PyMem_Free(plan->launches);
  PyMem_Free(plan->values);
  PyMem_Free(plan->addresses);
  PyMem_RawFree(plan->frame);
  Py_TYPE(plan)->tp_free((PyObject *)plan);
}

static PyMethodDef op_plan_methods[] = {
    {"hold", (PyCFunction)op_plan_hold, METH_NOARGS,
     "Tell whether each launch would be made again as it was."},
    {"launches", (PyCFunction)op_plan_launches, METH_NOARGS,
     "(entry, function, grid, threads, shared bytes, parameters) of each launch."},
    {NULL},
};

static PyGetSetDef op_plan_getset[] = {
    {"workspace_bytes", (getter)op_plan_workspace, NULL, "What a replay allocates for itself.",
     NULL},
    {"returned", (getter)op_plan_results, NULL, "(container, results, how they are made)", NULL},
    {NULL},
};

PyTypeObject OpPlan_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.OpPlan",
    .tp_basicsize = sizeof(OpPlan),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "OpPlan(key, recording, tensors, sources, workspace_bytes, makers, results, "
              "container): an op's launches, to be repeated; None for one that cannot be.",
    .tp_new = op_plan_new,
    .tp_traverse = (traverseproc)op_plan_traverse,
    .tp_dealloc = (destructor)op_plan_dealloc,
    .tp_methods = op_plan_methods,
    .tp_getset = op_plan_getset,
};
