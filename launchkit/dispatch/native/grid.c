/* Declared grids: launchkit.grid(...) as a program over a kernel's parameters.
 *
 * A grid is compiled the first time that a core meets it. Exact in 64 bits with a sign: what
 * overflows there, divides by zero or reads something else than an int is left to Python, which
 * computes it in any size or raises.
 */
#include "core.h"

#include <string.h>

enum { MAX_STEPS = 96, MAX_DEPTH = 16 };

typedef enum { CONSTANT, PARAMETER, ADD, SUBTRACT, MULTIPLY, DIVIDE, CEIL_DIVIDE, LESSER, GREATER } Op;

typedef struct {
  int64_t constant;
  int16_t slot;
  uint8_t op;
} GridStep;

struct GridProgram {
  int dims, ends[3]; /* where the steps of each dimension end */
  GridStep steps[MAX_STEPS];
};

static PyTypeObject *grid_type;

bool is_declared_grid(PyObject *object) { return Py_TYPE(object) == grid_type; }

/* ---- evaluation ---- */

static bool divide(int64_t left, int64_t right, int64_t *result) {
  if (right == 0 || (left == INT64_MIN && right == -1))
    return false;
  int64_t quotient = left / right;
  *result = quotient - (left % right != 0 && (left < 0) != (right < 0));
  return true;
}

static bool apply(Op op, int64_t left, int64_t right, int64_t *result) {
  int64_t sum;
  switch (op) {
  case ADD:
    return !__builtin_add_overflow(left, right, result);
  case SUBTRACT:
    return !__builtin_sub_overflow(left, right, result);
  case MULTIPLY:
    return !__builtin_mul_overflow(left, right, result);
  case DIVIDE:
    return divide(left, right, result);
  case CEIL_DIVIDE:
    return !__builtin_sub_overflow(right, 1, &sum) && !__builtin_add_overflow(left, sum, &sum) &&
           divide(sum, right, result);
  case LESSER:
    *result = left < right ? left : right;
    return true;
  case GREATER:
    *result = left > right ? left : right;
    return true;
  default:
    return false;
  }
}

bool run_grid(const GridProgram *program, GridReader read, const void *context, int64_t *size) {
  int64_t stack[MAX_DEPTH];
  int next = 0;
  for (int dim = 0; dim < program->dims; dim++) {
    int depth = 0;
    for (; next < program->ends[dim]; next++) {
      const GridStep *step = &program->steps[next];
      if (step->op == CONSTANT) {
        stack[depth++] = step->constant;
      } else if (step->op == PARAMETER) {
        if (!read(context, step->slot, &stack[depth++]))
          return false;
      } else {
        depth--;
        if (!apply(step->op, stack[depth - 1], stack[depth], &stack[depth - 1]))
          return false;
      }
    }
    size[dim] = stack[0];
  }
  return true;
}

int grid_dims(const GridProgram *program) { return program->dims; }

/* ---- compilation ---- */

static int op_of(PyObject *kind) {
  static const char *const kinds[] = {"int", "name", "+", "-", "*", "//", "cdiv", "at_most",
                                      "at_least"};
  for (int op = 0; op < (int)(sizeof kinds / sizeof *kinds); op++)
    if (PyUnicode_CompareWithASCIIString(kind, kinds[op]) == 0)
      return op;
  return -1;
}

/* 1: done, 0: only Python can, -1: exception. */
static int compile_step(PyObject *spec, PyObject *index, GridStep *step, int *depth) {
  PyObject *kind, *operand;
  if (!PARSE_ITEM(spec, "UO", &kind, &operand))
    return -1;
  int op = op_of(kind);
  step->op = (uint8_t)op;
  if (op == CONSTANT && (!PyLong_CheckExact(operand) || !read_integer(operand, &step->constant)))
    return 0;
  if (op == PARAMETER) {
    PyObject *slot = PyDict_GetItemWithError(index, operand);
    if (slot == NULL)
      return PyErr_Occurred() ? -1 : 0;
    step->slot = (int16_t)PyLong_AsLong(slot);
  }
  *depth += op == CONSTANT || op == PARAMETER ? 1 : -1;
  return op >= 0 && *depth >= 1 && *depth <= MAX_DEPTH;
}

static int compile_dim(PyObject *term, PyObject *index, GridProgram *program, int *count) {
  PyObject *steps = PyObject_GetAttrString(term, "steps");
  int depth = 0, done = steps == NULL ? -1 : PyTuple_CheckExact(steps);
  for (Py_ssize_t i = 0; done == 1 && i < PyTuple_GET_SIZE(steps); i++)
    done = *count == MAX_STEPS ? 0
                               : compile_step(PyTuple_GET_ITEM(steps, i), index,
                                              &program->steps[(*count)++], &depth);
  Py_XDECREF(steps);
  return done == 1 ? depth == 1 : done;
}

int compile_grid(PyObject *grid, PyObject *index, GridProgram **result) {
  PyObject *dims = PyObject_GetAttrString(grid, "dims");
  GridProgram *program = PyMem_Calloc(1, sizeof *program);
  int count = 0, done = 1;
  *result = NULL;
  if (dims == NULL || program == NULL) {
    if (program == NULL && dims != NULL)
      PyErr_NoMemory();
    done = -1;
  } else if (!PyTuple_CheckExact(dims) || PyTuple_GET_SIZE(dims) < 1 || PyTuple_GET_SIZE(dims) > 3) {
    done = 0;
  }
  for (Py_ssize_t i = 0; done == 1 && i < PyTuple_GET_SIZE(dims); i++) {
    done = compile_dim(PyTuple_GET_ITEM(dims, i), index, program, &count);
    program->ends[program->dims++] = count;
  }
  Py_XDECREF(dims);
  if (done != 1) {
    PyMem_Free(program);
    return done;
  }
  *result = program;
  return 1;
}

PyObject *grid_tuple(const int64_t *size, int dims) {
  PyObject *tuple = PyTuple_New(dims);
  for (int i = 0; tuple != NULL && i < dims; i++) {
    PyObject *number = PyLong_FromLongLong(size[i]);
    if (number == NULL)
      Py_CLEAR(tuple);
    else
      PyTuple_SET_ITEM(tuple, i, number);
  }
  return tuple;
}

/* ---- the grids that a core has met ---- */

/* *program is NULL for one that only Python evaluates. *replaced is to be released once the
 * program has run: a finalizer may launch, and take its place. -1: exception. */
static int program_of(Core *core, PyObject *grid, const GridProgram **program,
                      PyObject **replaced) {
  for (int i = 0; i < MAX_GRIDS; i++)
    if (core->grids.items[i].grid == grid) {
      *program = core->grids.items[i].program;
      return 0;
    }
  GridProgram *made;
  if (compile_grid(grid, core->shapes.index, &made) < 0)
    return -1;
  KnownGrid *place = &core->grids.items[core->grids.next];
  core->grids.next = (core->grids.next + 1) % MAX_GRIDS;
  PyMem_Free(place->program);
  *replaced = place->grid;
  place->grid = Py_NewRef(grid); /* held, so that its address is not used for another one */
  place->program = made;
  *program = made;
  return 0;
}

void drop_grids(Core *core) {
  for (int i = 0; i < MAX_GRIDS; i++) {
    PyMem_Free(core->grids.items[i].program);
    core->grids.items[i].program = NULL;
    Py_CLEAR(core->grids.items[i].grid);
  }
}

typedef struct {
  const Call *call;
  const Plan *plan;
} Arguments;

static bool read_argument(const void *context, int slot, int64_t *value) {
  const Arguments *arguments = context;
  const Call *call = arguments->call;
  if (call->values[slot] != NULL) {
    *value = (int64_t)call->bits[slot];
    return call->codes[slot] == INT;
  }
  PyObject *supplied = PyTuple_GET_ITEM(arguments->plan->supplied, slot);
  return PyLong_CheckExact(supplied) && read_integer(supplied, value);
}

/* The dimensions as a new tuple. NULL with an exception, or without one: Python has to. */
PyObject *declared_grid(Core *core, const Plan *plan, const Call *call, PyObject *grid) {
  const GridProgram *program;
  Arguments arguments = {call, plan};
  PyObject *replaced = NULL;
  int64_t size[3];
  if (program_of(core, grid, &program, &replaced) < 0)
    return NULL;
  bool done = program != NULL && run_grid(program, read_argument, &arguments, size);
  int dims = done ? program->dims : 0;
  Py_XDECREF(replaced);
  return done ? grid_tuple(size, dims) : NULL;
}

/* configure_grids(type): what launchkit.grid makes. */
PyObject *configure_grids(PyObject *Py_UNUSED(module), PyObject *type) {
  if (!PyType_Check(type))
    return PyErr_Format(PyExc_TypeError, "not a type: %R", type);
  Py_INCREF(type); /* never released: launches may be under way */
  grid_type = (PyTypeObject *)type;
  Py_RETURN_NONE;
}
