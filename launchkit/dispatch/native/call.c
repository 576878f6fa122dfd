/* Calls whose keywords come as a dictionary.
 *
 * Python passes the many arguments of a call (above thirty, a keyword counted twice) and those of
 * a **mapping as a tuple and a dictionary. What has a vectorcall function gets both spread out, at
 * the price of a new tuple of names; what has none gets them as they are, but for a call of few
 * arguments Python has to make them first. So each callable shows its vectorcall function or not
 * as its last call was. The names here are a tuple that was made for an earlier call, so that
 * bind.c knows them by their address.
 */
#include "core.h"

#include <string.h>

#define FEW 30
#define KEPT_NAMES 64
#define ON_STACK 96

static bool comes_as_dict(Py_ssize_t nargs, Py_ssize_t keywords) {
  return keywords > 0 && nargs + 2 * keywords > FEW;
}

void expect_call(vectorcallfunc *shown, vectorcallfunc function, Py_ssize_t nargs,
                 PyObject *kwnames) {
  bool dict = kwnames != NULL && comes_as_dict(nargs, PyTuple_GET_SIZE(kwnames));
  *shown = dict ? NULL : function;
}

/* ---- which kernels are called so, for a kernel[grid] that is made for one call ---- */

static bool dict_expected[256];

static bool *expectation(PyObject *kernel) {
  uintptr_t address = (uintptr_t)kernel >> 4;
  return &dict_expected[(address ^ address >> 8) & 255];
}

vectorcallfunc expected_call(PyObject *kernel, vectorcallfunc function) {
  return *expectation(kernel) ? NULL : function;
}

void note_call(PyObject *kernel, Py_ssize_t nargs, PyObject *kwnames) {
  *expectation(kernel) = kwnames != NULL && comes_as_dict(nargs, PyTuple_GET_SIZE(kwnames));
}

/* ---- the names of a dictionary ---- */

static PyObject *kept_names[KEPT_NAMES]; /* tuples of strings */

static PyObject **place_of(PyObject *first, Py_ssize_t count) {
  return &kept_names[((uintptr_t)first >> 4 ^ (uintptr_t)count) & (KEPT_NAMES - 1)];
}

/* A new tuple of the names; kept where they are plain strings. */
static PyObject *make_names(PyObject *kwargs) {
  bool plain = true;
  Py_ssize_t position = 0, i = 0, count = PyDict_GET_SIZE(kwargs);
  PyObject *key, *value, *names = PyTuple_New(count);
  while (names != NULL && i < count && PyDict_Next(kwargs, &position, &key, &value)) {
    if (!PyUnicode_Check(key)) {
      PyErr_SetString(PyExc_TypeError, "keywords must be strings");
      Py_CLEAR(names);
      break;
    }
    plain &= PyUnicode_CheckExact(key);
    PyTuple_SET_ITEM(names, i++, Py_NewRef(key));
  }
  if (names != NULL && plain)
    Py_XSETREF(*place_of(PyTuple_GET_ITEM(names, 0), count), Py_NewRef(names));
  return names;
}

/* ---- the entries of a dictionary ----
 *
 * PyDict_Next takes as long for the names of a launch as the launch's key does. Where a
 * dictionary of strings has its entries one beside the other is private to Python, and was the
 * same in 3.11 to 3.13; know_entries() tries it on some before it is relied on.
 */

typedef struct {
  Py_ssize_t references;
  uint8_t log2_size, log2_index_bytes, kind;
  uint32_t version;
  Py_ssize_t usable, count;
  char indices[];
} Keys;

typedef struct {
  PyObject *key, *value;
} KeyValue;

enum { UNICODE_KEYS = 1 };

static bool entries_known;

/* In their order, or NULL where they have holes, or are not only strings, or it is not known. */
static const KeyValue *entries_of(PyObject *kwargs) {
  const PyDictObject *dict = (PyDictObject *)kwargs;
  const Keys *keys = (const Keys *)dict->ma_keys;
  bool dense = entries_known && dict->ma_values == NULL && keys->kind == UNICODE_KEYS &&
               keys->count == dict->ma_used;
  return dense ? (const KeyValue *)(keys->indices + ((size_t)1 << keys->log2_index_bytes)) : NULL;
}

/* 1: read right, 0: not, -1: exception. */
static int reads_entries(PyObject *dict) {
  Py_ssize_t position = 0, i = 0, count = PyDict_GET_SIZE(dict);
  PyObject *key, *value;
  const KeyValue *entries = entries_of(dict);
  while (entries != NULL && PyDict_Next(dict, &position, &key, &value)) {
    if (i == count || entries[i].key != key || entries[i].value != value)
      return 0;
    i++;
  }
  return entries != NULL && i == count;
}

static int try_entries(Py_ssize_t count) {
  PyObject *dict = PyDict_New(), *number = NULL;
  int right = dict == NULL ? -1 : 1;
  for (Py_ssize_t i = 0; right == 1 && i < count; i++) {
    PyObject *key = PyUnicode_FromFormat("name%zd", i);
    Py_XSETREF(number, PyLong_FromSsize_t(1000 + i));
    if (key == NULL || number == NULL || PyDict_SetItem(dict, key, number) < 0)
      right = -1;
    Py_XDECREF(key);
  }
  if (right == 1)
    right = reads_entries(dict);
  /* With a hole, and with a key that is no string, they are not to be read so. */
  if (right == 1 && PyDict_DelItemString(dict, "name0") < 0)
    right = -1;
  if (right == 1 && count > 1)
    right = entries_of(dict) == NULL;
  if (right == 1 && (PyDict_Clear(dict), PyDict_SetItem(dict, number, number) < 0))
    right = -1;
  if (right == 1)
    right = entries_of(dict) == NULL;
  Py_XDECREF(number);
  Py_XDECREF(dict);
  return right;
}

int know_entries(void) {
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
  static const Py_ssize_t counts[] = {1, 5, 6, 10, 11, 46, 170, 171, 300};
  int right = 1;
  entries_known = true;
  for (size_t i = 0; right == 1 && i < sizeof counts / sizeof *counts; i++)
    right = try_entries(counts[i]);
  entries_known = right == 1;
  return right < 0 ? -1 : 0;
#else
  return 0;
#endif
}

/* Borrow the values; false where the names are others. */
static bool borrow_values(PyObject *kwargs, PyObject *names, PyObject **values) {
  const KeyValue *entries = entries_of(kwargs);
  if (entries != NULL) {
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < count; i++) {
      if (entries[i].key != PyTuple_GET_ITEM(names, i))
        return false;
      values[i] = entries[i].value;
    }
    return true;
  }
  Py_ssize_t position = 0, i = 0;
  PyObject *key, *value;
  for (; PyDict_Next(kwargs, &position, &key, &value); values[i++] = value)
    if (key != PyTuple_GET_ITEM(names, i))
      return false;
  return true;
}

static PyObject *take_keywords(PyObject *kwargs, PyObject **values) {
  Py_ssize_t position = 0, count = PyDict_GET_SIZE(kwargs);
  PyObject *key, *value;
  PyDict_Next(kwargs, &position, &key, &value);
  PyObject *names = *place_of(key, count);
  if (names != NULL && PyTuple_GET_SIZE(names) == count && borrow_values(kwargs, names, values))
    return Py_NewRef(names);
  names = make_names(kwargs);
  /* A collection while the tuple was made may have run anything. */
  if (names != NULL &&
      (PyDict_GET_SIZE(kwargs) != count || !borrow_values(kwargs, names, values))) {
    PyErr_SetString(PyExc_RuntimeError, "the keywords of a launch changed while it began");
    Py_CLEAR(names);
  }
  return names;
}

PyObject *call_with_dict(PyObject *self, PyObject *args, PyObject *kwargs, vectorcallfunc function) {
  Py_ssize_t nargs = PyTuple_GET_SIZE(args);
  Py_ssize_t count = kwargs == NULL ? 0 : PyDict_GET_SIZE(kwargs);
  PyObject **items = ((PyTupleObject *)args)->ob_item;
  if (count == 0)
    return function(self, items, (size_t)nargs, NULL);
  PyObject *on_stack[ON_STACK], **vector = on_stack, *result = NULL;
  if (nargs + count > ON_STACK && (vector = PyMem_Malloc((nargs + count) * sizeof *vector)) == NULL)
    return PyErr_NoMemory();
  memcpy(vector, items, nargs * sizeof *vector);
  PyObject *kwnames = take_keywords(kwargs, vector + nargs);
  /* A dictionary that only this call has keeps its values; another one may lose them. */
  Py_ssize_t held = Py_REFCNT(kwargs) == 1 || kwnames == NULL ? 0 : count;
  for (Py_ssize_t i = 0; i < held; i++)
    Py_INCREF(vector[nargs + i]);
  if (kwnames != NULL)
    result = function(self, vector, (size_t)nargs, kwnames);
  for (Py_ssize_t i = 0; i < held; i++)
    Py_DECREF(vector[nargs + i]);
  Py_XDECREF(kwnames);
  if (vector != on_stack)
    PyMem_Free(vector);
  return result;
}
