/* Frozen handles: a launch whose arguments are laid out once, but for those that vary.
 *
 * A call compares the varying arguments with what the kernel was compiled for, asks the premises,
 * evaluates the grid if it depends on them, and launches. Nothing else is bound, compared or
 * looked up. Whatever does not fit goes to Python's _call with the same arguments, which raises
 * what is wrong with them or launches through Triton; frozen.py drives all of this.
 */
#include "frozen.h"

#include <string.h>

/* ---- the varying arguments of one call ---- */

typedef struct {
  PyObject *values[MAX_VARYING]; /* borrowed from the caller */
  uint64_t bits[MAX_VARYING];    /* as in Call */
  uint64_t words[MAX_VARYING];   /* as the kernel takes them */
} Given;

static bool same_name(PyObject *name, PyObject *given) {
  return name == given || (PyUnicode_CheckExact(given) && PyUnicode_Compare(name, given) == 0);
}

/* Each varying argument once, by position or by name. */
static bool bind_given(const Frozen *frozen, Given *given, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames) {
  Py_ssize_t named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
  if (nargs + named != frozen->varying_count)
    return false;
  memcpy(given->values, args, nargs * sizeof *args);
  memset(given->values + nargs, 0, named * sizeof *args);
  for (Py_ssize_t i = 0; i < named; i++) {
    int place = (int)nargs;
    while (place < frozen->varying_count &&
           !same_name(frozen->varying[place].name, PyTuple_GET_ITEM(kwnames, i)))
      place++;
    if (place == frozen->varying_count || given->values[place] != NULL)
      return false;
    given->values[place] = args[nargs + i];
  }
  return true;
}

/* 1: read, 0: not readable, -1: exception. */
int describe(PyObject *tensor, TensorFacts *facts) {
  if (rt.tensor_offset != 0)
    return read_directly(tensor, facts, true);
  return rt.read_tensor != NULL ? read_exchanged(tensor, facts) : 0;
}

bool on_device(const Frozen *frozen, const TensorFacts *facts) {
  return facts->device_type == frozen->device_type &&
         (!frozen->device_index_counts || facts->device_index == frozen->device);
}

/* 1: of the class that was frozen, 0: not, -1: exception. */
static int tensor_fits(const Frozen *frozen, const Varying *varying, PyObject *value,
                       uint64_t *bits) {
  TensorFacts facts;
  if (!is_tensor(value))
    return 0;
  int read = describe(value, &facts);
  if (read != 1)
    return read;
  *bits = facts.address;
  return facts.dtype == varying->class && on_device(frozen, &facts) &&
         (!varying->alignment_counts || ((*bits & 15) == 0) == varying->aligned);
}

uint64_t number_class(uint8_t code, uint64_t bits, bool specialized) {
  if (code == INT)
    return integer_class((int64_t)bits, specialized);
  return code == LARGE && specialized && (bits & 15) == 0;
}

static int value_fits(const Frozen *frozen, const Varying *varying, PyObject *value,
                      uint64_t *bits) {
  uint8_t code;
  if (varying->code == TENSOR)
    return tensor_fits(frozen, varying, value, bits);
  return scalar_bits(value, &code, bits) && code == varying->code &&
         number_class(code, *bits, varying->specialized) == varying->class;
}

static int check_given(const Frozen *frozen, Given *given) {
  for (int i = 0; i < frozen->varying_count; i++) {
    const Varying *varying = &frozen->varying[i];
    int fits = value_fits(frozen, varying, given->values[i], &given->bits[i]);
    if (fits != 1)
      return fits;
    if (varying->slot >= 0 &&
        !convert_value(varying->kind, varying->code, given->bits[i], &given->words[i]))
      return 0;
  }
  return 1;
}

/* ---- the grid ---- */

typedef struct {
  const Frozen *frozen;
  const Given *given;
} GivenSource;

static bool read_given(const void *context, int slot, int64_t *value) {
  const GivenSource *source = context;
  *value = (int64_t)source->given->bits[slot];
  return source->frozen->varying[slot].code == INT;
}

static PyObject *full_mapping(const Frozen *frozen, const Given *given) {
  PyObject *mapping = PyDict_Copy(frozen->mapping);
  for (int i = 0; mapping != NULL && i < frozen->varying_count; i++)
    if (PyDict_SetItem(mapping, frozen->varying[i].name, given->values[i]) < 0)
      Py_CLEAR(mapping);
  return mapping;
}

/* 1: as they were frozen, 0: not, -1: exception. */
static int heuristics_hold(Frozen *frozen, const Given *given) {
  if (frozen->heuristics == NULL)
    return 1;
  PyObject *mapping = full_mapping(frozen, given);
  PyObject *same = mapping == NULL ? NULL : PyObject_CallOneArg(frozen->heuristics, mapping);
  Py_XDECREF(mapping);
  int hold = same == NULL ? -1 : PyObject_IsTrue(same);
  Py_XDECREF(same);
  return hold;
}

/* The grid of this call, where it is not fixed; a new reference. */
static PyObject *evaluate(Frozen *frozen, const Given *given) {
  int64_t size[3];
  GivenSource source = {frozen, given};
  if (frozen->program != NULL && run_grid(frozen->program, read_given, &source, size))
    return grid_tuple(size, grid_dims(frozen->program));
  PyObject *mapping = full_mapping(frozen, given);
  PyObject *grid = mapping == NULL ? NULL : PyObject_CallOneArg(frozen->grid, mapping);
  Py_XDECREF(mapping);
  return grid;
}

/* ---- the call ---- */

static void place_params(const Frozen *frozen, const Given *given, void **params) {
  /* Copied: another thread may call the same handle while the driver reads. */
  memcpy(params, frozen->params, frozen->plan.param_count * sizeof *params);
  for (int i = 0; i < frozen->varying_count; i++)
    if (frozen->varying[i].slot >= 0)
      params[frozen->varying[i].slot] = (void *)&given->words[i];
}

static int call_kernel(Frozen *frozen, const Given *given, const unsigned *size, void *stream) {
  uint64_t scratch = 0;
  void *params[MAX_PARAMS + 2];
  const Plan *plan = &frozen->plan;
  LaunchConfig config = {.grid = {size[0] * plan->ctas, size[1], size[2]},
                         .block = {plan->threads, 1, 1},
                         .shared_bytes = plan->shared_bytes,
                         .stream = stream,
                         .attributes = frozen->plan.attributes,
                         .attribute_count = plan->attribute_count};
  place_params(frozen, given, params);
  params[plan->param_count] = params[plan->param_count + 1] = &scratch;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = call_driver(plan, &config, params);
  Py_END_ALLOW_THREADS;
  if (status == 0)
    return 1;
  raise_status(status);
  return -1;
}

/* Words of 8 bytes, and of a tensor map all of it; Python knows how many of them count. */
static PyObject *words_of(const Frozen *frozen, const Given *given) {
  enum { MAP_BYTES = 128 };
  void *params[MAX_PARAMS];
  int count = frozen->plan.param_count;
  place_params(frozen, given, params);
  PyObject *result = PyTuple_New(count);
  for (int i = 0; result != NULL && i < count; i++) {
    bool map = frozen->params[i] != &frozen->values[i];
    PyObject *bytes = PyBytes_FromStringAndSize(params[i], map ? MAP_BYTES : sizeof(uint64_t));
    if (bytes == NULL)
      Py_CLEAR(result);
    else
      PyTuple_SET_ITEM(result, i, bytes);
  }
  return result;
}

/* What a call would give the driver, as a core's preview; None for one that Python has to make. */
PyObject *frozen_preview(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames) {
  Frozen *frozen = (Frozen *)self;
  Given given;
  unsigned size[3];
  if (frozen->compiled == NULL || !(frozen->fixed || frozen->grid != NULL) ||
      !bind_given(frozen, &given, args, nargs, kwnames))
    Py_RETURN_NONE;
  int fits = check_given(frozen, &given);
  memcpy(size, frozen->size, sizeof size);
  if (fits == 1 && !frozen->fixed) {
    PyObject *grid = evaluate(frozen, &given);
    fits = grid == NULL ? -1 : read_grid(grid, size);
    Py_XDECREF(grid);
  }
  if (fits != 1)
    return fits < 0 ? NULL : Py_NewRef(Py_None);
  const Plan *plan = &frozen->plan;
  PyObject *words = words_of(frozen, &given);
  if (words == NULL)
    return NULL;
  return Py_BuildValue("(K(III)IIN)", (unsigned long long)(uintptr_t)plan->function,
                       size[0] * plan->ctas, size[1], size[2], plan->threads, plan->shared_bytes,
                       words);
}

/* 1: launched, or nothing to launch; 0: only Python can; -1: exception.  *grid: what a Python
 * function came to, which must not be called twice. */
static int launch_frozen(Frozen *frozen, Given *given, PyObject **grid) {
  long device;
  void *stream;
  unsigned size[3];
  memcpy(size, frozen->size, sizeof size);
  int holds = premises_hold(frozen->premises);
  if (holds != 1 || frozen->premises == NULL) /* it may run Python code, which may disarm */
    return holds < 0 ? -1 : 0;
  if (read_ordinal(frozen->sources[0], frozen->sources[1], -1, &device) < 0)
    return -1;
  if (device != frozen->device || frozen->premises == NULL)
    return 0;
  int fits = check_given(frozen, given);
  if (fits == 1 && frozen->heuristics != NULL)
    fits = heuristics_hold(frozen, given);
  if (fits != 1)
    return fits;
  if (frozen->premises == NULL)
    return 0;
  profile_mark(FOUND);
  PyObject *source = Py_XNewRef(frozen->sources[2]), *key = Py_XNewRef(frozen->sources[3]);
  int read = read_current_stream(source, key, device, &stream);
  Py_XDECREF(source);
  Py_XDECREF(key);
  if (read < 0)
    return -1;
  if (!frozen->fixed) {
    *grid = evaluate(frozen, given);
    if (*grid == NULL)
      return -1;
    if (!read_grid(*grid, size))
      return 0;
    holds = premises_hold(frozen->premises); /* it may have installed a launch hook */
    if (holds != 1)
      return holds;
  }
  profile_mark(GRID);
  int launched = 1;
  if (size[0] != 0 && size[1] != 0 && size[2] != 0)
    launched = call_kernel(frozen, given, size, stream);
  profile_mark(DRIVER);
  return launched;
}

static PyObject *call_python(PyObject *self, PyObject *grid, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames) {
  PyObject *method = PyObject_GetAttrString(self, "_call");
  if (method == NULL)
    return NULL;
  PyObject *result = call_with_grid(method, grid != NULL ? grid : Py_None, args, nargs, kwnames);
  Py_DECREF(method);
  return result;
}

/* Launch in C, or let Python do it. */
static PyObject *launch_given(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *kwnames) {
  Frozen *frozen = (Frozen *)self;
  Given given;
  PyObject *grid = NULL, *result = NULL;
  int launched = 0;
  if (frozen->premises != NULL && bind_given(frozen, &given, args, nargs, kwnames))
    launched = launch_frozen(frozen, &given, &grid);
  if (launched == 1) {
    if (frozen->launch_count != NULL)
      ++*frozen->launch_count;
    result = Py_NewRef(frozen->compiled);
  } else if (launched == 0) {
    if (profiling)
      profile_slow();
    result = call_python(self, grid, args, nargs, kwnames);
  }
  Py_XDECREF(grid);
  return result;
}

/* The same, timed for profile_launches(). */
static PyObject *launch_recorded(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames) {
  int token = profile_begin(self, &((Frozen *)self)->subject);
  if (token == BEGIN_FAILED)
    return NULL;
  PyObject *result = launch_given(self, args, nargs, kwnames);
  if (token >= 0)
    profile_end(token, result == NULL ? RAISED : RETURNED_FROM_CORE);
  return result;
}

PyObject *frozen_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                                   PyObject *kwnames) {
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (recordings > 0 && end_recording("a frozen handle was called") < 0)
    return NULL;
  PyObject *through = ((Frozen *)self)->through;
  if (through == NULL || through == Py_None)
    return (profiling && !profile_skips() ? launch_recorded : launch_given)(self, args, nargs,
                                                                            kwnames);
  Py_INCREF(through);
  PyObject *result = call_with_grid(through, Py_None, args, nargs, kwnames);
  Py_DECREF(through);
  return result;
}

PyObject *frozen_direct(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames) {
  if (nargs < 1) {
    PyErr_SetString(PyExc_TypeError, "a launch slot passes a grid in front of the arguments");
    return NULL;
  }
  return launch_given(self, args + 1, nargs - 1, kwnames);
}
