/* Kernel parameters: how a plan lays them out, and the bytes of each launch. */
#include "preview.h"

#include <string.h>

typedef enum { POINTER = 1, SIGNED, UNSIGNED, FP16, BF16, FP32, FP64 } KindClass;

/* A kind is a KindClass, and for integers the number of bits above it. */
int kind_of(const char *type) {
  static const struct {
    const char *name;
    int kind;
  } kinds[] = {
      {"i1", UNSIGNED | 1 << 3}, {"i8", SIGNED | 8 << 3},      {"i16", SIGNED | 16 << 3},
      {"i32", SIGNED | 32 << 3}, {"i64", SIGNED | 64 << 3},    {"u1", UNSIGNED | 1 << 3},
      {"u8", UNSIGNED | 8 << 3}, {"u16", UNSIGNED | 16 << 3},  {"u32", UNSIGNED | 32 << 3},
      {"u64", UNSIGNED | 64 << 3}, {"fp16", FP16},             {"bf16", BF16},
      {"fp32", FP32},            {"f32", FP32},                {"fp64", FP64},
  };
  if (type[0] == '*')
    return POINTER;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(type, kinds[i].name) == 0)
      return kinds[i].kind;
  return 0; /* a tuple, a descriptor, something newer */
}

/* Bytes of a kernel parameter. */
Py_ssize_t size_of(int kind) {
  switch (kind & 7) {
  case SIGNED:
  case UNSIGNED:
    return kind >> 3 < 8 ? 1 : kind >> 6;
  case FP16:
  case BF16:
    return 2;
  case FP32:
    return 4;
  }
  return 8;
}

static bool fits(int kind, uint8_t code, uint64_t bits) {
  int width = kind >> 3;
  int64_t value = (int64_t)bits;
  if ((kind & 7) == UNSIGNED)
    return (code == LARGE || value >= 0) && (width == 64 || bits >> width == 0);
  return code != LARGE && (width == 64 || value >> (width - 1) == (value < 0 ? -1 : 0));
}

static int pack_fp16(double value, uint64_t *out) {
  uint16_t half;
#if PY_VERSION_HEX >= 0x030B0000
  int status = PyFloat_Pack2(value, (char *)&half, 1);
#else
  int status = _PyFloat_Pack2(value, (unsigned char *)&half, 1);
#endif
  if (status < 0) {
    PyErr_Clear(); /* too large: Triton's launcher says so, or not */
    return 0;
  }
  *out = half;
  return 1;
}

/* The parameter's bytes as Triton's launcher makes them; 0: only that one knows. */
int convert_value(int kind, uint8_t code, uint64_t bits, uint64_t *out) {
  double number;
  float single;
  uint32_t narrow;
  switch (kind & 7) {
  case POINTER:
    *out = code == NONE ? 0 : bits;
    return code == NONE || code == TENSOR;
  case SIGNED:
  case UNSIGNED:
    *out = bits;
    return (code == INT || code == BOOL || code == LARGE) && fits(kind, code, bits);
  }
  if (code == FLOAT)
    memcpy(&number, &bits, sizeof number);
  else if (code == BOOL || code == INT)
    number = (double)(int64_t)bits;
  else
    return 0;
  if ((kind & 7) == FP64) {
    memcpy(out, &number, sizeof number);
    return 1;
  }
  if ((kind & 7) == FP16)
    return pack_fp16(number, out);
  single = (float)number;
  memcpy(&narrow, &single, sizeof narrow);
  *out = (kind & 7) == BF16 ? narrow >> 16 : narrow;
  return 1;
}

/* Whether `convert_value` would only copy, for every argument of this code and class. */
static bool only_copies(int kind, uint64_t word) {
  uint8_t code = (uint8_t)word;
  bool wide = word >> 8 & 3;
  switch (kind & 7) {
  case POINTER:
    return code == TENSOR || code == NONE;
  case SIGNED:
    return code == INT && (kind >> 3 == 64 || (kind >> 3 == 32 && !wide));
  case UNSIGNED:
    return code == BOOL || (code == LARGE && kind >> 3 == 64);
  case FP64:
    return code == FLOAT;
  }
  return false;
}

int fill_params(const Plan *plan, Call *call, uint64_t *converted, void **params) {
  if (plan->only_values) {
    for (int i = 0; i < plan->param_count; i++)
      params[i] = &call->bits[plan->params[i].param];
    return 1;
  }
  for (int i = 0; i < plan->param_count; i++) {
    KernelParam *param = &plan->params[i];
    switch (param->source) {
    case FROM_VALUE:
      params[i] = &call->bits[param->param];
      break;
    case FROM_PLAN:
      params[i] = &param->fixed;
      break;
    default:
      if (!convert_value(param->kind, call->codes[param->param], call->bits[param->param],
                   &converted[i]))
        return 0;
      params[i] = &converted[i];
    }
  }
  return 1;
}

/* ---- what a plan needs for a direct launch, from Python ---- */

/* The first word of each parameter in a plan's key; 0 for what the config gives. */
static void first_words(const Core *core, const Plan *plan, uint64_t *words) {
  Py_ssize_t next = 2;
  for (int i = 0; i < core->param_count; i++) {
    unsigned flags = core->flags[i];
    words[i] = flags & IS_SUPPLIED ? 0 : plan->key.words[next];
    next += flags & IS_SUPPLIED ? 0 : flags & IS_EXACT ? 2 : 1;
  }
}

/* 1: done, 0: only Triton's launcher can, -1: exception. */
static int lay_out_param(const Core *core, const Plan *plan, KernelParam *param, PyObject *spec,
                         const uint64_t *words) {
  int index;
  const char *type;
  if (!PARSE_ITEM(spec, "is", &index, &type))
    return -1;
  if (index < 0 || index >= core->param_count) {
    PyErr_SetString(PyExc_IndexError, "a kernel parameter that the core does not have");
    return -1;
  }
  int kind = kind_of(type);
  if (kind == 0)
    return 0;
  param->param = (uint16_t)index;
  param->kind = (uint16_t)kind;
  param->source = only_copies(kind, words[index]) ? FROM_VALUE : CONVERTED;
  if (core->flags[index] & IS_SUPPLIED) {
    uint8_t code;
    uint64_t bits;
    param->source = FROM_PLAN;
    return scalar_bits(PyTuple_GET_ITEM(plan->supplied, index), &code, &bits) &&
           convert_value(kind, code, bits, &param->fixed);
  }
  return 1;
}

int lay_out_attributes(Plan *plan, PyObject *attributes) {
  Py_ssize_t count = PyTuple_GET_SIZE(attributes);
  if (count > MAX_ATTRIBUTES) {
    PyErr_SetString(PyExc_ValueError, "too many launch attributes");
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    LaunchAttribute *attribute = &plan->attributes[i];
    if (!PARSE_ITEM(PyTuple_GET_ITEM(attributes, i), "iIII", &attribute->id,
                          &attribute->value.words[0], &attribute->value.words[1],
                          &attribute->value.words[2]))
      return -1;
  }
  plan->attribute_count = (unsigned)count;
  return 0;
}

/* Take over (function, threads, shared bytes, ctas, attributes, parameters), or None.
 * -1: exception. What cannot be laid out leaves a plan that Triton's launcher launches. */
int lay_out(Core *core, Plan *plan, PyObject *layout) {
  unsigned long long function;
  PyObject *attributes, *params;
  uint64_t words[MAX_PARAMS];
  plan->direct = false;
  if (layout == Py_None)
    return 0;
  if (!PARSE_ITEM(layout, "KIIIO!O!", &function, &plan->threads, &plan->shared_bytes,
                        &plan->ctas, &PyTuple_Type, &attributes, &PyTuple_Type, &params))
    return -1;
  Py_ssize_t count = PyTuple_GET_SIZE(params);
  if (count > MAX_PARAMS)
    return 0;
  plan->function = (void *)(uintptr_t)function;
  plan->params = PyMem_Calloc(count + 1, sizeof *plan->params);
  if (plan->params == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  plan->param_count = (int)count;
  if (lay_out_attributes(plan, attributes) < 0)
    return -1;
  first_words(core, plan, words);
  plan->only_values = true;
  for (Py_ssize_t i = 0; i < count; i++) {
    int done = lay_out_param(core, plan, &plan->params[i], PyTuple_GET_ITEM(params, i), words);
    if (done != 1)
      return done;
    plan->only_values &= plan->params[i].source == FROM_VALUE;
  }
  plan->direct = has_driver();
  return 0;
}
