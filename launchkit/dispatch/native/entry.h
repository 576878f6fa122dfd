/* The ways into a launch, and what watches one from outside: declarations, a part of core.h. */
#ifndef LAUNCHKIT_ENTRY_H
#define LAUNCHKIT_ENTRY_H

#ifndef LAUNCHKIT_CORE_H
#error "include core.h"
#endif

/* call.c */
PyObject *call_with_dict(PyObject *self, PyObject *args, PyObject *kwargs,
                         vectorcallfunc function);
/* Show the function or not to the next call, which is expected to be as this one. */
void expect_call(vectorcallfunc *shown, vectorcallfunc function, Py_ssize_t nargs,
                 PyObject *kwnames);
vectorcallfunc expected_call(PyObject *kernel, vectorcallfunc function);
void note_call(PyObject *kernel, Py_ssize_t nargs, PyObject *kwnames);
int know_entries(void);

/* entry.c */

/* What hangs on a kernel. */
typedef struct {
  PyObject_HEAD
  PyObject *kernel;
  PyObject *fast;   /* called as fast(grid, *args, **kwargs); may return MISS */
  PyObject *direct; /* the same without a launch slot in front; may be NULL */
  char autotuned;
  Subject subject;  /* its kernel in a recording of launches */
} Entry;

/* One launch as it was asked for. */
typedef struct {
  PyObject *grid;
  PyObject *const *args;
  Py_ssize_t nargs;
  PyObject *kwnames;
} Asked;

PyObject *launch_own(PyObject *kernel, const Asked *given, bool autotuned);
PyObject *launch_kernel_installed(PyObject *kernel, const Asked *given);
PyObject *tuple_of(PyObject *const *args, Py_ssize_t nargs);
PyObject *dict_of(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
extern PyTypeObject Entry_Type;
PyObject *make_launch_function(PyObject *module, PyObject *args);
PyObject *launch_adopted(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames);
PyObject *launch_installed(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames);
PyObject *begun_by_install(PyObject *module, PyObject *ignored);
PyObject *call_with_grid(PyObject *callable, PyObject *grid, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames);

/* subscript.c */
extern PyTypeObject Subscript_Type, BoundLaunch_Type;
/* kernel[grid] of Triton's classes under install(). */
PyObject *subscript_installed(PyObject *kernel, PyObject *grid);

/* installed.c */
extern PyTypeObject InstalledSubscript_Type, HeuristicFront_Type;
PyObject *front_launch(PyObject *front, PyObject *grid, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);

/* ---- op plans ---- */

/* record.c */
typedef struct Recording Recording;
extern PyTypeObject Recording_Type;
extern int recordings; /* that are under way, in any thread */
Recording *own_recording(void);
int end_recording(const char *reason);
void record_entry(Entry *entry);
int record_launch(Core *core, Plan *plan, const Call *call, const LaunchConfig *config,
                  void **params);

/* One launch as it was seen, or as it is to be repeated. */
typedef struct {
  Entry *entry;
  Core *core;
  Plan *plan;
  WatchSet *premises;
  unsigned grid[3]; /* as the driver gets it */
  bool empty;       /* a grid without programs: nothing is launched */
  long device;
  void *stream;
  uint64_t *values;    /* of the kernel's parameters */
  PyObject **tensors;  /* whose addresses they are; NULL for others */
} SeenLaunch;

Py_ssize_t seen_launches(const Recording *recording, const SeenLaunch **launches);

#endif
