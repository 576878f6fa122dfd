/* What the files of op plans share beside core.h. */
#ifndef LAUNCHKIT_OP_H
#define LAUNCHKIT_OP_H

#include "core.h"

/* op_plan.c: where the address in a parameter comes from */
enum { FROM_ARGUMENT, FROM_WORKSPACE, FROM_RESULT };

typedef struct {
  int value;      /* index into the plan's values */
  int from;
  int64_t place;  /* which tensor among the arguments or results, or bytes into the workspace */
} Address;

typedef struct {
  Entry *entry;
  Core *core;
  Plan *plan;
  WatchSet *premises;
  unsigned grid[3];
  bool empty;
  int first_value;
} OpLaunch;

/* What a replay writes to while it runs; a plan keeps one, a second thread makes its own. */
typedef struct {
  uint64_t *values;
  void **params;
  LaunchConfig *configs;
  uint64_t *stamps; /* when the first launch began and each one ended, while that is recorded */
} Frame;

typedef struct {
  Keyed key;
  int launch_count, value_count, address_count, maker_count;
  OpLaunch *launches;
  uint64_t *values;
  Address *addresses;
  int64_t workspace_bytes;
  PyObject *makers;  /* tuple of (callable, arguments, names of those that are keywords) */
  PyObject *results; /* tuple of (from, place or constant) */
  PyObject *container; /* None, tuple or list: how the results are returned */
  Frame *frame;      /* NULL while it is in use */
} OpPlan;

extern PyTypeObject OpPlan_Type;
Frame *make_frame(const OpPlan *plan);
int op_plan_holds(const OpPlan *plan, bool in_front);

#define MAX_TENSORS 96
#define MAX_OP_WORDS 2048
#define MAX_RESULTS 16

typedef struct {
  PyObject *values[MAX_PARAMS];
  uint64_t words[MAX_OP_WORDS];
  Py_ssize_t word_count;
  int tensor_count;
  PyObject *tensors[MAX_TENSORS];
  uint64_t addresses[MAX_TENSORS], ends[MAX_TENSORS];
  long device;
  bool gradients;     /* are recorded, so it counts which tensors require them */
  PyObject *held;     /* what lists held; NULL without any */
  const char *reason; /* why there is no key */
  bool recorded;      /* its stamps are taken, for profile_launches() */
  Record record;      /* of a replay */
} OpCall;

typedef struct {
  PyObject_HEAD
  PyObject *function; /* the op as it is */
  PyObject *planner;  /* its arm() and run(key, tensors, args, kwargs) */
  int param_count, positional_count;
  PyObject **defaults; /* NULL where there is none */
  ShapeTable shapes;
  PyObject *constants; /* strings, dtypes and devices by number */
  uint64_t generation;
  Table plans;
  WatchSet *premises; /* NULL until armed */
  PyObject *device_source, *device_key, *stream_source, *stream_key;
  int device_type;
  bool device_index_counts;
  PyObject *reasons; /* why calls ran the op as it is -> how many */
  unsigned long long replays;
  Subject subject; /* it in a recording of launches */
} OpCore;

extern PyTypeObject OpCore_Type;

/* replay.c.  1: *result, 0: nothing was launched, run the op as it is, -1: exception. */
int replay(OpCore *core, OpPlan *plan, OpCall *call, PyObject **result);

/* op.c */
int count_reason(OpCore *core, PyObject *reason);
PyObject *configure_ops(PyObject *module, PyObject *args);
PyObject *make_op(PyObject *module, PyObject *args);

/* ---- set once by configure_ops() ---- */

/* A C function without arguments, called without the ways of Python. */
typedef struct {
  PyCFunction call;
  PyObject *self;
} Question;

#define MAX_MODES 4

typedef struct {
  Question modes[MAX_MODES]; /* each counts modes that see what torch does */
  int mode_count;
  Question records_gradients, compiles_frames;
  getter requires_grad;
  void *requires_grad_closure;
  PyTypeObject *device;
  PyObject *arm, *run; /* names of the planner's methods */
} OpState;

extern OpState op_state;

/* op_key.c.  1: the key is made, 0: there is none, call->reason says why; -1: exception. */
int make_op_key(OpCore *core, OpCall *call);

#endif
