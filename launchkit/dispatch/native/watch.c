/* Premises: what a plan was made on, checked at each launch for the price of a few loads.
 *
 * A watch is a dictionary (the attributes of a knob object, a module's globals, Triton's table
 * of compiled kernels) and what it has to hold under some keys, compared by identity. Where
 * CPython counts a dictionary's changes, an unchanged one is not even looked into; since 3.12
 * it tells of each, and while there was none at all no dictionary is.
 */
#include "core.h"

typedef struct {
  PyObject *key;
  PyObject *value; /* NULL: there is no such key */
} Item;

/* What else than the expected object will do. */
typedef enum {
  SAME = 0,
  EQUAL = 1, /* an equal one, where Triton compares values */
  OFF = 2,   /* what a switch that is off may say: False, None, "" */
} Mode;

typedef struct {
  PyObject *dict;
  PyTypeObject *type; /* whose class attributes count too; may be NULL */
  uint64_t dict_tag;
  unsigned type_tag;
  bool closed;   /* no further keys either */
  int mode;      /* Mode */
  Py_ssize_t count;
  Item *items;
} Watch;

typedef struct {
  PyObject *list;     /* a list or a tuple */
  PyObject *elements; /* tuple: what it has to hold, by identity */
} Sequence;

typedef struct {
  PyTypeObject *type; /* a watch holds it */
  unsigned tag;
} TypeTag;

struct WatchSet {
  PyObject_HEAD
  Py_ssize_t watch_count, sequence_count;
  Watch *watches;
  Sequence *sequences;
  Py_ssize_t typed_count;
  TypeTag *typed;
  uint64_t seen; /* as many changes there were when everything held; 0: none is known of */
};

/* ---- every change of a watched dictionary, counted before it is made ---- */

static uint64_t changes = 1;
static int watcher = -1;

#if PY_VERSION_HEX >= 0x030C0000
static int count_change(PyDict_WatchEvent Py_UNUSED(event), PyObject *Py_UNUSED(dict),
                        PyObject *Py_UNUSED(key), PyObject *Py_UNUSED(value)) {
  changes++;
  return 0;
}

/* Store or, with NULL, delete an attribute: is it counted? */
static bool is_told(PyObject *object, const char *name, PyObject *value) {
  uint64_t before = changes;
  return PyObject_SetAttrString(object, name, value) == 0 && changes != before;
}

/* 3.13.0 tells nothing of an attribute that is stored in an object, only of what is stored in the
 * object's dictionary. */
static bool tells_of_attributes(void) {
  PyObject *kind = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){}", "Probe");
  PyObject *object = kind == NULL ? NULL : PyObject_CallNoArgs(kind), *dict = NULL;
  bool told = false;
  if (object != NULL && PyObject_SetAttrString(object, "kept", Py_None) == 0)
    dict = PyObject_GenericGetDict(object, NULL);
  if (dict != NULL && PyDict_Watch(watcher, dict) == 0)
    told = is_told(object, "kept", Py_True) && is_told(object, "new", Py_True) &&
           is_told(object, "kept", NULL);
  PyErr_Clear();
  Py_XDECREF(dict);
  Py_XDECREF(object);
  Py_XDECREF(kind);
  return told;
}
#endif

/* Once; where all of Python's watchers are taken, or do not tell all, dictionaries are looked
 * into. */
void make_watcher(void) {
#if PY_VERSION_HEX >= 0x030C0000
  watcher = PyDict_AddWatcher(count_change);
  if (watcher >= 0 && !tells_of_attributes()) {
    PyDict_ClearWatcher(watcher);
    watcher = -1;
  }
  if (watcher < 0)
    PyErr_Clear();
#endif
}

static int watch_changes(PyObject *dict) {
#if PY_VERSION_HEX >= 0x030C0000
  if (watcher >= 0)
    return PyDict_Watch(watcher, dict);
#endif
  (void)dict;
  return 0;
}

/* A number that changes with the dictionary, or 0 where there is none: since 3.13 attributes can
 * be stored past the dictionary without a count. */
static inline uint64_t change_tag(PyObject *dict) {
#if PY_VERSION_HEX < 0x030D0000
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
  return ((PyDictObject *)dict)->ma_version_tag;
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#else
  (void)dict;
  return 0;
#endif
}

static inline unsigned class_tag(PyTypeObject *type) {
  return type->tp_version_tag; /* 0 after a change, until the next lookup */
}

/* 1: as expected, 0: not, -1: exception. */
static int item_holds(PyObject *dict, const Item *item, int mode) {
  PyObject *found = PyDict_GetItemWithError(dict, item->key);
  if (found == item->value)
    return found != NULL || !PyErr_Occurred() ? 1 : -1;
  if (found == NULL)
    return PyErr_Occurred() ? -1 : 0;
  if (mode == OFF)
    return found == Py_False || found == Py_None ||
           (PyUnicode_CheckExact(found) && PyUnicode_GET_LENGTH(found) == 0);
  if (mode != EQUAL || item->value == NULL)
    return 0;
  /* Triton asks «!=» of the two, in this order. */
  PyObject *expected = Py_NewRef(item->value);
  Py_INCREF(found);
  int differs = PyObject_RichCompareBool(found, expected, Py_NE);
  Py_DECREF(found);
  Py_DECREF(expected);
  return differs < 0 ? -1 : !differs;
}

static int watch_holds(Watch *watch) {
  if (watch->type != NULL && (class_tag(watch->type) != watch->type_tag || !watch->type_tag))
    return 0;
  uint64_t tag = change_tag(watch->dict);
  if (tag && tag == watch->dict_tag)
    return 1;
  if (watch->closed && PyDict_GET_SIZE(watch->dict) != watch->count)
    return 0;
  for (Py_ssize_t i = 0; i < watch->count; i++) {
    int holds = item_holds(watch->dict, &watch->items[i], watch->mode);
    if (holds <= 0)
      return holds;
  }
  /* The tag of before: a comparison may have run Python code that changed it. */
  if (tag == change_tag(watch->dict))
    watch->dict_tag = tag;
  return 1;
}

static int sequence_holds(const Sequence *sequence) {
  PyObject *list = sequence->list;
  Py_ssize_t count = PyTuple_GET_SIZE(sequence->elements);
  if (PySequence_Fast_GET_SIZE(list) != count)
    return 0;
  PyObject **found = PySequence_Fast_ITEMS(list);
  for (Py_ssize_t i = 0; i < count; i++)
    if (found[i] != PyTuple_GET_ITEM(sequence->elements, i))
      return 0;
  return 1;
}

static inline bool types_hold(const WatchSet *set) {
  for (Py_ssize_t i = 0; i < set->typed_count; i++)
    if (class_tag(set->typed[i].type) != set->typed[i].tag)
      return false;
  return true;
}

int watches_hold(WatchSet *set) {
  if (set->watches == NULL) /* the garbage collector was here */
    return 0;
  for (Py_ssize_t i = 0; i < set->sequence_count; i++)
    if (!sequence_holds(&set->sequences[i]))
      return 0;
  if (set->seen == changes && types_hold(set))
    return 1;
  uint64_t now = changes; /* of before: a comparison may run Python code */
  for (Py_ssize_t i = 0; i < set->watch_count; i++) {
    Watch *watch = &set->watches[i];
    /* What nearly always holds, without a call. */
    uint64_t tag = change_tag(watch->dict);
    if (tag && tag == watch->dict_tag && watch->type == NULL)
      continue;
    int holds = watch_holds(watch);
    if (holds <= 0)
      return holds;
  }
  if (watcher >= 0)
    set->seen = now;
  return 1;
}

int premises_hold(WatchSet *premises) {
  if (premises == NULL)
    return 0;
  Py_INCREF(premises);
  int holds = watches_hold(premises);
  Py_DECREF(premises);
  return holds;
}

/* ---- made from Python: WatchSet(watches, sequences) ---- */

static int fill_watch(Watch *watch, PyObject *spec) {
  PyObject *dict, *expected, *type;
  int closed, mode;
  if (!PARSE_ITEM(spec, "O!O!Opi", &PyDict_Type, &dict, &PyDict_Type, &expected, &type,
                        &closed, &mode))
    return -1;
  if (type != Py_None && !PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "a watch's type must be a type or None");
    return -1;
  }
  watch->items = PyMem_Calloc(PyDict_GET_SIZE(expected) + 1, sizeof(Item));
  if (watch->items == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  watch->dict = Py_NewRef(dict);
  watch->closed = closed;
  watch->mode = mode;
  if (type != Py_None) {
    watch->type = (PyTypeObject *)Py_NewRef(type);
    _PyType_Lookup(watch->type, names.entry); /* any lookup gives the class a tag */
    watch->type_tag = class_tag(watch->type);
  }
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(expected, &position, &key, &value)) {
    Item *item = &watch->items[watch->count++];
    item->key = Py_NewRef(key);
    item->value = value == rt.absent ? NULL : Py_NewRef(value);
  }
  return watch_changes(dict);
}

static int fill_sequence(Sequence *sequence, PyObject *spec) {
  PyObject *list, *elements;
  if (!PARSE_ITEM(spec, "OO!", &list, &PyTuple_Type, &elements))
    return -1;
  if (!PyList_CheckExact(list) && !PyTuple_CheckExact(list)) {
    PyErr_SetString(PyExc_TypeError, "only lists and tuples can be watched");
    return -1;
  }
  sequence->list = Py_NewRef(list);
  sequence->elements = Py_NewRef(elements);
  return 0;
}

static int fill(WatchSet *set, PyObject *watches, PyObject *sequences) {
  set->watches = PyMem_Calloc(PyTuple_GET_SIZE(watches) + 1, sizeof(Watch));
  set->sequences = PyMem_Calloc(PyTuple_GET_SIZE(sequences) + 1, sizeof(Sequence));
  set->typed = PyMem_Calloc(PyTuple_GET_SIZE(watches) + 1, sizeof(TypeTag));
  if (set->watches == NULL || set->sequences == NULL || set->typed == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  /* Counted first: what was filled in part is released with the rest. */
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(watches); i++) {
    set->watch_count++;
    Watch *watch = &set->watches[i];
    if (fill_watch(watch, PyTuple_GET_ITEM(watches, i)) < 0)
      return -1;
    if (watch->type != NULL)
      set->typed[set->typed_count++] = (TypeTag){watch->type, watch->type_tag};
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sequences); i++) {
    set->sequence_count++;
    if (fill_sequence(&set->sequences[i], PyTuple_GET_ITEM(sequences, i)) < 0)
      return -1;
  }
  return 0;
}

static PyObject *set_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *watches, *sequences;
  static char *keywords[] = {"watches", "sequences", NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!:WatchSet", keywords, &PyTuple_Type,
                                   &watches, &PyTuple_Type, &sequences))
    return NULL;
  WatchSet *set = (WatchSet *)type->tp_alloc(type, 0);
  if (set != NULL && fill(set, watches, sequences) < 0)
    Py_CLEAR(set);
  return (PyObject *)set;
}

static int set_traverse(WatchSet *set, visitproc visit, void *arg) {
  for (Py_ssize_t i = 0; i < set->watch_count; i++) {
    Watch *watch = &set->watches[i];
    Py_VISIT(watch->dict);
    Py_VISIT(watch->type);
    for (Py_ssize_t j = 0; j < watch->count; j++) {
      Py_VISIT(watch->items[j].key);
      Py_VISIT(watch->items[j].value);
    }
  }
  for (Py_ssize_t i = 0; i < set->sequence_count; i++) {
    Py_VISIT(set->sequences[i].list);
    Py_VISIT(set->sequences[i].elements);
  }
  return 0;
}

static int set_clear(WatchSet *set) {
  Watch *watches = set->watches;
  Sequence *sequences = set->sequences;
  Py_ssize_t watch_count = set->watch_count, sequence_count = set->sequence_count;
  /* Taken off first: releasing a value may run code that comes back here. */
  set->watches = NULL;
  set->sequences = NULL;
  set->watch_count = set->sequence_count = set->typed_count = 0;
  for (Py_ssize_t i = 0; i < watch_count; i++) {
    for (Py_ssize_t j = 0; j < watches[i].count; j++) {
      Py_DECREF(watches[i].items[j].key);
      Py_XDECREF(watches[i].items[j].value);
    }
    PyMem_Free(watches[i].items);
    Py_XDECREF(watches[i].dict);
    Py_XDECREF(watches[i].type);
  }
  for (Py_ssize_t i = 0; i < sequence_count; i++) {
    Py_XDECREF(sequences[i].list);
    Py_XDECREF(sequences[i].elements);
  }
  PyMem_Free(watches);
  PyMem_Free(sequences);
  PyMem_Free(set->typed);
  set->typed = NULL;
  return 0;
}

static void set_dealloc(WatchSet *set) {
  PyObject_GC_UnTrack(set);
  set_clear(set);
  Py_TYPE(set)->tp_free((PyObject *)set);
}

static PyObject *set_holds(WatchSet *set, PyObject *Py_UNUSED(ignored)) {
  int holds = premises_hold(set);
  return holds < 0 ? NULL : PyBool_FromLong(holds);
}

static PyMethodDef set_methods[] = {
    {"hold", (PyCFunction)set_holds, METH_NOARGS, "Tell whether everything is as it was."},
    {NULL},
};

PyTypeObject WatchSet_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "launchkit.dispatch.native._core.WatchSet",
    .tp_basicsize = sizeof(WatchSet),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Dictionaries and lists that must be as they were for a plan to hold.",
    .tp_new = set_new,
    .tp_traverse = (traverseproc)set_traverse,
    .tp_clear = (inquiry)set_clear,
    .tp_dealloc = (destructor)set_dealloc,
    .tp_methods = set_methods,
};
