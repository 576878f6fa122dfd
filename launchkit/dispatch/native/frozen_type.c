/* Frozen handles as Python sees them: laid out once, armed when the premises are known. */
#include "frozen.h"

#include <string.h>
#include <structmember.h>

/* ---- laying it out, once ---- */

static bool take_tensor(const Frozen *frozen, PyObject *tensor, TensorFacts *facts, int *status) {
  *status = describe(tensor, facts);
  return *status == 1 && on_device(frozen, facts);
}

/* 1: done, 0: a value that only Triton's launcher takes, -1: exception. */
static int take_varying(Frozen *frozen, PyObject *spec) {
  Varying *varying = &frozen->varying[frozen->varying_count];
  PyObject *name, *example;
  int specialized, alignment_counts, status;
  uint64_t bits;
  TensorFacts facts;
  if (!PARSE_ITEM(spec, "UOpp", &name, &example, &specialized, &alignment_counts))
    return -1;
  varying->slot = -1;
  varying->specialized = specialized;
  varying->alignment_counts = alignment_counts;
  if (is_tensor(example)) {
    if (!take_tensor(frozen, example, &facts, &status))
      return status < 0 ? -1 : 0;
    varying->code = TENSOR;
    varying->class = facts.dtype;
    varying->aligned = (facts.address & 15) == 0;
  } else {
    if (!scalar_bits(example, &varying->code, &bits))
      return 0;
    varying->class = number_class(varying->code, bits, specialized);
  }
  varying->name = Py_NewRef(name);
  PyUnicode_InternInPlace(&varying->name);
  frozen->varying_count++;
  return 1;
}

/* The 128 bytes of a tensor map in Triton's object of one: its last member, in every version that
 * the core is proven with. NULL: another object. */
static void *tensor_map(PyObject *object) {
  enum { MAP_BYTES = 128 };
  const char *name = strrchr(Py_TYPE(object)->tp_name, '.');
  Py_ssize_t size = Py_TYPE(object)->tp_basicsize;
  if (name == NULL || strcmp(name, ".PyCUtensorMap") != 0 ||
      (size != MAP_BYTES + 64 && size != 2 * MAP_BYTES))
    return NULL;
  return (char *)object + size - MAP_BYTES;
}

static int take_param(Frozen *frozen, int slot, PyObject *spec) {
  const char *type;
  PyObject *value;
  int place, status;
  uint8_t code = TENSOR;
  uint64_t bits;
  TensorFacts facts;
  if (!PARSE_ITEM(spec, "sOi", &type, &value, &place))
    return -1;
  if (strcmp(type, "nvTmaDesc") == 0) {
    frozen->params[slot] = tensor_map(value);
    return frozen->params[slot] != NULL;
  }
  int kind = kind_of(type);
  if (kind == 0 || place >= frozen->varying_count)
    return 0;
  frozen->params[slot] = &frozen->values[slot];
  if (place >= 0) {
    frozen->varying[place].slot = slot;
    frozen->varying[place].kind = (uint16_t)kind;
    return 1;
  }
  if (is_tensor(value)) {
    if (!take_tensor(frozen, value, &facts, &status))
      return status < 0 ? -1 : 0;
    bits = facts.address;
  } else if (!scalar_bits(value, &code, &bits)) {
    return 0;
  }
  return convert_value(kind, code, bits, &frozen->values[slot]);
}

static int take_params(Frozen *frozen, PyObject *params) {
  Py_ssize_t count = PyTuple_GET_SIZE(params);
  if (count > MAX_PARAMS)
    return 0;
  frozen->params = PyMem_Calloc(count + 1, sizeof *frozen->params);
  frozen->values = PyMem_Calloc(count + 1, sizeof *frozen->values);
  if (frozen->params == NULL || frozen->values == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  frozen->plan.param_count = (int)count;
  frozen->held = Py_NewRef(params);
  int done = 1;
  for (int i = 0; done == 1 && i < count; i++)
    done = take_param(frozen, i, PyTuple_GET_ITEM(params, i));
  return done;
}

static PyObject *frozen_lay_out(PyObject *self, PyObject *args) {
  Frozen *frozen = (Frozen *)self;
  unsigned long long function;
  unsigned threads, shared_bytes, ctas;
  int device_type, index_counts;
  long device;
  PyObject *compiled, *attributes, *params, *varying, *mapping, *heuristics;
  if (!PyArg_ParseTuple(args, "O(KIIIO!O!)O!O!O(ipl):_lay_out", &compiled, &function, &threads,
                        &shared_bytes, &ctas, &PyTuple_Type, &attributes, &PyTuple_Type, &params,
                        &PyTuple_Type, &varying, &PyDict_Type, &mapping, &heuristics,
                        &device_type, &index_counts, &device))
    return NULL;
  if (frozen->plan.function != NULL ||
      PyTuple_GET_SIZE(varying) > MAX_VARYING)
    Py_RETURN_FALSE;
  find_driver();
  frozen->plan.function = (void *)(uintptr_t)function;
  frozen->plan.threads = threads;
  frozen->plan.shared_bytes = shared_bytes;
  frozen->plan.ctas = ctas;
  frozen->device_type = device_type;
  frozen->device_index_counts = index_counts;
  frozen->device = device;
  frozen->mapping = Py_NewRef(mapping);
  frozen->heuristics = heuristics == Py_None ? NULL : Py_NewRef(heuristics);
  int done = lay_out_attributes(&frozen->plan, attributes) < 0 ? -1 : 1;
  for (Py_ssize_t i = 0; done == 1 && i < PyTuple_GET_SIZE(varying); i++)
    done = take_varying(frozen, PyTuple_GET_ITEM(varying, i));
  if (done == 1)
    done = take_params(frozen, params);
  if (done < 0)
    return NULL;
  if (done == 1 && has_driver())
    frozen->compiled = Py_NewRef(compiled);
  return PyBool_FromLong(frozen->compiled != NULL);
}

/* The parameters that vary, by place: what a program reads. */
static PyObject *places_of(const Frozen *frozen) {
  PyObject *index = PyDict_New();
  for (int i = 0; index != NULL && i < frozen->varying_count; i++) {
    PyObject *place = PyLong_FromLong(i);
    if (place == NULL || PyDict_SetItem(index, frozen->varying[i].name, place) < 0)
      Py_CLEAR(index);
    Py_XDECREF(place);
  }
  return index;
}

static PyObject *frozen_set_grid(PyObject *self, PyObject *grid) {
  Frozen *frozen = (Frozen *)self;
  if (frozen->compiled == NULL || frozen->fixed || frozen->grid != NULL)
    Py_RETURN_FALSE;
  if (read_grid(grid, frozen->size)) {
    frozen->fixed = true;
    Py_RETURN_TRUE;
  }
  if (!PyCallable_Check(grid))
    Py_RETURN_FALSE;
  if (is_declared_grid(grid)) {
    PyObject *index = places_of(frozen);
    int done = index == NULL ? -1 : compile_grid(grid, index, &frozen->program);
    Py_XDECREF(index);
    if (done < 0)
      return NULL;
  }
  frozen->grid = Py_NewRef(grid);
  Py_RETURN_TRUE;
}

/* ---- arming ---- */

static void disarm(Frozen *frozen) {
  PyObject *old[5] = {(PyObject *)frozen->premises};
  memcpy(old + 1, frozen->sources, sizeof frozen->sources);
  frozen->premises = NULL;
  memset(frozen->sources, 0, sizeof frozen->sources);
  for (int i = 0; i < 5; i++)
    Py_XDECREF(old[i]);
}

static PyObject *frozen_arm(PyObject *self, PyObject *args) {
  Frozen *frozen = (Frozen *)self;
  PyObject *premises, *device, *stream, *sources[4];
  if (!PyArg_ParseTuple(args, "O!OO:_arm", &WatchSet_Type, &premises, &device, &stream))
    return NULL;
  bool ready = frozen->compiled != NULL && (frozen->fixed || frozen->grid != NULL);
  if (!ready)
    Py_RETURN_FALSE;
  if (take_sources(device, stream, sources) < 0) {
    if (!PyErr_ExceptionMatches(PyExc_ValueError))
      return NULL;
    PyErr_Clear();
    Py_RETURN_FALSE;
  }
  do
    disarm(frozen);
  while (frozen->premises != NULL); /* a finalizer may have armed it meanwhile */
  memcpy(frozen->sources, sources, sizeof sources);
  frozen->premises = (WatchSet *)Py_NewRef(premises);
  Py_RETURN_TRUE;
}

static PyObject *frozen_disarm(PyObject *self, PyObject *Py_UNUSED(ignored)) {
  disarm((Frozen *)self);
  Py_RETURN_NONE;
}

static PyObject *frozen_holds(PyObject *self, PyObject *Py_UNUSED(ignored)) {
  int holds = premises_hold(((Frozen *)self)->premises);
  return holds < 0 ? NULL : PyBool_FromLong(holds);
}

/* Count launches in a buffer of Python's whose first number of 64 bits is the count. */
static PyObject *frozen_count_into(PyObject *self, PyObject *buffer) {
  Frozen *frozen = (Frozen *)self;
  Py_buffer fresh;
  if (PyObject_GetBuffer(buffer, &fresh, PyBUF_WRITABLE) < 0)
    return NULL;
  if (fresh.len < (Py_ssize_t)sizeof(uint64_t) || (uintptr_t)fresh.buf % 8 != 0) {
    PyBuffer_Release(&fresh);
    PyErr_SetString(PyExc_ValueError, "launches are counted in a number of 64 bits");
    return NULL;
  }
  Py_buffer old = frozen->count_buffer;
  bool counted = frozen->launch_count != NULL;
  frozen->count_buffer = fresh;
  frozen->launch_count = fresh.buf;
  if (counted)
    PyBuffer_Release(&old);
  Py_RETURN_NONE;
}

/* ---- the type ---- */

static PyObject *frozen_new(PyTypeObject *type, PyObject *Py_UNUSED(args),
                            PyObject *Py_UNUSED(kwargs)) {
  Frozen *frozen = (Frozen *)type->tp_alloc(type, 0);
  if (frozen != NULL)
    frozen->vectorcall = frozen_vectorcall;
  return (PyObject *)frozen;
}

static int frozen_traverse(Frozen *frozen, visitproc visit, void *arg) {
  Py_VISIT(frozen->through);
  Py_VISIT(frozen->compiled);
  Py_VISIT(frozen->grid);
  Py_VISIT(frozen->mapping);
  Py_VISIT(frozen->heuristics);
  Py_VISIT(frozen->premises);
  Py_VISIT(frozen->held);
  for (int i = 0; i < 4; i++)
    Py_VISIT(frozen->sources[i]);
  return 0;
}

/* The compiled kernel stays: a call relies on it, and it leads nowhere back. */
static int frozen_clear(Frozen *frozen) {
  disarm(frozen);
  Py_CLEAR(frozen->through);
  Py_CLEAR(frozen->grid);
  Py_CLEAR(frozen->mapping);
  Py_CLEAR(frozen->heuristics);
  Py_CLEAR(frozen->held);
  return 0;
}

static void frozen_dealloc(Frozen *frozen) {
  PyObject_GC_UnTrack(frozen);
  frozen_clear(frozen);
  Py_XDECREF(frozen->compiled);
  for (int i = 0; i < frozen->varying_count; i++)
    Py_DECREF(frozen->varying[i].name);
  if (frozen->launch_count != NULL)
    PyBuffer_Release(&frozen->count_buffer);
  PyMem_Free(frozen->params);
  PyMem_Free(frozen->values);
  PyMem_Free(frozen->program);
  Py_TYPE(frozen)->tp_free((PyObject *)frozen);
}

static PyMemberDef frozen_members[] = {
    {"_through", T_OBJECT, offsetof(Frozen, through), 0, "Called instead, or None."},
    {NULL},
};

static PyMethodDef frozen_methods[] = {
    {"_direct", (PyCFunction)(void (*)(void))frozen_direct, METH_FASTCALL | METH_KEYWORDS,
     "_direct(ignored, ...): call without what a launch slot put in front."},
    {"_preview", (PyCFunction)(void (*)(void))frozen_preview, METH_FASTCALL | METH_KEYWORDS,
     "_preview(...): (function, grid, threads, shared bytes, words) that a call would pass, or None."},
    {"_lay_out", frozen_lay_out, METH_VARARGS,
     "_lay_out(compiled, layout, varying, mapping, heuristics, device): fix the launch; returns "
     "whether it can be made here."},
    {"_set_grid", frozen_set_grid, METH_O, "_set_grid(grid): returns whether it can be evaluated."},
    {"_arm", frozen_arm, METH_VARARGS, "_arm(premises, device source, stream source)."},
    {"_disarm", frozen_disarm, METH_NOARGS, "_disarm(): let Python make each launch."},
    {"_holds", frozen_holds, METH_NOARGS, "Tell whether it is armed and its premises hold."},
    {"count_into", frozen_count_into, METH_O, "count_into(buffer): add each launch to it."},
    {NULL},
};

PyTypeObject Frozen_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.Frozen",
    .tp_basicsize = sizeof(Frozen),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_BASETYPE,
    .tp_doc = "Base of a frozen handle: launches when called, or calls _call.",
    .tp_new = frozen_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Frozen, vectorcall),
    .tp_traverse = (traverseproc)frozen_traverse,
    .tp_clear = (inquiry)frozen_clear,
    .tp_dealloc = (destructor)frozen_dealloc,
    .tp_members = frozen_members,
    .tp_methods = frozen_methods,
};
