/* Arguments to parameters, as Python binds them.
 *
 * A call site with literal keywords passes the same tuple of names each time, so where its
 * keywords go is looked up once. A call with **kwargs makes a new tuple each time, but of the
 * same strings: their addresses are compared. The common cases never compare text.
 */
#include "core.h"

#include <string.h>

void drop_shapes(ShapeTable *shapes) {
  CallShape *old[SHAPES];
  int count = shapes->count;
  memcpy(old, shapes->kept, sizeof old);
  shapes->count = shapes->next = shapes->last = 0;
  for (int i = 0; i < count; i++) {
    Py_DECREF(old[i]->keywords);
    PyMem_Free(old[i]);
  }
}

static bool same_strings(const CallShape *shape, PyObject *keywords, Py_ssize_t count) {
  return shape->count == count &&
         memcmp(((PyTupleObject *)shape->keywords)->ob_item, ((PyTupleObject *)keywords)->ob_item,
                count * sizeof(PyObject *)) == 0;
}

static void keep_shape(ShapeTable *shapes, CallShape *shape) {
  CallShape *old = NULL;
  int place = shapes->next;
  if (shapes->count == SHAPES)
    old = shapes->kept[place];
  else
    shapes->count++;
  shapes->kept[place] = shape;
  shapes->last = place;
  shapes->next = (place + 1) % SHAPES;
  if (old != NULL) { /* only strings go: no Python code runs */
    Py_DECREF(old->keywords);
    PyMem_Free(old);
  }
}

/* Look every keyword up. NULL with an exception, or without one: not bindable here. */
static CallShape *make_shape(ShapeTable *shapes, PyObject *keywords, Py_ssize_t count) {
  bool seen[MAX_PARAMS] = {false};
  if (count > MAX_PARAMS)
    return NULL;
  CallShape *shape = PyMem_Malloc(sizeof *shape + count * sizeof(int16_t));
  if (shape == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  shape->count = count;
  shape->option_count = 0;
  shape->complete = -1;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *name = PyTuple_GET_ITEM(keywords, i);
    /* A subclass of str may compare as it likes. */
    bool plain = PyUnicode_CheckExact(name);
    PyObject *number = plain ? PyDict_GetItemWithError(shapes->index, name) : NULL;
    long slot = number == NULL ? -1 : PyLong_AsLong(number);
    bool fits = plain && (slot < 0 || !seen[slot]);
    if (fits && slot < 0) {
      fits = shape->option_count < MAX_OPTIONS;
      if (fits)
        shape->options[shape->option_count++] = (int)i;
    } else if (fits) {
      seen[slot] = true;
    }
    if (!fits || PyErr_Occurred()) {
      PyMem_Free(shape);
      return NULL;
    }
    shape->slots[i] = (int16_t)slot;
  }
  shape->keywords = Py_NewRef(keywords);
  keep_shape(shapes, shape);
  return shape;
}

/* Where the keywords of a call go; NULL with an exception, or without one: not bindable here. */
CallShape *find_shape(ShapeTable *shapes, PyObject *keywords) {
  int last = shapes->last;
  if (shapes->count > 0 && shapes->kept[last]->keywords == keywords)
    return shapes->kept[last];
  for (int i = 0; i < shapes->count; i++)
    if (shapes->kept[i]->keywords == keywords) {
      shapes->last = i;
      return shapes->kept[i];
    }
  Py_ssize_t count = PyTuple_GET_SIZE(keywords);
  for (int i = 0; i < shapes->count; i++) {
    int place = (last + i) % shapes->count;
    if (same_strings(shapes->kept[place], keywords, count)) {
      shapes->last = place;
      return shapes->kept[place];
    }
  }
  return make_shape(shapes, keywords, count);
}

/* Call the generated binder, which raises what Python says to such a call. What it lets pass is
 * no error but nothing to shorten: an argument that the config gives, say. */
static int misfit(Core *core, const Derivation *derivation, PyObject *const *args,
                  Py_ssize_t nargs, PyObject *kwnames) {
  if (PyErr_Occurred())
    return -1;
  if (derivation != NULL)
    return 0; /* first the heuristics are called, and may raise */
  Py_ssize_t total = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
  PyObject **all = PyMem_Malloc((total + 1) * sizeof *all);
  if (all == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  all[0] = Py_None; /* stands for the grid */
  memcpy(all + 1, args, total * sizeof *all);
  PyObject *binder = Py_NewRef(core->binder);
  PyObject *result = PyObject_Vectorcall(binder, all, nargs + 1, kwnames);
  Py_DECREF(binder);
  PyMem_Free(all);
  Py_XDECREF(result);
  return result == NULL ? -1 : 0;
}

/* What Triton's heuristics would add to the keywords. A caller who gives it too, or leaves out
 * what is asked for, hears from Triton. */
static int derive(const Core *core, PyObject **values, const Derivation *derivation) {
  for (Py_ssize_t i = 0; i < derivation->count; i++) {
    const Derived *item = &derivation->items[i];
    if ((unsigned)item->param >= (unsigned)core->param_count ||
        (unsigned)item->source >= (unsigned)core->param_count || values[item->param] != NULL ||
        values[item->source] == NULL)
      return 0;
    values[item->param] = (values[item->source] == Py_None) == item->for_none ? Py_True : Py_False;
  }
  return 1;
}

int bind_call(Core *core, Call *call, const Derivation *derivation, PyObject *const *args,
              Py_ssize_t nargs, PyObject *kwnames) {
  if (nargs > core->positional_count)
    return misfit(core, derivation, args, nargs, kwnames);
  PyObject **values = call->values;
  if (nargs > 0)
    memcpy(values, args, nargs * sizeof *values);
  int count = core->param_count;
  memset(values + nargs, 0, (count - nargs) * sizeof *values);
  call->option_count = 0;
  Py_ssize_t *complete = &core->complete;
  if (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0) {
    CallShape *shape = find_shape(&core->shapes, kwnames);
    if (shape == NULL)
      return misfit(core, derivation, args, nargs, kwnames);
    complete = &shape->complete;
    /* Copied: the shape may be gone once Python code has run. */
    call->option_count = shape->option_count;
    for (int i = 0; i < shape->option_count; i++) {
      call->option_names[i] = PyTuple_GET_ITEM(kwnames, shape->options[i]);
      call->option_values[i] = args[nargs + shape->options[i]];
    }
    for (Py_ssize_t i = 0; i < shape->count; i++) {
      int slot = shape->slots[i];
      if (slot < 0)
        continue;
      if (slot < nargs) /* given twice */
        return misfit(core, derivation, args, nargs, kwnames);
      values[slot] = args[nargs + i];
    }
  }
  if (derivation != NULL && !derive(core, values, derivation))
    return 0;
  if (*complete == nargs && derivation == NULL)
    return 1;
  bool defaults = derivation != NULL;
  for (int i = 0; i < count; i++) {
    bool given = values[i] != NULL, supplied = core->flags[i] & IS_SUPPLIED;
    if (given != supplied)
      continue;
    if (supplied || core->params[i].fallback == NULL)
      return misfit(core, derivation, args, nargs, kwnames);
    values[i] = core->params[i].fallback;
    defaults = true;
  }
  if (!defaults)
    *complete = nargs;
  return 1;
}
