/* A launch: find the plan, ask its premises, evaluate the grid, fill the parameters, call the
 * driver. What is odd in any way is finished by Triton's own launcher, never called twice.
 */
#include "preview.h"

#include <dlfcn.h>
#include <string.h>

/* ---- the driver ---- */

typedef int (*LaunchFunction)(const LaunchConfig *config, void *function, void **params,
                              void **extra);

static struct {
  LaunchFunction launch;
  int (*error_string)(int, const char **);
  int (*current_context)(void **);
  int (*set_context)(void *);
  int (*retain_context)(void **, int);
  int (*set_attribute)(void *, int, int);
} driver;

enum { INVALID_CONTEXT = 201, NON_PORTABLE_CLUSTER_SIZE = 14, NON_PORTABLE_CTAS = 16 };

/* Find the driver that is loaded; it never loads one. 1: found, 0: there is none. */
int find_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL)
    return 0;
  driver.launch = (LaunchFunction)dlsym(library, "cuLaunchKernelEx");
  driver.error_string = (int (*)(int, const char **))dlsym(library, "cuGetErrorString");
  driver.current_context = (int (*)(void **))dlsym(library, "cuCtxGetCurrent");
  driver.set_context = (int (*)(void *))dlsym(library, "cuCtxSetCurrent");
  driver.retain_context = (int (*)(void **, int))dlsym(library, "cuDevicePrimaryCtxRetain");
  driver.set_attribute = (int (*)(void *, int, int))dlsym(library, "cuFuncSetAttribute");
  dlclose(library); /* it stays loaded: whoever loaded it holds it */
  return driver.launch && driver.error_string && driver.current_context && driver.set_context &&
         driver.retain_context && driver.set_attribute;
}

bool has_driver(void) { return driver.launch != NULL; }

/* As Triton's launcher: a thread without a context gets the first device's. */
static int give_context(void) {
  void *context = NULL;
  int status = driver.current_context(&context);
  if (status != 0 || context != NULL)
    return status ? status : INVALID_CONTEXT;
  status = driver.retain_context(&context, 0);
  return status ? status : driver.set_context(context);
}

int call_driver(const Plan *plan, const LaunchConfig *config, void **params) {
  int status = 0;
  if (plan->ctas == NON_PORTABLE_CTAS)
    status = driver.set_attribute(plan->function, NON_PORTABLE_CLUSTER_SIZE, 1);
  if (status == 0)
    status = driver.launch(config, plan->function, params, NULL);
  /* Asked for only where it is missing: the question is a tenth of a launch. */
  if (status == INVALID_CONTEXT && give_context() == 0)
    status = driver.launch(config, plan->function, params, NULL);
  return status;
}

void raise_status(int status) {
  const char *text = NULL;
  driver.error_string(status, &text);
  PyErr_Format(PyExc_RuntimeError, "Triton Error [CUDA]: %s", text ? text : "unknown error");
}

/* ---- the grid ---- */

/* 1: three numbers whose product is below 2**31, 0: Triton's launcher has to look at it. */
int read_grid(PyObject *grid, unsigned *out) {
  int64_t size[3] = {1, 1, 1};
  if (!PyTuple_CheckExact(grid) && !PyList_CheckExact(grid))
    return 0;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(grid);
  if (count == 0)
    return 0;
  for (Py_ssize_t i = 0; i < count && i < 3; i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(grid, i);
    if (!PyLong_CheckExact(item) || !read_integer(item, &size[i]) || size[i] < 0 ||
        size[i] > INT32_MAX)
      return 0;
    out[i] = (unsigned)size[i];
  }
  for (Py_ssize_t i = count; i < 3; i++)
    out[i] = 1;
  /* Triton multiplies in 32 bits: what overflows there is its own affair. */
  return size[0] * size[1] <= INT32_MAX && size[0] * size[1] * size[2] <= INT32_MAX;
}

/* A parameter's value in this launch; borrowed from the caller or the plan. */
PyObject *value_of(const Call *call, const Plan *plan, int index) {
  return call->values[index] != NULL ? call->values[index]
                                     : PyTuple_GET_ITEM(plan->supplied, index);
}

/* Triton's mapping: every parameter by name, in the order of the signature. */
static PyObject *evaluate_grid(Core *core, const Plan *plan, const Call *call, PyObject *grid) {
  PyObject *mapping = PyDict_Copy(core->template);
  for (int i = 0; mapping != NULL && i < core->param_count; i++)
    if (PyDict_SetItem(mapping, core->params[i].name, value_of(call, plan, i)) < 0)
      Py_CLEAR(mapping);
  if (mapping == NULL)
    return NULL;
  PyObject *result = PyObject_CallOneArg(grid, mapping);
  Py_DECREF(mapping);
  return result;
}

/* ---- the launch ---- */

/* Triton's own last steps, for whatever is odd: scratch memory, a hook that the grid function
 * has installed, a grid of other things than ints. */
static PyObject *finish(Core *core, Plan *plan, const Call *call, PyObject *grid, long stream) {
  if (recordings > 0 && end_recording("a launch took Triton's own launcher") < 0)
    return NULL;
  PyObject *result = NULL, *handle = PyLong_FromUnsignedLong((unsigned long)stream);
  PyObject *values = PyTuple_New(core->param_count);
  if (handle != NULL && values != NULL) {
    for (int i = 0; i < core->param_count; i++)
      PyTuple_SET_ITEM(values, i, Py_NewRef(value_of(call, plan, i)));
    result = PyObject_CallFunctionObjArgs(rt.finish, plan->compiled, grid, handle, values, NULL);
  }
  Py_XDECREF(handle);
  Py_XDECREF(values);
  return result;
}

/* 1: *config and params are what the driver gets, but for the scratch memory and the clusters of
 * the grid; 0: Triton's launcher has to. `converted`: room for values that are no argument's. */
int prepare_launch(const Plan *plan, Call *call, PyObject *grid, LaunchConfig *config,
                   uint64_t *converted, void **params) {
  config->block[0] = plan->threads;
  config->block[1] = config->block[2] = 1;
  config->shared_bytes = plan->shared_bytes;
  config->attributes = (LaunchAttribute *)plan->attributes;
  config->attribute_count = plan->attribute_count;
  return plan->direct && read_grid(grid, config->grid) &&
         fill_params(plan, call, converted, params);
}

/* 1: launched, or nothing to launch; 0: Triton's launcher has to; -1: exception. */
static int launch_directly(Core *core, Plan *plan, Call *call, PyObject *grid, long stream) {
  uint64_t converted[MAX_PARAMS], scratch = 0;
  void *params[MAX_PARAMS + 2];
  LaunchConfig config = {.stream = (void *)stream};
  if (!prepare_launch(plan, call, grid, &config, converted, params))
    return 0;
  profile_mark(GRID);
  if (config.grid[0] == 0 || config.grid[1] == 0 || config.grid[2] == 0)
    return recordings > 0 ? record_launch(core, plan, call, &config, params) : 1;
  params[plan->param_count] = &scratch;
  params[plan->param_count + 1] = &scratch;
  config.grid[0] *= plan->ctas;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = call_driver(plan, &config, params);
  Py_END_ALLOW_THREADS;
  if (status == 0)
    return recordings > 0 ? record_launch(core, plan, call, &config, params) : 1;
  raise_status(status);
  return -1;
}

/* The stream that launches on a device go to now. -1: exception. */
int read_current_stream(PyObject *source, PyObject *key, long device, void **stream) {
  long handle;
  if (source == NULL) {
    if (rt.read_stream(DL_CUDA, (int32_t)device, stream) == 0)
      return 0;
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_RuntimeError, "torch does not tell its current stream");
    return -1;
  }
  if (read_ordinal(source, key, device, &handle) < 0)
    return -1;
  *stream = (void *)(intptr_t)handle;
  return 0;
}

/* As Triton's run: whoever reads best_config finds the one that was launched. */
int announce(Core *core, Plan *plan) {
  if (core->autotuner == NULL || plan->config == NULL)
    return 0;
  PyObject *known = PyDict_GetItemWithError(core->autotuner_dict, names.best_config);
  if (known == plan->config)
    return 0;
  return PyErr_Occurred() ? -1 : PyObject_SetAttr(core->autotuner, names.best_config, plan->config);
}

static bool still_armed(const Core *core, const Plan *plan) {
  /* Where the plan is not kept, the core may be armed anew, on other premises. */
  return plan->key.kept && premises_hold(core->premises) == 1;
}

/* Evaluate a grid that is no tuple. *owned: a new reference to what it came to, or NULL.
 * 1: go on, 0: only Triton's launcher may, -1: exception. */
int settle_grid(Core *core, const Plan *plan, const Call *call, PyObject **grid,
                PyObject **owned) {
  if (is_declared_grid(*grid)) {
    *owned = declared_grid(core, plan, call, *grid);
    if (*owned == NULL && PyErr_Occurred())
      return -1;
    if (*owned != NULL)
      *grid = *owned;
  }
  if (PyTuple_CheckExact(*grid) || PyList_CheckExact(*grid) || !PyCallable_Check(*grid))
    return 1;
  *grid = *owned = evaluate_grid(core, plan, call, *grid);
  if (*owned == NULL)
    return -1;
  /* It may have installed a launch hook, which Triton would read now. */
  if (still_armed(core, plan))
    return 1;
  return PyErr_Occurred() ? -1 : 0;
}

static PyObject *launch_plan(Core *core, Plan *plan, Call *call, PyObject *grid) {
  void *handle;
  PyObject *evaluated = NULL, *odd = NULL;
  /* The stream first, then the grid, as Triton does. */
  if (read_current_stream(core->stream_source, core->stream_key, call->device, &handle) < 0)
    return NULL;
  long stream = (long)(intptr_t)handle;
  int launched = settle_grid(core, plan, call, &grid, &evaluated);
  if (launched == 1)
    launched = launch_directly(core, plan, call, grid, stream);
  if (launched == 0) {
    profile_mark(GRID);
    odd = finish(core, plan, call, grid, stream);
    launched = odd == NULL ? -1 : 1;
    Py_XDECREF(odd);
  }
  profile_mark(DRIVER);
  Py_XDECREF(evaluated);
  if (launched < 0 || announce(core, plan) < 0)
    return NULL;
  return Py_NewRef(plan->compiled);
}

/* 1: *plan is a new reference to the plan that holds, 0: miss, -1: exception. */
int core_find(Core *core, Call *call, Plan **plan) {
  *plan = NULL;
  int status = premises_hold(core->premises);
  if (status == 1)
    status = make_key(core, call, false);
  if (status != 1)
    return status;
  *plan = (Plan *)find_keyed(&core->plans, call->words, call->word_count);
  if (*plan == NULL)
    return 0;
  Py_INCREF(*plan);
  status = watches_hold((*plan)->watches);
  if (status == 1 && !(*plan)->key.kept) /* forgotten meanwhile, and with it the stream's source */
    status = 0;
  if (status != 1)
    Py_CLEAR(*plan);
  return status;
}

PyObject *core_launch(Core *core, const Derivation *derivation, PyObject *grid,
                      PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  Call call;
  Plan *plan = NULL;
  PyObject *result = NULL;
  Py_INCREF(core);
  int status = bind_call(core, &call, derivation, args, nargs, kwnames);
  if (status == 1)
    status = core_find(core, &call, &plan);
  if (status == 1 && !core->choose_only)
    profile_mark(FOUND);
  if (status == 0)
    result = Py_NewRef(rt.miss);
  else if (status == 1)
    result = core->choose_only ? Py_NewRef(plan->object) : launch_plan(core, plan, &call, grid);
  if (status == 1 && result != NULL && core->launch_count != NULL)
    ++*core->launch_count;
  Py_XDECREF(plan);
  Py_DECREF(core);
  return result;
}
