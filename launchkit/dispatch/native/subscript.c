/* kernel[grid](...), of launchkit's own kernels and of others under install(). */
#include "core.h"

#include <stddef.h>

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *kernel, *grid;
  bool installed;
} BoundLaunch;

static PyObject *bound_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                                  PyObject *kwnames) {
  BoundLaunch *bound = (BoundLaunch *)self;
  Asked given = {bound->grid, args, PyVectorcall_NARGS(nargsf), kwnames};
  note_call(bound->kernel, given.nargs, kwnames);
  return bound->installed ? launch_kernel_installed(bound->kernel, &given)
                          : launch_own(bound->kernel, &given, false);
}

static PyObject *bound_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  return call_with_dict(self, args, kwargs, bound_vectorcall);
}

static int bound_traverse(BoundLaunch *bound, visitproc visit, void *arg) {
  Py_VISIT(bound->kernel);
  Py_VISIT(bound->grid);
  return 0;
}

/* There is no tp_clear: a call relies on both, and every cycle passes the kernel, too. */
static void bound_dealloc(BoundLaunch *bound) {
  PyObject_GC_UnTrack(bound);
  Py_DECREF(bound->kernel);
  Py_DECREF(bound->grid);
  Py_TYPE(bound)->tp_free((PyObject *)bound);
}

static PyObject *bound_repr(BoundLaunch *bound) {
  return PyUnicode_FromFormat("<launch of %R over %R>", bound->kernel, bound->grid);
}

PyTypeObject BoundLaunch_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.BoundLaunch",
    .tp_basicsize = sizeof(BoundLaunch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "kernel[grid]: launches when called.",
    .tp_call = bound_call,
    .tp_vectorcall_offset = offsetof(BoundLaunch, vectorcall),
    .tp_repr = (reprfunc)bound_repr,
    .tp_traverse = (traverseproc)bound_traverse,
    .tp_dealloc = (destructor)bound_dealloc,
};

static PyObject *make_bound(PyObject *kernel, PyObject *grid, bool installed) {
  BoundLaunch *bound = PyObject_GC_New(BoundLaunch, &BoundLaunch_Type);
  if (bound == NULL)
    return NULL;
  bound->vectorcall = expected_call(kernel, bound_vectorcall);
  bound->kernel = Py_NewRef(kernel);
  bound->grid = Py_NewRef(grid);
  bound->installed = installed;
  PyObject_GC_Track(bound);
  return (PyObject *)bound;
}

static PyObject *subscript(PyObject *kernel, PyObject *grid) {
  return make_bound(kernel, grid, false);
}

PyObject *subscript_installed(PyObject *kernel, PyObject *grid) {
  return make_bound(kernel, grid, true);
}

static PyMappingMethods subscript_mapping = {.mp_subscript = subscript};

PyTypeObject Subscript_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.Subscript",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_doc = "Gives a kernel its kernel[grid](...).",
    .tp_as_mapping = &subscript_mapping,
    .tp_new = PyType_GenericNew,
};
