/* What a launch would give the driver, made by the steps of a launch and then not given.
 * LAUNCHKIT_VERIFY=1 compares it with what Triton would give.
 */
#include "preview.h"

static PyObject *bytes_of(const Plan *plan, void *const *params) {
  PyObject *result = PyTuple_New(plan->param_count);
  for (int i = 0; result != NULL && i < plan->param_count; i++) {
    PyObject *bytes = PyBytes_FromStringAndSize(params[i], size_of(plan->params[i].kind));
    if (bytes == NULL)
      Py_CLEAR(result);
    else
      PyTuple_SET_ITEM(result, i, bytes);
  }
  return result;
}

/* (function, grid, threads, shared bytes, bytes of each parameter without Triton's scratch). */
static PyObject *preview_of(const Plan *plan, const LaunchConfig *config, void *const *params) {
  PyObject *bytes = bytes_of(plan, params);
  if (bytes == NULL)
    return NULL;
  return Py_BuildValue("(K(III)IIN)", (unsigned long long)(uintptr_t)plan->function,
                       config->grid[0] * plan->ctas, config->grid[1], config->grid[2],
                       config->block[0], config->shared_bytes, bytes);
}

/* What Triton's own launcher would be called with: (grid, value of each of the core's parameters). */
static PyObject *handed_over(Core *core, const Plan *plan, const Call *call, PyObject *grid) {
  PyObject *values = PyTuple_New(core->param_count);
  if (values == NULL)
    return NULL;
  for (int i = 0; i < core->param_count; i++)
    PyTuple_SET_ITEM(values, i, Py_NewRef(value_of(call, plan, i)));
  return Py_BuildValue("(ON)", grid, values);
}

static PyObject *preview_plan(Core *core, Plan *plan, Call *call, PyObject *grid) {
  uint64_t converted[MAX_PARAMS];
  void *params[MAX_PARAMS];
  LaunchConfig config = {.stream = NULL};
  PyObject *evaluated = NULL, *what = NULL;
  int settled = settle_grid(core, plan, call, &grid, &evaluated);
  if (settled == 1 && prepare_launch(plan, call, grid, &config, converted, params))
    what = preview_of(plan, &config, params);
  else if (settled >= 0)
    what = handed_over(core, plan, call, grid);
  Py_XDECREF(evaluated);
  return what == NULL ? NULL : Py_BuildValue("(ON)", plan->object, what);
}

static int preview(Core *core, Call *call, PyObject *grid, PyObject **result) {
  Plan *plan;
  if (core->choose_only || grid == NULL)
    return 0;
  int status = core_find(core, call, &plan);
  if (status == 1) {
    *result = preview_plan(core, plan, call, grid);
    Py_DECREF(plan);
  }
  return status == 1 && *result == NULL ? -1 : status;
}

PyObject *core_preview(Core *core, PyObject *args) { return with_call(core, args, preview); }
