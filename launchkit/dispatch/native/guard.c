/* What distinguishes two launches of one kernel: the words of the guard's key.
 *
 * At least as fine as Triton's specialization: per tensor dtype and 16-byte alignment, per
 * integer its class (range, equal to 1, divisible by 16), per constexpr and autotune key its
 * value, and the exact Python type of all. guard.py holds the same rules for the Python twin.
 */
#include "core.h"

#include <string.h>

#define MAX_CONSTANTS 65536

/* ---- integers ---- */

/* 1: a 64-bit number without a sign, 0: not even that. */
static int large_integer(PyObject *object, uint64_t *bits) {
  unsigned long long value = PyLong_AsUnsignedLongLong(object);
  if (value == (unsigned long long)-1 && PyErr_Occurred()) {
    PyErr_Clear();
    return 0;
  }
  *bits = value;
  return 1;
}

/* 1: a scalar with the bits of a kernel parameter, 0: anything else. */
int scalar_bits(PyObject *value, uint8_t *code, uint64_t *bits) {
  int64_t integer;
  *bits = 0;
  if (value == Py_None) {
    *code = NONE;
  } else if (PyBool_Check(value)) {
    *code = BOOL;
    *bits = value == Py_True;
  } else if (PyFloat_CheckExact(value)) {
    double number = PyFloat_AS_DOUBLE(value);
    *code = FLOAT;
    memcpy(bits, &number, sizeof number);
  } else if (PyLong_CheckExact(value) && read_integer(value, &integer)) {
    *code = INT;
    *bits = (uint64_t)integer;
  } else if (PyLong_CheckExact(value) && large_integer(value, bits)) {
    *code = LARGE;
  } else {
    return 0;
  }
  return 1;
}

/* ---- constants: strings and dtypes, by number ---- */

/* 1: found or added, 0: unknown, -1: exception. */
static int constant_number(Core *core, Param *param, PyObject *value, bool add, uint64_t *number) {
  if (param != NULL && param->memo == value) {
    *number = param->memo_number;
    return 1;
  }
  uint64_t generation = core->generation;
  PyObject *constants = Py_NewRef(core->constants);
  PyObject *found = PyDict_GetItemWithError(constants, value);
  if (found == NULL && !PyErr_Occurred() && add && PyDict_GET_SIZE(constants) < MAX_CONSTANTS) {
    PyObject *next = PyLong_FromSsize_t(PyDict_GET_SIZE(constants));
    found = next == NULL ? NULL : PyDict_SetDefault(constants, value, next);
    Py_XDECREF(next); /* the dictionary holds it */
  }
  int result = found != NULL ? 1 : PyErr_Occurred() ? -1 : 0;
  if (result == 1)
    *number = PyLong_AsUnsignedLongLong(found);
  Py_DECREF(constants);
  if (result == 1 && param != NULL && generation == core->generation) {
    param->memo_number = *number;
    Py_XSETREF(param->memo, Py_NewRef(value));
  }
  return result;
}

/* ---- tensors ---- */

/* Describe a tensor: its dtype as a word, where it is, and its address. */
static inline int read_tensor(Core *core, PyObject *tensor, bool add, TensorFacts *facts) {
  if (rt.tensor_offset != 0)
    return read_directly(tensor, facts, core->device_index_counts);
  if (rt.read_tensor != NULL)
    return read_exchanged(tensor, facts);
  PyObject *dtype;
  int read = read_by_methods(tensor, facts, &dtype);
  if (read != 1)
    return read;
  read = constant_number(core, NULL, dtype, add, &facts->dtype);
  Py_DECREF(dtype);
  return read;
}

/* ---- one value ---- */

static int exact_word(Core *core, Param *param, PyObject *value, bool add, uint8_t *code,
                      uint64_t *bits, uint64_t *words) {
  if (scalar_bits(value, code, bits) && *code != LARGE) {
    words[0] = *code;
    words[1] = *bits;
    if (*code == INT) /* a key that is no constexpr is a parameter too, of some width */
      words[0] |= integer_class((int64_t)*bits, false) << 8;
    /* 0.0 and -0.0 are two constants, every NaN is the same one. */
    if (*code == FLOAT && PyFloat_AS_DOUBLE(value) != PyFloat_AS_DOUBLE(value))
      words[1] = 0x7ff8000000000000u;
    return 1;
  }
  PyTypeObject *type = Py_TYPE(value);
  if (type == &PyUnicode_Type)
    *code = STR;
  else if (type == rt.triton_dtype)
    *code = TRITON_DTYPE;
  else if (type == rt.torch_dtype)
    *code = TORCH_DTYPE;
  else if (type == &PyLong_Type)
    *code = *code == LARGE ? LARGE : OTHER;
  else
    return 0;
  words[0] = *code;
  return constant_number(core, param, value, add, &words[1]);
}

/* The key of a launch that only chooses a config: of what is no autotune key, its dtype. */
static int dtype_word(Core *core, PyObject *value, bool add, uint64_t *word) {
  PyTypeObject *type = Py_TYPE(value);
  uint64_t number;
  int code = type == &PyLong_Type      ? INT
             : type == &PyBool_Type    ? BOOL
             : type == &PyFloat_Type   ? FLOAT
             : type == &PyUnicode_Type ? STR
                                       : OTHER;
  if (code != OTHER) {
    *word = (uint64_t)code;
    return 1;
  }
  if (is_tensor(value)) {
    TensorFacts facts;
    int read = read_tensor(core, value, add, &facts);
    if (read < 0)
      return -1;
    if (read == 1) {
      *word = TENSOR | facts.dtype << 16;
      return 1;
    }
  }
  PyObject *text = PyObject_CallOneArg(rt.dtype_text, value);
  if (text == NULL)
    return -1;
  int known = constant_number(core, NULL, text, add, &number);
  Py_DECREF(text);
  *word = OTHER | number << 16;
  return known;
}

/* 1: done, 0: miss, -1: exception. */
static inline int tensor_word(Core *core, Call *call, int index, bool add) {
  TensorFacts facts;
  int read = read_tensor(core, call->values[index], add, &facts);
  if (read != 1)
    return read;
  /* Elsewhere: the launch is made there, or by Triton, which refuses some. */
  if (facts.device_type != core->device_type ||
      (core->device_index_counts && facts.device_index != call->device))
    return 0;
  uint64_t aligned = (core->flags[index] & ALIGNED) && (facts.address & 15) == 0;
  call->codes[index] = TENSOR;
  call->bits[index] = facts.address;
  call->words[call->word_count++] = TENSOR | aligned << 8 | facts.dtype << 16;
  return 1;
}

/* The same. */
static int value_words(Core *core, Call *call, int index, bool add) {
  PyObject *value = call->values[index];
  uint64_t *words = &call->words[call->word_count];
  uint8_t *code = &call->codes[index];
  uint64_t *bits = &call->bits[index];
  unsigned flags = core->flags[index];
  if (flags & IS_EXACT) {
    call->word_count += 2;
    return exact_word(core, &core->params[index], value, add, code, bits, words);
  }
  if (is_tensor(value) && !core->choose_only)
    return tensor_word(core, call, index, add);
  call->word_count++;
  if (core->choose_only && value != Py_None)
    return dtype_word(core, value, add, words);
  if (!scalar_bits(value, code, bits))
    return 0;
  words[0] = *code;
  if (*code == INT)
    words[0] |= integer_class((int64_t)*bits, flags & SPECIALIZED) << 8;
  else if (*code == LARGE)
    words[0] |= (uint64_t)(flags & SPECIALIZED && (*bits & 15) == 0) << 11;
  return 1;
}

/* ---- the whole key ---- */

static int option_words(Core *core, Call *call, bool add) {
  for (int i = 0; i < call->option_count; i++) {
    uint64_t *words = &call->words[call->word_count];
    uint8_t code;
    uint64_t bits;
    PyObject *value = call->option_values[i];
    PyTypeObject *type = Py_TYPE(value);
    call->word_count += 3;
    int known = constant_number(core, NULL, call->option_names[i], add, &words[0]);
    if (known != 1)
      return known;
    words[1] = NONE;
    words[2] = 0;
    if (value == Py_None)
      continue;
    if (type != &PyLong_Type && type != &PyBool_Type && type != &PyUnicode_Type)
      return 0;
    known = exact_word(core, NULL, value, add, &code, &bits, &words[1]);
    if (known != 1)
      return known;
  }
  return 1;
}

int make_key(Core *core, Call *call, bool add) {
  /* Read first: what Python code makes the core forget meanwhile, constants were numbered by. */
  uint64_t generation = core->generation;
  if (read_ordinal(core->device_source, core->device_key, -1, &call->device) < 0)
    return -1;
  call->word_count = 2;
  for (int i = 0; i < core->param_count; i++) {
    PyObject *value = call->values[i];
    int64_t integer;
    if (value == NULL)
      continue;
    /* Most arguments are small integers, most constants those or truth values: the same words
     * as below, without a call. */
    if ((value == Py_True || value == Py_False) && core->flags[i] & IS_EXACT) {
      uint64_t *words = &call->words[call->word_count];
      call->codes[i] = BOOL;
      words[0] = BOOL;
      words[1] = call->bits[i] = value == Py_True;
      call->word_count += 2;
      continue;
    }
    if (Py_TYPE(value) == &PyLong_Type && !core->choose_only && read_integer(value, &integer)) {
      unsigned flags = core->flags[i];
      bool exact = flags & IS_EXACT;
      uint64_t *words = &call->words[call->word_count];
      call->codes[i] = INT;
      call->bits[i] = (uint64_t)integer;
      words[0] = INT | integer_class(integer, !exact && flags & SPECIALIZED) << 8;
      words[1] = (uint64_t)integer; /* overwritten where it does not belong to the key */
      call->word_count += 1 + exact;
      continue;
    }
    bool tensor = is_tensor(value) && !core->choose_only && !(core->flags[i] & IS_EXACT);
    int made = tensor ? tensor_word(core, call, i, add) : value_words(core, call, i, add);
    if (made != 1)
      return made;
  }
  int made = option_words(core, call, add);
  if (made != 1)
    return made;
  call->words[0] = generation << 32 | (uint32_t)call->device;
  call->words[1] = (uint64_t)call->option_count;
  return 1;
}

/* Read a number that the driver object keeps: the current device, or, with the device as
 * `argument`, the current stream. */
int read_ordinal(PyObject *source, PyObject *key, long argument, long *out) {
  PyObject *value = NULL;
  if (key != NULL) {
    value = PyDict_GetItemWithError(source, key);
    if (value == NULL && !PyErr_Occurred())
      PyErr_SetObject(PyExc_AttributeError, key);
    Py_XINCREF(value);
  } else {
    PyObject *callable = Py_NewRef(source);
    PyObject *device = argument < 0 ? NULL : PyLong_FromLong(argument);
    if (argument < 0)
      value = PyObject_CallNoArgs(callable);
    else if (device != NULL)
      value = PyObject_CallOneArg(callable, device);
    Py_XDECREF(device);
    Py_DECREF(callable);
  }
  if (value == NULL)
    return -1;
  *out = (long)PyLong_AsUnsignedLongMask(value);
  Py_DECREF(value);
  return *out == -1 && PyErr_Occurred() ? -1 : 0;
}
