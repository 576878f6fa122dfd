/* What distinguishes two calls of an op: the words of its key.
 *
 * Exact where an ordinary launch has classes: every size, stride and number, since the op may
 * make anything of them. Of an address only whether a kernel may be compiled for it as aligned,
 * and which tensors share memory, which an op may refuse.
 */
#include "op.h"

#include <string.h>

#define MAX_DEPTH 4
#define MAX_DIMS 64
#define MAX_CONSTANTS 65536

/* Kinds of values beside those of core.h. */
enum { DEVICE = 32, TUPLE, LIST };

static const char TOO_LARGE[] = "too many arguments";

static bool room_for(OpCall *call, Py_ssize_t words) {
  if (call->word_count + words <= MAX_OP_WORDS)
    return true;
  call->reason = TOO_LARGE;
  return false;
}

/* ---- tensors ---- */

/* Bytes from the first element to behind the last one. */
static uint64_t extent(const DLTensor *tensor) {
  uint64_t last = 0;
  for (int i = 0; i < tensor->ndim; i++) {
    if (tensor->shape[i] == 0)
      return 0;
    last += (uint64_t)(tensor->shape[i] - 1) * (uint64_t)tensor->strides[i];
  }
  return (last + 1) * (((uint64_t)tensor->dtype_bits * tensor->dtype_lanes + 7) / 8);
}

static int tensor_words(OpCall *call, PyObject *value) {
  DLTensor seen;
  if (rt.read_tensor(value, &seen) != 0) {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
      return -1;
    PyErr_Clear();
    call->reason = "a tensor without memory of its own";
    return 0;
  }
  int dims = seen.ndim;
  if (call->tensor_count == MAX_TENSORS || dims > MAX_DIMS) {
    call->reason = TOO_LARGE;
    return 0;
  }
  if (!room_for(call, 2 + 2 * dims))
    return 0;
  uint64_t address = (uint64_t)(uintptr_t)seen.data + seen.byte_offset;
  uint64_t gradient = 0;
  if (call->gradients) {
    PyObject *required = op_state.requires_grad(value, op_state.requires_grad_closure);
    if (required == NULL)
      return -1;
    gradient = required == Py_True;
    Py_DECREF(required);
  }
  uint64_t *words = &call->words[call->word_count];
  words[0] = TENSOR | (uint64_t)((address & 15) == 0) << 8 | gradient << 9 |
             (uint64_t)dims << 10 | (uint64_t)seen.dtype_code << 56 |
             (uint64_t)seen.dtype_bits << 48 | (uint64_t)seen.dtype_lanes << 32;
  words[1] = (uint64_t)(uint32_t)seen.device_type << 32 | (uint32_t)seen.device_id;
  for (int i = 0; i < dims; i++) {
    words[2 + i] = (uint64_t)seen.shape[i];
    words[2 + dims + i] = (uint64_t)seen.strides[i];
  }
  call->word_count += 2 + 2 * dims;
  int index = call->tensor_count++;
  call->tensors[index] = value;
  call->addresses[index] = address;
  call->ends[index] = address + extent(&seen);
  return 1;
}

/* Which tensors are one object, overlap and by how much, and start at the same place. How far
 * apart two views of one buffer start decides whether their elements meet. */
static int overlap_words(OpCall *call) {
  int count = call->tensor_count;
  const uint64_t *starts = call->addresses, *ends = call->ends;
  for (int i = 1; i < count; i++)
    for (int j = 0; j < i; j++) {
      bool overlap = starts[i] < ends[j] && starts[j] < ends[i];
      bool same = starts[i] == starts[j] && starts[i] != 0;
      bool one = call->tensors[i] == call->tensors[j]; /* which one is returned, or asked for */
      if (!overlap && !same && !one)
        continue;
      if (!room_for(call, 2))
        return 0;
      call->words[call->word_count++] =
          (uint64_t)i << 32 | (uint64_t)j << 8 | one << 2 | same << 1 | overlap;
      if (overlap)
        call->words[call->word_count++] = starts[i] - starts[j];
    }
  return 1;
}

/* ---- everything else ---- */

static int constant_words(OpCore *core, OpCall *call, PyObject *value) {
  PyTypeObject *type = Py_TYPE(value);
  uint64_t code = type == &PyUnicode_Type      ? STR
                  : type == rt.torch_dtype     ? TORCH_DTYPE
                  : type == rt.triton_dtype    ? TRITON_DTYPE
                  : type == op_state.device    ? DEVICE
                                               : 0;
  if (code == 0) {
    call->reason = "an argument of a type that has no key";
    return 0;
  }
  PyObject *constants = Py_NewRef(core->constants);
  PyObject *number = PyDict_GetItemWithError(constants, value);
  if (number == NULL && !PyErr_Occurred() && PyDict_GET_SIZE(constants) < MAX_CONSTANTS) {
    PyObject *next = PyLong_FromSsize_t(PyDict_GET_SIZE(constants));
    number = next == NULL ? NULL : PyDict_SetDefault(constants, value, next);
    Py_XDECREF(next); /* the dictionary holds it */
  }
  int status = number != NULL ? 1 : PyErr_Occurred() ? -1 : 0;
  if (status == 1) {
    call->words[call->word_count++] = code;
    call->words[call->word_count++] = PyLong_AsUnsignedLongLong(number);
  } else {
    call->reason = "too many different texts";
  }
  Py_DECREF(constants);
  return status;
}

/* A list's items as a tuple, held until the call ends: other code may empty the list meanwhile. */
static PyObject *hold_items(OpCall *call, PyObject *list) {
  PyObject *items = PyList_AsTuple(list);
  if (items != NULL && call->held == NULL)
    call->held = PyList_New(0);
  if (items == NULL || call->held == NULL || PyList_Append(call->held, items) < 0)
    Py_CLEAR(items);
  Py_XDECREF(items); /* held */
  return items;
}

static int value_words(OpCore *core, OpCall *call, PyObject *value, int depth);

static int sequence_words(OpCore *core, OpCall *call, PyObject *value, int depth) {
  if (depth == MAX_DEPTH) {
    call->reason = "sequences within sequences";
    return 0;
  }
  PyObject *items = PyList_CheckExact(value) ? hold_items(call, value) : value;
  if (items == NULL)
    return -1;
  Py_ssize_t count = PyTuple_GET_SIZE(items);
  call->words[call->word_count++] = PyList_CheckExact(value) ? LIST : TUPLE;
  call->words[call->word_count++] = (uint64_t)count;
  int status = 1;
  for (Py_ssize_t i = 0; status == 1 && i < count; i++)
    status = value_words(core, call, PyTuple_GET_ITEM(items, i), depth + 1);
  return status;
}

/* 1: done, 0: no key, -1: exception. */
static int value_words(OpCore *core, OpCall *call, PyObject *value, int depth) {
  uint8_t code;
  uint64_t bits;
  if (is_tensor(value))
    return tensor_words(call, value);
  if (!room_for(call, 2))
    return 0;
  if (scalar_bits(value, &code, &bits)) {
    call->words[call->word_count++] = code;
    if (code != NONE)
      call->words[call->word_count++] = bits;
    return 1;
  }
  if (PyTuple_CheckExact(value) || PyList_CheckExact(value))
    return sequence_words(core, call, value, depth);
  return constant_words(core, call, value);
}

/* 1: the key is made, 0: there is none, call->reason says why; -1: exception. */
int make_op_key(OpCore *core, OpCall *call) {
  if (read_ordinal(core->device_source, core->device_key, -1, &call->device) < 0)
    return -1;
  PyObject *recorded = op_state.records_gradients.call(op_state.records_gradients.self, NULL);
  if (recorded == NULL)
    return -1;
  call->gradients = recorded == Py_True;
  Py_DECREF(recorded);
  call->tensor_count = 0;
  call->word_count = 1;
  call->words[0] = core->generation << 32 | (uint32_t)call->device;
  for (int i = 0; i < core->param_count; i++) {
    int status = value_words(core, call, call->values[i], 0);
    if (status != 1)
      return status;
  }
  return overlap_words(call);
}
