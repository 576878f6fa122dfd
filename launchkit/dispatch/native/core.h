/* The launch core in C: what its files share.
 *
 * A launch passes through them in this order:
 *   installed.c kernel[grid] of other people's kernels, heuristics above a kernel
 *   subscript.c kernel[grid](...)
 *   entry.c     launch(kernel, grid, ...): finds the kernel's core
 *   call.c      keywords that come as a dictionary -> an array
 *   bind.c      positional and keyword arguments -> one value per parameter
 *   guard.c     each value -> words of the key: at least as fine as Triton's specialization
 *   tensor.c    a tensor -> its dtype, device and address
 *   table.c     key -> plan, by an exact comparison
 *   watch.c     whether everything that Triton would read at this launch is as it was
 *   grid.c      a declared grid -> its dimensions
 *   launch.c    grid, cuLaunchKernelEx
 *   params.c    the bytes of the kernel's parameters (preview.c: the same, and no launch)
 *
 * A frozen handle (frozen.c) was bound and laid out once; its calls take the last three steps.
 *
 * An op of several launches passes through op.c (its arguments' key), and once it has a plan
 * through replay.c alone; record.c watches the launches that op_plan.c makes the plan from.
 *
 * While launches are recorded, profile.c takes their time stamps, and profile_groups.c counts them.
 *
 * Whatever is not understood is a miss: the core returns MISS and the launch goes through
 * Triton. The Python twin (python_core.py) has the same interface and makes the same decisions.
 *
 * Everything here runs under the GIL. Python code may run inside (a grid function, a finalizer,
 * a comparison), and while the driver is called the GIL is free, so nothing borrowed from the
 * core may be used after such a call; arguments are kept alive by the caller.
 */
#ifndef LAUNCHKIT_CORE_H
#define LAUNCHKIT_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile.h"

#ifdef Py_GIL_DISABLED
#error "the core relies on the GIL; launchkit's Python twin serves without it"
#endif

#define MAX_PARAMS 256
#define MAX_OPTIONS 16
/* Device and count of options, two words per parameter, three per option. */
#define MAX_WORDS (2 + 2 * MAX_PARAMS + 3 * MAX_OPTIONS)

/* ---- what stands outside: set once by configure() ---- */

/* DLPack's exchange interface, version 1: only what is called here. */
typedef struct {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t dtype_code, dtype_bits;
  uint16_t dtype_lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} DLTensor;

enum { DL_CPU = 1, DL_CUDA = 2 };

typedef int (*TensorReader)(void *object, DLTensor *out);
typedef int (*StreamReader)(int32_t device_type, int32_t device_id, void **out);

typedef struct Managed {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct Managed *self);
  uint64_t flags;
  DLTensor tensor;
} Managed;

typedef void (*ErrorTaker)(void *context, const char *kind, const char *message);
typedef int (*Allocator)(DLTensor *prototype, Managed **out, void *context, ErrorTaker take);

typedef struct {
  PyTypeObject *tensor, *parameter, *triton_dtype, *torch_dtype;
  Py_ssize_t tensor_offset;   /* of the at::Tensor in a tensor's object; 0: not known */
  TensorReader read_tensor;   /* NULL: tensors are read through their Python methods */
  StreamReader read_stream;   /* NULL: the driver object says which stream is current */
  Allocator allocate;         /* NULL: there are no op plans */
  PyObject *miss;             /* what a core returns when a launch has to go the long way */
  PyObject *absent;           /* in a watch: the dictionary has no such key */
  PyObject *compiler;         /* dictionary of torch.compiler */
  PyObject *adopt;            /* kernel -> Entry, for a kernel's first launch */
  PyObject *finish;           /* (compiled, grid, stream, values): Triton's own last steps */
  PyObject *dtype_text;       /* dtype of any object as text, or None */
  PyObject *refuse;           /* (Entry): raises for a kernel without configs */
} Runtime;

extern Runtime rt;

/* Interned names of attributes. */
typedef struct {
  PyObject *data_ptr, *dtype, *device, *index, *type, *compiling, *entry, *route, *missed,
      *best_config;
} Names;

extern Names names;

/* ---- watch.c: premises ---- */

typedef struct WatchSet WatchSet;
extern PyTypeObject WatchSet_Type;

/* 1: all hold, 0: one does not, -1: an exception is set. */
int watches_hold(WatchSet *set);
int premises_hold(WatchSet *premises); /* which may be let go meanwhile; NULL: 0 */
void make_watcher(void);

/* ---- what is found by its key ---- */

typedef struct {
  PyObject_HEAD
  uint64_t hash;
  Py_ssize_t word_count;
  uint64_t *words;
  bool kept; /* it stands in a table: what rests on it may go on */
} Keyed;

/* In the order of insertion, and an open hash table of their places. */
typedef struct {
  Py_ssize_t limit, count, mask;
  Keyed **items, *last;
  int32_t *places;
} Table;

/* ---- plans ---- */

/* How an argument becomes the bytes of a kernel parameter. */
typedef enum {
  FROM_VALUE,   /* the value's 64 bits are the parameter's */
  FROM_PLAN,    /* fixed with the plan: a config supplies it */
  CONVERTED,    /* a checked conversion at each launch */
} Source;

typedef struct {
  uint16_t param; /* which of the core's parameters */
  uint16_t kind;  /* see launch.c */
  uint8_t source; /* Source */
  uint64_t fixed;
} KernelParam;

/* CUlaunchAttribute and CUlaunchConfig of cuda.h, stable since CUDA 11.8. */
typedef struct {
  int id;
  int pad;
  union {
    uint32_t words[16];
  } value;
} LaunchAttribute;

typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void *stream;
  LaunchAttribute *attributes;
  unsigned attribute_count;
} LaunchConfig;

/* Oversized shared memory, programmatic serialization, cooperative, and two for clusters. */
#define MAX_ATTRIBUTES 5

typedef struct {
  Keyed key;
  PyObject *object;     /* the LaunchPlan or ConfigPin that Python made */
  PyObject *compiled;   /* keeps the module loaded; NULL in a core that only chooses */
  PyObject *config;     /* NULL for a plain kernel */
  PyObject *supplied;   /* tuple: a value for each parameter that the config gives, else NULL */
  WatchSet *watches;
  bool direct;          /* false: only Triton's launcher can launch it */
  bool only_values;     /* every parameter is FROM_VALUE */
  void *function;
  unsigned threads, shared_bytes, ctas;
  unsigned attribute_count;
  LaunchAttribute attributes[MAX_ATTRIBUTES];
  int param_count;
  KernelParam *params;
} Plan;

extern PyTypeObject Plan_Type;

/* ---- the core of one kernel ---- */

enum {
  IS_EXACT = 1,    /* a constexpr or an autotune key: its value is part of the key */
  SPECIALIZED = 2, /* Triton compiles for 1 and for multiples of 16 */
  ALIGNED = 4,     /* Triton compiles for aligned addresses */
  IS_SUPPLIED = 8, /* the config gives it, a caller must not */
};

typedef struct {
  PyObject *name;
  PyObject *fallback; /* the default, or NULL */
  PyObject *memo;     /* the constant that was looked up last, and its number */
  uint64_t memo_number;
} Param;

/* Where the keywords of one call site go. */
typedef struct {
  PyObject *keywords; /* the tuple; held, so that its address is not used for another one */
  Py_ssize_t count;
  Py_ssize_t complete; /* with so many positions nothing else is missing; -1: not known */
  int option_count;
  int options[MAX_OPTIONS]; /* indices of keywords that are no parameters */
  int16_t slots[];          /* parameter of each keyword, -1 for an option */
} CallShape;

#define SHAPES 16

/* Those of one callee, and where its names stand. */
typedef struct {
  PyObject *index; /* name -> number of the parameter */
  CallShape *kept[SHAPES];
  int count, next, last;
} ShapeTable;

/* ---- grid.c: declared grids ---- */

typedef struct GridProgram GridProgram;

#define MAX_GRIDS 4

typedef struct {
  PyObject *grid;       /* held, or NULL */
  GridProgram *program; /* NULL: only Python evaluates it */
} KnownGrid;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  int param_count, positional_count;
  Py_ssize_t complete; /* as in a CallShape, of calls without keywords */
  Param *params;
  uint8_t *flags;      /* of each parameter */
  PyObject *binder;    /* raises what a wrong call raises */
  PyObject *template;  /* dictionary of all parameters, copied for a grid function */
  PyObject *autotuner, *autotuner_dict; /* NULL for a plain kernel */
  bool choose_only;
  ShapeTable shapes;
  /* constants: strings and dtypes by number */
  PyObject *constants;
  uint64_t generation;
  Table plans;
  struct {
    KnownGrid items[MAX_GRIDS];
    int next;
  } grids;
  /* premises; NULL until armed */
  WatchSet *premises;
  PyObject *device_source, *device_key; /* a callable, or a dictionary and its key */
  PyObject *stream_source, *stream_key; /* the same; NULL source: DLPack's stream */
  int device_type;                      /* of tensors, as in DLPack */
  bool device_index_counts;             /* false where CPU tensors stand for the device's */
  /* launches, counted in a buffer of Python's, two numbers; NULL: nobody counts */
  uint64_t *launch_count; /* of its own, and those of op plans */
  Py_buffer count_buffer;
} Core;

extern PyTypeObject Core_Type;

/* ---- one call ---- */

/* Types that are told apart. LARGE: an int of 64 bits that has no sign; OTHER: has no bits. */
enum { NONE = 1, TENSOR, INT, LARGE, BOOL, FLOAT, STR, TRITON_DTYPE, TORCH_DTYPE, OTHER };

typedef struct {
  PyObject *values[MAX_PARAMS]; /* borrowed; NULL for what the config gives */
  uint64_t bits[MAX_PARAMS];    /* address, integer or bits of the double */
  uint8_t codes[MAX_PARAMS];
  uint64_t words[MAX_WORDS];
  Py_ssize_t word_count;
  int option_count; /* keywords that are no parameters; names and values are the caller's */
  PyObject *option_names[MAX_OPTIONS], *option_values[MAX_OPTIONS];
  long device;
} Call;

/* A parameter that a heuristic gives: whether another one is None, or is not. */
typedef struct {
  int param, source;
  bool for_none; /* its value where the other is None */
} Derived;

typedef struct {
  Py_ssize_t count;
  Derived *items;
} Derivation;

/* bind.c.  1: bound, 0: miss, -1: exception. With a derivation every misfit is a miss. */
int bind_call(Core *core, Call *call, const Derivation *derivation, PyObject *const *args,
              Py_ssize_t nargs, PyObject *kwnames);
CallShape *find_shape(ShapeTable *shapes, PyObject *keywords);
void drop_shapes(ShapeTable *shapes);

/* guard.c.  1: the key is made, 0: miss, -1: exception. `add`: number new constants. */
int make_key(Core *core, Call *call, bool add);
int scalar_bits(PyObject *value, uint8_t *code, uint64_t *bits);
int read_ordinal(PyObject *source, PyObject *key, long argument, long *out);

/* tensor.c.  1: read, 0: no tensor that a kernel could take, -1: exception. */
typedef struct {
  uint64_t dtype, address; /* the dtype as a number of fewer than 48 bits */
  int32_t device_type, device_index;
} TensorFacts;

/* Without `index`, its device's is taken for 0. */
int read_directly(PyObject *tensor, TensorFacts *facts, bool index);
int read_exchanged(PyObject *tensor, TensorFacts *facts);
int read_by_methods(PyObject *tensor, TensorFacts *facts, PyObject **dtype);
PyObject *read_tensors_directly(PyObject *module, PyObject *probes);

/* plan.c */
PyObject *core_insert(Core *core, PyObject *args);

/* table.c */
Keyed *look_up(const Table *table, const uint64_t *words, Py_ssize_t count, uint64_t hash);
Keyed *find_keyed(Table *table, const uint64_t *words, Py_ssize_t count);
int insert_keyed(Table *table, Keyed *keyed);
void drop_keyed(Table *table);
int take_key(Keyed *keyed, const char *bytes, Py_ssize_t size);
uint64_t hash_words(const uint64_t *words, Py_ssize_t count);

/* launch.c.  The derivation may be NULL. */
int call_driver(const Plan *plan, const LaunchConfig *config, void **params);
void raise_status(int status);
int read_grid(PyObject *grid, unsigned *out);
int announce(Core *core, Plan *plan);
int read_current_stream(PyObject *source, PyObject *key, long device, void **stream);
PyObject *core_launch(Core *core, const Derivation *derivation, PyObject *grid,
                      PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
int core_find(Core *core, Call *call, Plan **plan);
int find_driver(void);
bool has_driver(void);

/* grid.c.  run_grid: false where only Python knows; compile_grid: 1, 0: only Python, -1. */
typedef bool (*GridReader)(const void *context, int slot, int64_t *value);
bool is_declared_grid(PyObject *object);
bool run_grid(const GridProgram *program, GridReader read, const void *context, int64_t *size);
int grid_dims(const GridProgram *program);
int compile_grid(PyObject *grid, PyObject *index, GridProgram **result);
PyObject *grid_tuple(const int64_t *size, int dims);
PyObject *declared_grid(Core *core, const Plan *plan, const Call *call, PyObject *grid);
void drop_grids(Core *core);
PyObject *configure_grids(PyObject *module, PyObject *type);

/* params.c */
int lay_out(Core *core, Plan *plan, PyObject *layout);
int lay_out_attributes(Plan *plan, PyObject *attributes);
int fill_params(const Plan *plan, Call *call, uint64_t *converted, void **params);
int kind_of(const char *type);
int convert_value(int kind, uint8_t code, uint64_t bits, uint64_t *out);

/* frozen.c */
extern PyTypeObject Frozen_Type;

/* core.c */
int take_sources(PyObject *device, PyObject *stream, PyObject **sources);

#include "entry.h"

/* 1: fits into 64 bits with a sign, 0: does not. The object must be an exact int. */
static inline int read_integer(PyObject *object, int64_t *value) {
#if PY_VERSION_HEX >= 0x030C0000
  if (PyUnstable_Long_IsCompact((PyLongObject *)object)) {
    *value = PyUnstable_Long_CompactValue((PyLongObject *)object);
    return 1;
  }
#else
  Py_ssize_t size = Py_SIZE(object); /* the number of digits, with the sign of the number */
  if (size >= -1 && size <= 1) {
    *value = size == 0 ? 0 : size * (int64_t)((PyLongObject *)object)->ob_digit[0];
    return 1;
  }
#endif
  int overflow;
  *value = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0;
}

/* PyArg_ParseTuple for what should be a tuple, and may be anything. */
#define PARSE_ITEM(item, ...)                                                                      \
  (PyTuple_Check(item)                                                                             \
       ? PyArg_ParseTuple(item, __VA_ARGS__)                                                       \
       : (PyErr_Format(PyExc_TypeError, "expected a tuple, not %R", (PyObject *)Py_TYPE(item)), 0))

/* Class of an integer as Triton specializes it: width, equal to 1, divisible by 16. */
static inline uint64_t integer_class(int64_t value, bool specialized) {
  uint64_t width = value != (int32_t)value;
  uint64_t kind = (uint64_t)(value == 1) << 2 | (uint64_t)((value & 15) == 0) << 3;
  return specialized ? width | kind : width;
}

static inline bool is_tensor(PyObject *object) {
  return Py_TYPE(object) == rt.tensor || Py_TYPE(object) == rt.parameter;
}

#endif
