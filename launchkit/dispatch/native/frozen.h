/* What the two files of frozen handles share: frozen.c has their calls, frozen_type.c the rest. */
#ifndef LAUNCHKIT_FROZEN_H
#define LAUNCHKIT_FROZEN_H

#include "core.h"

#define MAX_VARYING 64

typedef struct {
  PyObject *name;
  uint8_t code;     /* TENSOR, INT, ...: what it is */
  bool specialized; /* its integer class counts in full */
  bool aligned, alignment_counts;
  int slot;      /* of the kernel's parameters, -1: it is none, its value was compiled in */
  uint16_t kind; /* see params.c */
  uint64_t class; /* dtype of a tensor, class of an integer */
} Varying;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *through; /* what a launch slot put in front, or NULL */
  PyObject *compiled; /* keeps the module loaded; NULL until laid out */
  /* the launch; written once */
  Plan plan; /* no object: only what call_driver and the launch read of one */
  void **params;
  uint64_t *values;
  PyObject *held; /* what some params point into, as Python gave it */
  int varying_count;
  Varying varying[MAX_VARYING];
  /* the grid: sizes, or a program, or a callable */
  bool fixed;
  unsigned size[3];
  GridProgram *program;
  PyObject *grid;
  PyObject *mapping;   /* dictionary of all parameters by name, copied for Python functions */
  PyObject *heuristics; /* called with a mapping: whether all is as it was frozen; or NULL */
  /* premises; NULL until armed */
  WatchSet *premises;
  PyObject *sources[4]; /* of the device and of the stream, as in Core */
  int device_type;
  bool device_index_counts;
  long device;
  Subject subject; /* its kernel in a recording of launches */
  uint64_t *launch_count;
  Py_buffer count_buffer;
} Frozen;

/* frozen.c */
int describe(PyObject *tensor, TensorFacts *facts);
bool on_device(const Frozen *frozen, const TensorFacts *facts);
uint64_t number_class(uint8_t code, uint64_t bits, bool specialized);
PyObject *frozen_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                            PyObject *kwnames);
PyObject *frozen_direct(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                        PyObject *kwnames);
PyObject *frozen_preview(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames);

#endif
