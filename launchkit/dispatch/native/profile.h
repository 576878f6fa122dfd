/* Recording launches while profile_launches() is active: what the files of the core share of it.
 *
 * A launch is enclosed in profile_begin() and profile_end(), and what happens in between is marked
 * with profile_mark(). While nothing is recorded each of these is one branch; a launch that is not in
 * the sample (profile_skips()) counts one number up and one down besides.
 */
#ifndef LAUNCHKIT_PROFILE_H
#define LAUNCHKIT_PROFILE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* Whether launches are being recorded. */
extern bool profiling;

/* How many launches that are recorded are under way, on all threads. */
extern int open_launches;

/* The counter that stamps are read from: the CPU's where it runs evenly, else the clock's ns. */
extern bool ticks_are_cycles;

static inline uint64_t read_ticks(void) {
#if defined(__x86_64__)
  if (ticks_are_cycles)
    return __rdtsc();
#endif
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* By what number the recording that is under way knows a kernel or an op; zeroed at first. */
typedef struct {
  uint64_t session;
  uint32_t number;
} Subject;

/* The stamps of a launch. Of a replayed op GRID is where its first launch begins. */
typedef enum { ENTRY, FOUND, GRID, DRIVER, END, STAMPS } Stamp;

/* What a record is of. FAST: a launch from its plan; THROUGH: any other; FAILED: one that raised;
 * REPLAYED: one of a replayed op; REPLAY: such an op as a whole; FAILED_REPLAY. */
typedef enum { FAST, THROUGH, FAILED, REPLAYED, REPLAY, FAILED_REPLAY } RecordKind;

/* Launches that agree in all of this are counted together. */
typedef struct {
  uint32_t range, thread;
  uint32_t kernel, op; /* numbers of subjects; 0: none */
  uint32_t kind;       /* RecordKind */
  uint32_t host_only;
} Label;

typedef struct {
  Label label;
  uint32_t reads; /* of the counter, between the first stamp and the last */
  uint64_t at[STAMPS];
} Record;

/* What profile_begin() returns beside a token: nothing is to be ended, or an exception is set. */
enum { UNRECORDED = -1, BEGIN_FAILED = -2 };

/* A launch begins, on this thread: of `owner`, whose name the recording asks for once, and where
 * it keeps its number. Call it only while `profiling`. A launch within one of the same name is
 * part of that, and not a launch of its own. */
int profile_begin(PyObject *owner, Subject *subject);

typedef enum { RETURNED, RAISED, RETURNED_FROM_CORE } Outcome;

/* It has ended. RETURNED_FROM_CORE: its DRIVER stamp is its end. An exception that is set stays. */
void profile_end(int token, Outcome outcome);

/* The launch that this thread began last goes through Triton: its stamps say nothing. */
void profile_slow(void);

void profile_stamp(Stamp stamp);

static inline void profile_mark(Stamp stamp) {
  if (open_launches > 0)
    profile_stamp(stamp);
}

/* Whether the launch or replay that begins is to be recorded: all are, or a random sample of them.
 * Ask once for each. */
bool profile_drawn(void);

/* Where launches are sampled: ask in which range this thread is. -1: exception. */
int profile_locate(void);

/* Give a kernel or an op its number in this recording, which its subject keeps. -1: exception. */
int profile_name(PyObject *owner, Subject *subject);

/* Whether a subject's number is of the recording that runs. */
bool profile_knows(const Subject *subject);

/* A record of this thread that is already complete. `reads` and the stamps are the caller's. */
void profile_add(const Record *record);

/* ---- profile_groups.c: where records go when the buffer is full, and the type ---- */

#define BUFFER_RECORDS 4096

typedef struct {
  Label label;
  uint64_t launches;
  int64_t ticks[4]; /* in all: END, FOUND, GRID and DRIVER, each from where it began */
  Py_ssize_t samples, capacity;
  int64_t *sample; /* its times, one or four numbers, and the counter where it began */
} Group;

typedef struct {
  PyObject_HEAD
  PyObject *name_of;    /* (owner) -> number from 1 on; the same name has the same one */
  PyObject *new_thread; /* () -> number of the current thread */
  PyObject *locate;     /* () -> number of the range that it is in; NULL: set_range() says it */
  int64_t sample_every; /* of so many launches one is recorded, on average */
  int64_t skip;         /* so many launches before the next one that is */
  uint64_t seen;        /* launches and replays that were drawn from */
  uint64_t random;
  Py_ssize_t samples_per_group, samples_left;
  int64_t ticks_per_read; /* what reading the counter puts between two stamps */
  uint64_t lost;          /* records for which there was no memory */
  uint32_t host_only;
  Py_ssize_t record_count;
  Record *records;
  Py_ssize_t group_count, group_capacity, mask, last;
  Group *groups;
  int32_t *places; /* of groups by their labels' hash, -1: free */
} LaunchRecorder;

extern PyTypeObject LaunchRecorder_Type;
extern LaunchRecorder *recorder; /* that runs, or NULL */

/* Whether the launch that begins is surely not in the sample. Call it only while `profiling`. */
static inline bool profile_skips(void) {
  if (recorder->skip <= 0 || open_launches > 0)
    return false;
  recorder->skip--;
  recorder->seen++;
  return true;
}

void group_records(LaunchRecorder *self);
int start_recording(LaunchRecorder *self);
void stop_recording(LaunchRecorder *self);
int set_thread_range(uint32_t range);
PyObject *profile_calibrate(LaunchRecorder *self, int rounds);
PyObject *profile_ticks(PyObject *module, PyObject *ignored);
PyObject *profile_use_clock(PyObject *module, PyObject *use_clock);

#endif
