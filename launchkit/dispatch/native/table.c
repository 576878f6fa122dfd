/* Plans of launches, and of ops, by key. A key is compared word by word: a hash only says where to look. */
#include "core.h"

#include <string.h>

/* Words are mixed in two lanes, since each step waits for the multiplication before it. */
uint64_t hash_words(const uint64_t *words, Py_ssize_t count) {
  const uint64_t factor = 0x9e3779b97f4a7c15u;
  uint64_t a = factor, b = ~factor;
  Py_ssize_t i = 0;
  for (; i + 1 < count; i += 2) {
    a = (a ^ words[i]) * factor;
    b = (b ^ words[i + 1]) * factor;
    a ^= a >> 29;
    b ^= b >> 31;
  }
  if (i < count)
    a = (a ^ words[i]) * factor;
  a ^= b * factor;
  return a ^ a >> 32;
}

static inline bool same_words(const Keyed *keyed, const uint64_t *words, Py_ssize_t count) {
  return keyed->word_count == count && memcmp(keyed->words, words, count * sizeof *words) == 0;
}

/* Give it the key; -1: exception. */
int take_key(Keyed *keyed, const char *bytes, Py_ssize_t size) {
  keyed->words = PyMem_Malloc(size > 0 ? size : 1);
  if (keyed->words == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  memcpy(keyed->words, bytes, size);
  keyed->word_count = size / (Py_ssize_t)sizeof(uint64_t);
  keyed->hash = hash_words(keyed->words, keyed->word_count);
  return 0;
}

/* Borrowed. */
Keyed *look_up(const Table *table, const uint64_t *words, Py_ssize_t count, uint64_t hash) {
  if (table->count == 0)
    return NULL;
  for (uint64_t place = hash;; place++) {
    int32_t index = table->places[place & table->mask];
    if (index < 0)
      return NULL;
    Keyed *keyed = table->items[index];
    if (keyed->hash == hash && same_words(keyed, words, count))
      return keyed;
  }
}

/* Borrowed. */
Keyed *find_keyed(Table *table, const uint64_t *words, Py_ssize_t count) {
  Keyed *last = table->last;
  if (last != NULL && same_words(last, words, count))
    return last;
  Keyed *found = look_up(table, words, count, hash_words(words, count));
  if (found != NULL)
    table->last = found; /* borrowed: it goes when the item does */
  return found;
}

static void enter(Table *table, int32_t index) {
  uint64_t place = table->items[index]->hash;
  while (table->places[place & table->mask] >= 0)
    place++;
  table->places[place & table->mask] = index;
}

static void rebuild(Table *table) {
  memset(table->places, 0xff, (table->mask + 1) * sizeof *table->places);
  for (Py_ssize_t i = 0; i < table->count; i++)
    enter(table, (int32_t)i);
}

/* Make room for one more; the table stays at most half full. */
static int reserve(Table *table) {
  Py_ssize_t size = table->places == NULL ? 0 : table->mask + 1;
  if (2 * (table->count + 1) <= size)
    return 0;
  Py_ssize_t larger = size ? 2 * size : 16;
  int32_t *places = PyMem_Malloc(larger * sizeof *places);
  Keyed **items = places == NULL ? NULL
                                 : PyMem_Realloc(table->items, larger / 2 * sizeof *items);
  if (items == NULL) {
    PyMem_Free(places);
    PyErr_NoMemory();
    return -1;
  }
  PyMem_Free(table->places);
  table->items = items;
  table->places = places;
  table->mask = larger - 1;
  rebuild(table);
  return 0;
}

/* Drop the oldest quarter. */
static void evict(Table *table) {
  Py_ssize_t dropped = table->count / 4 > 0 ? table->count / 4 : 1;
  Keyed **old = PyMem_Malloc(dropped * sizeof *old);
  if (old == NULL)
    return; /* the table grows instead */
  memcpy(old, table->items, dropped * sizeof *old);
  table->count -= dropped;
  memmove(table->items, table->items + dropped, table->count * sizeof *table->items);
  table->last = NULL;
  rebuild(table);
  for (Py_ssize_t i = 0; i < dropped; i++)
    old[i]->kept = false;
  for (Py_ssize_t i = 0; i < dropped; i++)
    Py_DECREF(old[i]); /* last: it may run Python code */
  PyMem_Free(old);
}

/* Takes over the reference. */
int insert_keyed(Table *table, Keyed *keyed) {
  Keyed *old = look_up(table, keyed->words, keyed->word_count, keyed->hash);
  if (old == NULL) {
    for (bool full = true; full && table->count >= table->limit && table->count > 0;) {
      Py_ssize_t count = table->count;
      evict(table);
      full = table->count < count; /* not for ever without memory */
    }
    /* Finalizers may have inserted meanwhile, so only now is there room for sure. */
    if (reserve(table) < 0) {
      Py_DECREF(keyed);
      return -1;
    }
    old = look_up(table, keyed->words, keyed->word_count, keyed->hash);
  }
  keyed->kept = true;
  table->last = keyed;
  if (old == NULL) {
    table->items[table->count] = keyed;
    enter(table, (int32_t)table->count++);
    return 0;
  }
  for (Py_ssize_t i = 0; i < table->count; i++)
    if (table->items[i] == old)
      table->items[i] = keyed;
  old->kept = false;
  Py_DECREF(old);
  return 0;
}

void drop_keyed(Table *table) {
  Keyed **items = table->items;
  Py_ssize_t count = table->count;
  PyMem_Free(table->places);
  table->items = NULL;
  table->places = NULL;
  table->last = NULL;
  table->count = table->mask = 0;
  for (Py_ssize_t i = 0; i < count; i++)
    items[i]->kept = false;
  for (Py_ssize_t i = 0; i < count; i++)
    Py_DECREF(items[i]);
  PyMem_Free(items);
}
