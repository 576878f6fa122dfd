/* The ways in: launch(kernel, grid, ...) and launch_autotuned(kernel, grid, ...), without a line
 * of Python in front of the core; what hangs on a kernel, and how it launches.
 */
#include "core.h"

#include <string.h>
#include <structmember.h>

/* ---- Entry: what hangs on a kernel ---- */

static int entry_traverse(Entry *entry, visitproc visit, void *arg) {
  Py_VISIT(entry->kernel);
  Py_VISIT(entry->fast);
  Py_VISIT(entry->direct);
  return 0;
}

static int entry_clear(Entry *entry) {
  Py_CLEAR(entry->kernel);
  Py_CLEAR(entry->fast);
  Py_CLEAR(entry->direct);
  return 0;
}

static void entry_dealloc(Entry *entry) {
  PyObject_GC_UnTrack(entry);
  entry_clear(entry);
  Py_TYPE(entry)->tp_free((PyObject *)entry);
}

static PyMemberDef entry_members[] = {
    {"kernel", T_OBJECT, offsetof(Entry, kernel), 0, "The kernel that is launched."},
    {"fast", T_OBJECT_EX, offsetof(Entry, fast), 0, "Launches, or returns MISS."},
    {"direct", T_OBJECT_EX, offsetof(Entry, direct), 0, "The same without a launch slot."},
    {"autotuned", T_BOOL, offsetof(Entry, autotuned), 0, "Whether the kernel has configs."},
    {NULL},
};

PyTypeObject Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.Entry",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "Base of a kernel's launcher: what a launch reads of it.",
    .tp_new = PyType_GenericNew,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_members = entry_members,
};

/* A new reference to the kernel's entry; it is made on the first launch. */
static Entry *entry_of(PyObject *kernel) {
  PyObject *dict = PyObject_GenericGetDict(kernel, NULL);
  if (dict == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError))
      return NULL;
    PyErr_Clear(); /* no kernel at all: adopting it says so */
  } else {
    PyObject *found = PyDict_GetItemWithError(dict, names.entry);
    if (found != NULL && PyObject_TypeCheck(found, &Entry_Type) &&
        ((Entry *)found)->kernel == kernel && ((Entry *)found)->fast != NULL) {
      Py_INCREF(found);
      Py_DECREF(dict);
      return (Entry *)found;
    }
    Py_DECREF(dict);
    if (found == NULL && PyErr_Occurred())
      return NULL;
  }
  PyObject *made = PyObject_CallOneArg(rt.adopt, kernel);
  if (made == NULL)
    return NULL;
  if (!PyObject_TypeCheck(made, &Entry_Type) || ((Entry *)made)->fast == NULL) {
    PyErr_SetString(PyExc_TypeError, "a kernel was adopted without a launcher");
    Py_CLEAR(made);
  }
  return (Entry *)made;
}

/* ---- launching through an entry ---- */

PyObject *tuple_of(PyObject *const *args, Py_ssize_t nargs) {
  PyObject *tuple = PyTuple_New(nargs);
  for (Py_ssize_t i = 0; tuple != NULL && i < nargs; i++)
    PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i]));
  return tuple;
}

PyObject *dict_of(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  PyObject *dict = PyDict_New();
  Py_ssize_t count = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; dict != NULL && i < count; i++)
    if (PyDict_SetItem(dict, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0)
      Py_CLEAR(dict);
  return dict;
}

static PyObject *launch_slowly(Entry *entry, const Asked *given) {
  if (profiling)
    profile_slow();
  if (recordings > 0 && end_recording("a launch went through Triton") < 0)
    return NULL;
  PyObject *result = NULL, *args = tuple_of(given->args, given->nargs);
  PyObject *kwargs = dict_of(given->args, given->nargs, given->kwnames);
  if (args != NULL && kwargs != NULL)
    result = PyObject_CallMethodObjArgs((PyObject *)entry, names.missed, given->grid, args, kwargs,
                                        NULL);
  Py_XDECREF(args);
  Py_XDECREF(kwargs);
  return result;
}

/* Call any callable with the grid in front of the arguments. */
PyObject *call_with_grid(PyObject *callable, PyObject *grid, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames) {
  Py_ssize_t total = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
  PyObject **all = PyMem_Malloc((total + 1) * sizeof *all);
  if (all == NULL)
    return PyErr_NoMemory();
  all[0] = grid;
  if (total > 0)
    memcpy(all + 1, args, total * sizeof *all);
  PyObject *result = PyObject_Vectorcall(callable, all, nargs + 1, kwnames);
  PyMem_Free(all);
  return result;
}

static PyObject *launch_through(Entry *entry, const Asked *given) {
  PyObject *fast = Py_NewRef(entry->fast); /* a launch slot may replace it meanwhile */
  PyObject *result;
  if (recordings > 0)
    record_entry(entry);
  if (Py_TYPE(fast) == &Core_Type)
    result = core_launch((Core *)fast, NULL, given->grid, given->args, given->nargs,
                         given->kwnames);
  else if (Py_TYPE(fast) == &HeuristicFront_Type && !own_recording())
    result = front_launch(fast, given->grid, given->args, given->nargs, given->kwnames);
  else
    result = call_with_grid(fast, given->grid, given->args, given->nargs, given->kwnames);
  Py_DECREF(fast);
  if (result != rt.miss)
    return result;
  Py_DECREF(result);
  return launch_slowly(entry, given);
}

/* The same, timed for profile_launches(). */
static PyObject *launch_recorded(Entry *entry, const Asked *given) {
  int token = profile_begin((PyObject *)entry, &entry->subject);
  if (token == BEGIN_FAILED)
    return NULL;
  bool in_core = Py_TYPE(entry->fast) == &Core_Type || Py_TYPE(entry->fast) == &HeuristicFront_Type;
  PyObject *result = launch_through(entry, given);
  if (token >= 0)
    profile_end(token, result == NULL ? RAISED : in_core ? RETURNED_FROM_CORE : RETURNED);
  return result;
}

static PyObject *launch_kernel(PyObject *kernel, const Asked *given, bool autotuned) {
  Entry *entry = entry_of(kernel);
  if (entry == NULL)
    return NULL;
  PyObject *result;
  if (autotuned && !entry->autotuned)
    result = PyObject_CallOneArg(rt.refuse, (PyObject *)entry);
  else
    result = profiling && !profile_skips() ? launch_recorded(entry, given)
                                           : launch_through(entry, given);
  Py_DECREF(entry);
  return result;
}

/* ---- launches of install()'s kernel[grid] ----
 *
 * On the current device, as Triton's; all others where their tensors are. Only a miss asks which.
 */

static _Thread_local bool by_install; /* the innermost launch of this thread is one */
static int installed_launches;        /* under way, in any thread */

PyObject *begun_by_install(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
  return PyBool_FromLong(by_install);
}

PyObject *launch_kernel_installed(PyObject *kernel, const Asked *given) {
  bool before = by_install;
  by_install = true;
  installed_launches++;
  PyObject *result = launch_kernel(kernel, given, false);
  installed_launches--;
  by_install = before;
  return result;
}

PyObject *launch_own(PyObject *kernel, const Asked *given, bool autotuned) {
  if (installed_launches == 0 || !by_install)
    return launch_kernel(kernel, given, autotuned);
  by_install = false; /* a hook or a grid function of such a launch makes this one */
  PyObject *result = launch_kernel(kernel, given, autotuned);
  by_install = true;
  return result;
}

/* ---- launch and launch_autotuned ---- */

/* torch.compile traces the Python function of the same name; an eager call that torch makes
 * while it compiles is left to Triton, as that function does. */
static PyObject *launch_while_compiling(PyObject *kernel, const Asked *given) {
  PyObject *bound = PyObject_GetItem(kernel, given->grid);
  if (bound == NULL)
    return NULL;
  PyObject *result = PyObject_Vectorcall(bound, given->args, given->nargs, given->kwnames);
  Py_DECREF(bound);
  return result;
}

static PyObject *launch_any(PyObject *const *args, size_t nargsf, PyObject *kwnames,
                            bool autotuned) {
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (nargs < 2)
    return PyErr_Format(PyExc_TypeError,
                        "%s() needs a kernel and a grid by position. Write %s(kernel, grid, ...).",
                        autotuned ? "launch_autotuned" : "launch",
                        autotuned ? "launch_autotuned" : "launch");
  Asked given = {args[1], args + 2, nargs - 2, kwnames};
  PyObject *compiling = PyDict_GetItemWithError(rt.compiler, names.compiling);
  if (compiling != Py_False) {
    int is = compiling == NULL ? (PyErr_Occurred() ? -1 : 0) : PyObject_IsTrue(compiling);
    if (is != 0)
      return is < 0 ? NULL : launch_while_compiling(args[0], &given);
  }
  return launch_own(args[0], &given, autotuned);
}

static vectorcallfunc *shown_by(PyObject *function) {
  return (vectorcallfunc *)((char *)function + Py_TYPE(function)->tp_vectorcall_offset);
}

static PyObject *launch_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                                   PyObject *kwnames) {
  expect_call(shown_by(self), launch_vectorcall, PyVectorcall_NARGS(nargsf), kwnames);
  return launch_any(args, nargsf, kwnames, false);
}

static PyObject *launch_autotuned_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                                             PyObject *kwnames) {
  expect_call(shown_by(self), launch_autotuned_vectorcall, PyVectorcall_NARGS(nargsf), kwnames);
  return launch_any(args, nargsf, kwnames, true);
}

static PyObject *launch_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  return call_with_dict(self, args, kwargs, launch_vectorcall);
}

static PyObject *launch_autotuned_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  return call_with_dict(self, args, kwargs, launch_autotuned_vectorcall);
}

static bool has_kernel_and_grid(Py_ssize_t nargs) {
  if (nargs < 2)
    PyErr_SetString(PyExc_TypeError, "a launch needs a kernel and a grid by position");
  return nargs >= 2;
}

/* launch_adopted(kernel, grid, ...): launch, for callers that torch.compile does not enter. */
PyObject *launch_adopted(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames) {
  if (!has_kernel_and_grid(nargs))
    return NULL;
  Asked given = {args[1], args + 2, nargs - 2, kwnames};
  return launch_own(args[0], &given, false);
}

PyObject *launch_installed(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames) {
  if (!has_kernel_and_grid(nargs))
    return NULL;
  Asked given = {args[1], args + 2, nargs - 2, kwnames};
  return launch_kernel_installed(args[0], &given);
}

static PyObject *function_repr(PyObject *self) {
  PyObject *name = PyObject_GetAttrString(self, "__name__");
  PyObject *text = name == NULL ? NULL : PyUnicode_FromFormat("<launchkit function %S>", name);
  Py_XDECREF(name);
  return text;
}

/* The type of launch functions: a functools.partial of the Python function, so that
 * torch.compile, which knows partials, traces that function; called, it never enters it. */
static PyTypeObject *make_function_type(PyTypeObject *partial, ternaryfunc call) {
  static Py_ssize_t offset; /* of the slot for vectorcall, in a layout that only partial knows */
  static PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, 0, READONLY}, {NULL}};
  PyType_Slot slots[] = {{Py_tp_call, call},
                         {Py_tp_repr, function_repr},
                         {Py_tp_members, members},
                         {0, NULL}};
  PyType_Spec spec = {.name = "launchkit.dispatch.native._core.LaunchFunction",
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
                      .slots = slots};
  offset = partial->tp_vectorcall_offset;
  if (offset <= 0) {
    PyErr_SetString(PyExc_TypeError, "functools.partial has another layout than is known");
    return NULL;
  }
  members[0].offset = offset;
  PyObject *bases = PyTuple_Pack(1, partial);
  PyObject *type = bases == NULL ? NULL : PyType_FromSpecWithBases(&spec, bases);
  Py_XDECREF(bases);
  return (PyTypeObject *)type;
}

/* make_launch_function(partial type, Python function, autotuned) */
PyObject *make_launch_function(PyObject *Py_UNUSED(module), PyObject *args) {
  static PyTypeObject *types[2];
  PyObject *partial, *function;
  int autotuned;
  if (!PyArg_ParseTuple(args, "O!Op", &PyType_Type, &partial, &function, &autotuned))
    return NULL;
  PyTypeObject **type = &types[autotuned];
  if (*type == NULL)
    *type = make_function_type((PyTypeObject *)partial,
                               autotuned ? launch_autotuned_call : launch_call);
  PyObject *made = *type == NULL ? NULL : PyObject_CallOneArg((PyObject *)*type, function);
  if (made != NULL)
    *shown_by(made) = autotuned ? launch_autotuned_vectorcall : launch_vectorcall;
  return made;
}
