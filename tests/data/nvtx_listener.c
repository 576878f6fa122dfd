/* An NVTX tool for tests: appends one line per event to the file NVTX_LISTENER_OUT.
 *
 * NVTX loads it where NVTX_INJECTION64_PATH names it and calls InitializeInjectionNvtx2; the
 * numbers below are NVTX 3's binary interface (module CORE2 and its callback ids).
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLBACKS_TABLE = 1, CORE2 = 5 };
enum { PUSH = 4, POP = 5, NAME_CATEGORY = 8, REGISTER_STRING = 10, CREATE_DOMAIN = 12 };
enum { PAYLOAD_INT64 = 2, MESSAGE_REGISTERED = 3 };

typedef void (*function)(void);

typedef struct {
  size_t size;
  int (*module_functions)(int module, function ***table, unsigned *count);
} callbacks;

typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  int64_t payload;
  int32_t message_type;
  const char *message; /* a registered string's handle: what register_string returned */
} event;

static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define LINE(...)                   \
  do {                              \
    pthread_mutex_lock(&lock);      \
    fprintf(out, __VA_ARGS__);      \
    fflush(out);                    \
    pthread_mutex_unlock(&lock);    \
  } while (0)

static const char *create_domain(const char *name) { return strdup(name); }

static const char *register_string(const char *domain, const char *text) {
  (void)domain;
  return strdup(text);
}

static void name_category(const char *domain, uint32_t category, const char *name) {
  LINE("category\t%s\t%u\t%s\n", domain, category, name);
}

static int push(const char *domain, const event *e) {
  const char *text = e->message_type == MESSAGE_REGISTERED ? e->message : "(not registered)";
  if (e->payload_type == PAYLOAD_INT64)
    LINE("push\t%s\t%s\t%u\tint64:%lld\n", domain, text, e->category, (long long)e->payload);
  else
    LINE("push\t%s\t%s\t%u\tpayload type %d\n", domain, text, e->category, e->payload_type);
  return 0;
}

static int pop(const char *domain) {
  LINE("pop\t%s\n", domain);
  return 0;
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
  const callbacks *found = export_table(CALLBACKS_TABLE);
  function **table;
  unsigned count;
  const char *path = getenv("NVTX_LISTENER_OUT");
  if (!found || !path || !(out = fopen(path, "a"))) return 0;
  if (!found->module_functions(CORE2, &table, &count) || count <= CREATE_DOMAIN) return 0;
  *table[PUSH] = (function)push;
  *table[POP] = (function)pop;
  *table[NAME_CATEGORY] = (function)name_category;
  *table[REGISTER_STRING] = (function)register_string;
  *table[CREATE_DOMAIN] = (function)create_domain;
  return 1;
}
