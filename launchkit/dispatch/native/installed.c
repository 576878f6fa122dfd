/* What stands in front of a kernel that was not written for launchkit: the kernel[grid] that
 * install() puts into Triton's classes, and heuristics above a kernel.
 */
#include "core.h"

#include <string.h>
#include <structmember.h>

/* ---- InstalledSubscript: kernel[grid] of Triton's classes under install() ---- */

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *decide; /* (kernel, grid): what launches a kernel that has no such route yet */
  PyObject *route;  /* what a kernel holds that launches through its entry; None: no kernel does */
} InstalledSubscript;

/* 1: the kernel launches through its entry, 0: Python has to look, -1: exception. */
static int is_routed(PyObject *kernel, PyObject *route) {
  if (route == NULL || route == Py_None)
    return 0;
  PyObject *dict = PyObject_GenericGetDict(kernel, NULL);
  if (dict == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError))
      return -1;
    PyErr_Clear();
    return 0;
  }
  PyObject *found = PyDict_GetItemWithError(dict, names.route);
  Py_DECREF(dict);
  return found == NULL && PyErr_Occurred() ? -1 : found == route;
}

static PyObject *installed_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                                      PyObject *kwnames) {
  InstalledSubscript *installed = (InstalledSubscript *)self;
  int routed = 0;
  if (PyVectorcall_NARGS(nargsf) == 2 && kwnames == NULL)
    routed = is_routed(args[0], installed->route);
  if (routed != 0)
    return routed < 0 ? NULL : subscript_installed(args[0], args[1]);
  PyObject *decide = Py_NewRef(installed->decide);
  PyObject *result = PyObject_Vectorcall(decide, args, PyVectorcall_NARGS(nargsf), kwnames);
  Py_DECREF(decide);
  return result;
}

static PyObject *installed_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"decide", NULL};
  PyObject *decide;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:InstalledSubscript", keywords, &decide))
    return NULL;
  InstalledSubscript *installed = (InstalledSubscript *)type->tp_alloc(type, 0);
  if (installed == NULL)
    return NULL;
  installed->vectorcall = installed_vectorcall;
  installed->decide = Py_NewRef(decide);
  return (PyObject *)installed;
}

static int installed_traverse(InstalledSubscript *installed, visitproc visit, void *arg) {
  Py_VISIT(installed->decide);
  Py_VISIT(installed->route);
  return 0;
}

static int installed_clear(InstalledSubscript *installed) {
  Py_CLEAR(installed->route); /* decide stays: a call relies on it */
  return 0;
}

static void installed_dealloc(InstalledSubscript *installed) {
  PyObject_GC_UnTrack(installed);
  Py_XDECREF(installed->route);
  Py_DECREF(installed->decide);
  Py_TYPE(installed)->tp_free((PyObject *)installed);
}

static PyObject *installed_get(PyObject *self, PyObject *kernel, PyObject *Py_UNUSED(type)) {
  return kernel == NULL || kernel == Py_None ? Py_NewRef(self) : PyMethod_New(self, kernel);
}

static PyMemberDef installed_members[] = {
    {"route", T_OBJECT, offsetof(InstalledSubscript, route), 0,
     "What a kernel holds as _launchkit_route that launches through its entry."},
    {NULL},
};

PyTypeObject InstalledSubscript_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.InstalledSubscript",
    .tp_basicsize = sizeof(InstalledSubscript),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_doc = "kernel[grid] of a class of Triton's while install() is in force.",
    .tp_new = installed_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(InstalledSubscript, vectorcall),
    .tp_descr_get = installed_get,
    .tp_traverse = (traverseproc)installed_traverse,
    .tp_clear = (inquiry)installed_clear,
    .tp_dealloc = (destructor)installed_dealloc,
    .tp_members = installed_members,
};

/* ---- HeuristicFront: heuristics that only ask whether an argument is None ---- */

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *below;    /* the Entry of the kernel under the heuristics */
  PyObject *fallback; /* the same front in Python, for what is below and is no Core */
  WatchSet *premises; /* the heuristics are as they were */
  Derivation derivation;
} HeuristicFront;

PyObject *front_launch(PyObject *self, PyObject *grid, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames) {
  HeuristicFront *front = (HeuristicFront *)self;
  PyObject *result, *direct = Py_XNewRef(((Entry *)front->below)->direct);
  if (direct == NULL || Py_TYPE(direct) != &Core_Type) {
    Py_XDECREF(direct);
    return call_with_grid(front->fallback, grid, args, nargs, kwnames);
  }
  int holds = watches_hold(front->premises);
  if (holds == 1)
    result = core_launch((Core *)direct, &front->derivation, grid, args, nargs, kwnames);
  else
    result = holds < 0 ? NULL : Py_NewRef(rt.miss);
  Py_DECREF(direct);
  return result;
}

static PyObject *front_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                                  PyObject *kwnames) {
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (nargs < 1) {
    PyErr_SetString(PyExc_TypeError, "a launch needs a grid");
    return NULL;
  }
  return front_launch(self, args[0], args + 1, nargs - 1, kwnames);
}

static int fill_derivation(Derivation *derivation, PyObject *specs) {
  Py_ssize_t count = PyTuple_GET_SIZE(specs);
  derivation->items = PyMem_Calloc(count + 1, sizeof *derivation->items);
  if (derivation->items == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    Derived *item = &derivation->items[i];
    int for_none;
    if (!PARSE_ITEM(PyTuple_GET_ITEM(specs, i), "iip", &item->param, &item->source, &for_none))
      return -1;
    item->for_none = for_none;
    derivation->count++;
  }
  return 0;
}

static PyObject *front_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"below", "derived", "premises", "fallback", NULL};
  PyObject *below, *derived, *premises, *fallback;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!O:HeuristicFront", keywords, &Entry_Type,
                                   &below, &PyTuple_Type, &derived, &WatchSet_Type, &premises,
                                   &fallback))
    return NULL;
  HeuristicFront *front = (HeuristicFront *)type->tp_alloc(type, 0);
  if (front == NULL)
    return NULL;
  front->vectorcall = front_vectorcall;
  front->below = Py_NewRef(below);
  front->fallback = Py_NewRef(fallback);
  front->premises = (WatchSet *)Py_NewRef(premises);
  if (fill_derivation(&front->derivation, derived) < 0)
    Py_CLEAR(front);
  return (PyObject *)front;
}

/* There is no tp_clear: a call relies on all of it, and every cycle passes a launcher, too. */
static int front_traverse(HeuristicFront *front, visitproc visit, void *arg) {
  Py_VISIT(front->below);
  Py_VISIT(front->fallback);
  Py_VISIT(front->premises);
  return 0;
}

static void front_dealloc(HeuristicFront *front) {
  PyObject_GC_UnTrack(front);
  Py_XDECREF(front->below);
  Py_XDECREF(front->fallback);
  Py_XDECREF(front->premises);
  PyMem_Free(front->derivation.items);
  Py_TYPE(front)->tp_free((PyObject *)front);
}

PyTypeObject HeuristicFront_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.HeuristicFront",
    .tp_basicsize = sizeof(HeuristicFront),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Launches with the values of heuristics that only ask for None.",
    .tp_new = front_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(HeuristicFront, vectorcall),
    .tp_traverse = (traverseproc)front_traverse,
    .tp_dealloc = (destructor)front_dealloc,
};
