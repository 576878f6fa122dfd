/* Plans by key. A key is compared word by word: a hash only says where to look. */
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

static inline bool same_words(const Plan *plan, const uint64_t *words, Py_ssize_t count) {
  return plan->word_count == count && memcmp(plan->words, words, count * sizeof *words) == 0;
}

/* Borrowed. */
Plan *look_up(const Core *core, const uint64_t *words, Py_ssize_t count, uint64_t hash) {
  if (core->plan_count == 0)
    return NULL;
  for (uint64_t place = hash;; place++) {
    int32_t index = core->table[place & core->table_mask];
    if (index < 0)
      return NULL;
    Plan *plan = core->plans[index];
    if (plan->hash == hash && same_words(plan, words, count))
      return plan;
  }
}

Plan *find_plan(Core *core, const Call *call) {
  Plan *last = core->last;
  if (last != NULL && same_words(last, call->words, call->word_count))
    return last;
  Plan *found = look_up(core, call->words, call->word_count,
                        hash_words(call->words, call->word_count));
  if (found != NULL)
    core->last = found; /* borrowed: it goes when the plan does */
  return found;
}

static void enter(Core *core, int32_t index) {
  uint64_t place = core->plans[index]->hash;
  while (core->table[place & core->table_mask] >= 0)
    place++;
  core->table[place & core->table_mask] = index;
}

static void rebuild(Core *core) {
  memset(core->table, 0xff, (core->table_mask + 1) * sizeof *core->table);
  for (Py_ssize_t i = 0; i < core->plan_count; i++)
    enter(core, (int32_t)i);
}

/* Make room for one more plan; the table stays at most half full. */
static int reserve(Core *core) {
  Py_ssize_t size = core->table == NULL ? 0 : core->table_mask + 1;
  if (2 * (core->plan_count + 1) <= size)
    return 0;
  Py_ssize_t larger = size ? 2 * size : 16;
  int32_t *table = PyMem_Malloc(larger * sizeof *table);
  Plan **plans = table == NULL ? NULL : PyMem_Realloc(core->plans, larger / 2 * sizeof *plans);
  if (plans == NULL) {
    PyMem_Free(table);
    PyErr_NoMemory();
    return -1;
  }
  PyMem_Free(core->table);
  core->plans = plans;
  core->table = table;
  core->table_mask = larger - 1;
  rebuild(core);
  return 0;
}

/* Drop the oldest quarter. */
static void evict(Core *core) {
  Py_ssize_t dropped = core->plan_count / 4 > 0 ? core->plan_count / 4 : 1;
  Plan **old = PyMem_Malloc(dropped * sizeof *old);
  if (old == NULL)
    return; /* the table grows instead */
  memcpy(old, core->plans, dropped * sizeof *old);
  core->plan_count -= dropped;
  memmove(core->plans, core->plans + dropped, core->plan_count * sizeof *core->plans);
  core->last = NULL;
  rebuild(core);
  for (Py_ssize_t i = 0; i < dropped; i++)
    Py_DECREF(old[i]); /* last: it may run Python code */
  PyMem_Free(old);
}

/* Takes over the reference. */
int insert_plan(Core *core, Plan *plan) {
  plan->hash = hash_words(plan->words, plan->word_count);
  Plan *old = look_up(core, plan->words, plan->word_count, plan->hash);
  if (old == NULL) {
    while (core->plan_count >= core->plan_limit && core->plan_count > 0)
      evict(core);
    /* Finalizers may have inserted meanwhile, so only now is there room for sure. */
    if (reserve(core) < 0) {
      Py_DECREF(plan);
      return -1;
    }
    old = look_up(core, plan->words, plan->word_count, plan->hash);
  }
  if (old == NULL) {
    core->plans[core->plan_count] = plan;
    enter(core, (int32_t)core->plan_count++);
    core->last = plan;
    return 0;
  }
  for (Py_ssize_t i = 0; i < core->plan_count; i++)
    if (core->plans[i] == old)
      core->plans[i] = plan;
  core->last = plan;
  Py_DECREF(old);
  return 0;
}

void drop_plans(Core *core) {
  Plan **plans = core->plans;
  Py_ssize_t count = core->plan_count;
  PyMem_Free(core->table);
  core->plans = NULL;
  core->table = NULL;
  core->last = NULL;
  core->plan_count = core->table_mask = 0;
  for (Py_ssize_t i = 0; i < count; i++)
    Py_DECREF(plans[i]);
  PyMem_Free(plans);
}
