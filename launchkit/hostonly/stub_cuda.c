/* libcuda.so.1 without a GPU: the part of the CUDA driver API that Triton's launcher uses.
 *
 * Nothing is executed. Device questions get the answers that launchkit_stub_configure was
 * given, modules and functions get handles that are never used twice, and each launch is
 * copied into a ring of the last LAUNCH_CAPACITY ones.
 *
 * A launch carries no parameter sizes. launchkit_stub_describe tells the stub what the
 * cubin says about a function; a function that was not described records no parameters.
 *
 * While the stub is inactive every call fails the way a driver without a device fails, so
 * that whoever finds this library later in the process cannot take it for a working one.
 *
 * Self-contained: the few driver types needed are declared here, with their ABI layout.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_SUPPORTED = 801,
};

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint64_t Handle; /* CUcontext, CUmodule, CUfunction, CUstream, CUevent */

typedef struct {
  int id;
  int pad;
  unsigned char value[64];
} LaunchAttribute; /* CUlaunchAttribute */

typedef struct {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  Handle stream;
  LaunchAttribute *attributes;
  unsigned attribute_count;
} LaunchConfig; /* CUlaunchConfig */

typedef struct {
  int device_count, major, minor, sm_count, shared_optin_bytes, shared_sm_bytes, threads_per_sm;
} DeviceFacts;

static DeviceFacts facts = {1, 9, 0, 132, 232448, 233472, 2048};
static atomic_int active, recording, capturing;
static _Thread_local Handle current_context;

#define REQUIRE_ACTIVE                                                                             \
  if (!atomic_load_explicit(&active, memory_order_acquire))                                        \
  return CUDA_ERROR_DEINITIALIZED

/* ---- functions: a table that only grows, read without a lock ---- */

typedef struct {
  Handle module;
  int device;
  unsigned param_count;
  uint32_t *sizes; /* of each parameter in bytes; its offsets follow in the same block */
  uint32_t *offsets;
  uint32_t total_bytes;
  atomic_int described, loaded;
  char name[];
} Function;

#define FUNCTION_BASE 0x4c4b46000000ull
#define MODULE_BASE 0x4c4b4d000000ull
#define CONTEXT_BASE 0x4c4b43000000ull
#define OTHER_BASE 0x4c4b4f000000ull
#define HANDLE_STEP 16
#define CHUNK 1024
#define CHUNKS 1024

static _Atomic(Function *) *_Atomic chunks[CHUNKS];
static unsigned function_count;
static atomic_ullong next_module = 1, next_other = 1;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

static Function *find_function(Handle handle) {
  uint64_t index = (handle - FUNCTION_BASE) / HANDLE_STEP;
  if (handle < FUNCTION_BASE || (handle - FUNCTION_BASE) % HANDLE_STEP || index >= CHUNK * CHUNKS)
    return NULL;
  _Atomic(Function *) *chunk = atomic_load_explicit(&chunks[index / CHUNK], memory_order_acquire);
  return chunk ? atomic_load_explicit(&chunk[index % CHUNK], memory_order_acquire) : NULL;
}

static Function *live_function(Handle handle) {
  Function *function = find_function(handle);
  return function && atomic_load_explicit(&function->loaded, memory_order_relaxed) ? function
                                                                                   : NULL;
}

static CUresult add_function(Handle module, const char *name, Handle *handle) {
  size_t length = strlen(name) + 1;
  Function *function = calloc(1, sizeof *function + length);
  if (!function)
    return CUDA_ERROR_OUT_OF_MEMORY;
  function->module = module;
  memcpy(function->name, name, length);
  atomic_init(&function->loaded, 1);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&table_lock);
  unsigned index = function_count;
  if (index < CHUNK * CHUNKS) {
    if (!chunks[index / CHUNK])
      atomic_store(&chunks[index / CHUNK], calloc(CHUNK, sizeof(_Atomic(Function *))));
    _Atomic(Function *) *chunk = chunks[index / CHUNK];
    if (chunk) {
      atomic_store_explicit(&chunk[index % CHUNK], function, memory_order_release);
      function_count++;
      *handle = FUNCTION_BASE + (uint64_t)index * HANDLE_STEP;
      result = CUDA_SUCCESS;
    }
  }
  pthread_mutex_unlock(&table_lock);
  if (result != CUDA_SUCCESS)
    free(function);
  return result;
}

/* ---- the launch record ---- */

#define LAUNCH_CAPACITY 65536
#define MAX_ATTRIBUTES 8
#define ATTRIBUTE_BYTES 16

/* Read by launchkit/hostonly/records.py: keep both in step. */
typedef struct {
  uint64_t function, stream;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  int32_t device;
  uint32_t attribute_count, param_count;
  uint32_t payload_bytes; /* sizes of all parameters (u32 each), then their bytes */
  uint32_t reserved;
  struct {
    uint32_t id;
    unsigned char value[ATTRIBUTE_BYTES];
  } attributes[MAX_ATTRIBUTES];
} Record;

typedef struct {
  Record record;
  unsigned char *payload;
} Slot;

static Slot *ring;
static uint64_t launches_seen; /* since the last clear; the ring holds the last of them */
static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;

/* The other way to pass parameters: one packed buffer in `extra`. */
static const unsigned char *packed_buffer(void **extra, size_t *size) {
  const unsigned char *buffer = NULL;
  *size = 0;
  for (; extra && extra[0]; extra += 2) {
    if (extra[0] == (void *)1)
      buffer = extra[1];
    else if (extra[0] == (void *)2)
      *size = *(size_t *)extra[1];
  }
  return buffer;
}

static unsigned char *copy_payload(const Function *function, void **params, void **extra,
                                   uint32_t *payload_bytes, CUresult *result) {
  size_t header = function->param_count * sizeof(uint32_t), packed_bytes;
  const unsigned char *packed = params ? NULL : packed_buffer(extra, &packed_bytes);
  *result = CUDA_ERROR_INVALID_VALUE;
  if (function->param_count && !params && !packed)
    return NULL;
  unsigned char *payload = malloc(header + function->total_bytes + 1), *next = payload + header;
  if (!payload) {
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    return NULL;
  }
  memcpy(payload, function->sizes, header);
  for (unsigned i = 0; i < function->param_count; i++) {
    uint32_t size = function->sizes[i], offset = function->offsets[i];
    const unsigned char *from = packed ? packed + offset : params[i];
    if (packed ? (size_t)offset + size > packed_bytes : !from) {
      free(payload);
      return NULL;
    }
    memcpy(next, from, size);
    next += size;
  }
  *payload_bytes = (uint32_t)(next - payload);
  *result = CUDA_SUCCESS;
  return payload;
}

static CUresult keep(const Record *record, unsigned char *payload) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&ring_lock);
  if (!ring)
    ring = calloc(LAUNCH_CAPACITY, sizeof *ring);
  if (ring) {
    Slot *slot = &ring[launches_seen++ % LAUNCH_CAPACITY];
    free(slot->payload);
    slot->record = *record;
    slot->payload = payload;
  } else {
    free(payload);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  pthread_mutex_unlock(&ring_lock);
  return result;
}

static CUresult launch(const LaunchConfig *config, Handle handle, void **params, void **extra) {
  REQUIRE_ACTIVE;
  Function *function = live_function(handle);
  if (!function)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!atomic_load_explicit(&recording, memory_order_relaxed))
    return CUDA_SUCCESS;
  Record record = {.function = handle,
                   .stream = config->stream,
                   .shared_bytes = config->shared_bytes,
                   .device = function->device};
  memcpy(record.grid, config->grid, sizeof record.grid);
  memcpy(record.block, config->block, sizeof record.block);
  for (unsigned i = 0; i < config->attribute_count && i < MAX_ATTRIBUTES; i++) {
    record.attributes[i].id = config->attributes[i].id;
    memcpy(record.attributes[i].value, config->attributes[i].value, ATTRIBUTE_BYTES);
    record.attribute_count++;
  }
  unsigned char *payload = NULL;
  if (atomic_load_explicit(&function->described, memory_order_acquire)) {
    CUresult result;
    record.param_count = function->param_count;
    payload = copy_payload(function, params, extra, &record.payload_bytes, &result);
    if (!payload)
      return result;
  }
  return keep(&record, payload);
}

/* ---- what launchkit asks of the stub ---- */

API int launchkit_stub_abi(void) { return 1; }

API void launchkit_stub_configure(const DeviceFacts *wanted) { facts = *wanted; }

/* Leaving the mode unloads every function: a handle that somebody kept stays invalid. */
API void launchkit_stub_set_active(int on) {
  pthread_mutex_lock(&table_lock);
  for (unsigned i = 0; !on && i < function_count; i++)
    atomic_store(&find_function(FUNCTION_BASE + (uint64_t)i * HANDLE_STEP)->loaded, 0);
  atomic_store(&active, on);
  pthread_mutex_unlock(&table_lock);
}

API void launchkit_stub_set_recording(int on) { atomic_store(&recording, on); }

API void launchkit_stub_set_capturing(int on) { atomic_store(&capturing, on); }

API int launchkit_stub_describe(Handle handle, int device, unsigned count, const uint32_t *sizes,
                                const uint32_t *offsets) {
  Function *function = find_function(handle);
  if (!function || atomic_load(&function->described))
    return CUDA_ERROR_INVALID_VALUE;
  uint32_t *block = malloc(2 * count * sizeof *block + 1);
  if (!block)
    return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(block, sizes, count * sizeof *block);
  memcpy(block + count, offsets, count * sizeof *block);
  function->device = device;
  function->param_count = count;
  function->sizes = block;
  function->offsets = block + count;
  for (unsigned i = 0; i < count; i++)
    function->total_bytes += sizes[i];
  atomic_store_explicit(&function->described, 1, memory_order_release);
  return CUDA_SUCCESS;
}

API const char *launchkit_stub_function_name(Handle handle) {
  Function *function = find_function(handle);
  return function ? function->name : NULL;
}

/* One block: the kept records oldest first, each followed by its payload. The caller frees
 * it with launchkit_stub_free. Returns its size in bytes; 0 when there is nothing. */
API size_t launchkit_stub_snapshot(unsigned char **block) {
  size_t bytes = 0;
  *block = NULL;
  pthread_mutex_lock(&ring_lock);
  uint64_t kept = launches_seen < LAUNCH_CAPACITY ? launches_seen : LAUNCH_CAPACITY;
  for (uint64_t i = launches_seen - kept; i < launches_seen; i++)
    bytes += sizeof(Record) + ring[i % LAUNCH_CAPACITY].record.payload_bytes;
  unsigned char *next = *block = bytes ? malloc(bytes) : NULL;
  for (uint64_t i = launches_seen - kept; next && i < launches_seen; i++) {
    Slot *slot = &ring[i % LAUNCH_CAPACITY];
    memcpy(next, &slot->record, sizeof(Record));
    next += sizeof(Record);
    if (slot->record.payload_bytes)
      memcpy(next, slot->payload, slot->record.payload_bytes);
    next += slot->record.payload_bytes;
  }
  pthread_mutex_unlock(&ring_lock);
  return *block ? bytes : 0;
}

API void launchkit_stub_free(unsigned char *block) { free(block); }

API uint64_t launchkit_stub_dropped(void) {
  pthread_mutex_lock(&ring_lock);
  uint64_t seen = launches_seen;
  pthread_mutex_unlock(&ring_lock);
  return seen > LAUNCH_CAPACITY ? seen - LAUNCH_CAPACITY : 0;
}

API void launchkit_stub_clear(void) {
  pthread_mutex_lock(&ring_lock);
  for (size_t i = 0; ring && i < LAUNCH_CAPACITY && i < launches_seen; i++) {
    free(ring[i].payload);
    ring[i].payload = NULL;
  }
  launches_seen = 0;
  pthread_mutex_unlock(&ring_lock);
}

/* ---- the driver API: initialisation and devices ---- */

API CUresult cuInit(unsigned flags) {
  (void)flags;
  return atomic_load(&active) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

API CUresult cuDriverGetVersion(int *version) {
  REQUIRE_ACTIVE;
  *version = 13000;
  return CUDA_SUCCESS;
}

API CUresult cuGetErrorName(CUresult code, const char **text) {
  switch (code) {
  case CUDA_SUCCESS:
    *text = "CUDA_SUCCESS";
    break;
  case CUDA_ERROR_INVALID_VALUE:
    *text = "CUDA_ERROR_INVALID_VALUE";
    break;
  case CUDA_ERROR_OUT_OF_MEMORY:
    *text = "CUDA_ERROR_OUT_OF_MEMORY";
    break;
  case CUDA_ERROR_DEINITIALIZED:
    *text = "CUDA_ERROR_DEINITIALIZED";
    break;
  case CUDA_ERROR_NO_DEVICE:
    *text = "CUDA_ERROR_NO_DEVICE";
    break;
  case CUDA_ERROR_INVALID_DEVICE:
    *text = "CUDA_ERROR_INVALID_DEVICE";
    break;
  case CUDA_ERROR_INVALID_HANDLE:
    *text = "CUDA_ERROR_INVALID_HANDLE";
    break;
  case CUDA_ERROR_NOT_FOUND:
    *text = "CUDA_ERROR_NOT_FOUND";
    break;
  case CUDA_ERROR_NOT_SUPPORTED:
    *text = "CUDA_ERROR_NOT_SUPPORTED";
    break;
  default:
    *text = "CUDA_ERROR_UNKNOWN";
  }
  return CUDA_SUCCESS;
}

API CUresult cuGetErrorString(CUresult code, const char **text) {
  switch (code) {
  case CUDA_ERROR_INVALID_VALUE:
    *text = "invalid argument (host-only driver)";
    break;
  case CUDA_ERROR_DEINITIALIZED:
    *text = "the host-only driver is not active; this process has no other CUDA driver";
    break;
  case CUDA_ERROR_INVALID_HANDLE:
    *text = "invalid or unloaded kernel handle (host-only driver)";
    break;
  default:
    return cuGetErrorName(code, text);
  }
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetCount(int *count) {
  *count = 0;
  if (!atomic_load(&active))
    return CUDA_ERROR_NO_DEVICE;
  *count = facts.device_count;
  return CUDA_SUCCESS;
}

#define REQUIRE_DEVICE(device)                                                                     \
  REQUIRE_ACTIVE;                                                                                  \
  if ((device) < 0 || (device) >= facts.device_count)                                              \
  return CUDA_ERROR_INVALID_DEVICE

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  REQUIRE_DEVICE(ordinal);
  *device = ordinal;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  REQUIRE_DEVICE(device);
  snprintf(name, length, "launchkit host-only sm_%d%d", facts.major, facts.minor);
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device) {
  REQUIRE_DEVICE(device);
  memset(uuid, 0, 16);
  uuid[15] = (unsigned char)device;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  REQUIRE_DEVICE(device);
  *bytes = (size_t)80 << 30;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  REQUIRE_DEVICE(device);
  *major = facts.major;
  *minor = facts.minor;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  REQUIRE_DEVICE(device);
  switch (attribute) {
  case 1:  /* MAX_THREADS_PER_BLOCK */
  case 2:  /* MAX_BLOCK_DIM_X */
  case 3:  /* MAX_BLOCK_DIM_Y */
    *value = 1024;
    break;
  case 4: /* MAX_BLOCK_DIM_Z */
    *value = 64;
    break;
  case 5: /* MAX_GRID_DIM_X */
    *value = 2147483647;
    break;
  case 6: /* MAX_GRID_DIM_Y */
  case 7: /* MAX_GRID_DIM_Z */
    *value = 65535;
    break;
  case 8: /* MAX_SHARED_MEMORY_PER_BLOCK */
    *value = 49152;
    break;
  case 10: /* WARP_SIZE */
    *value = 32;
    break;
  case 12: /* MAX_REGISTERS_PER_BLOCK */
  case 82: /* MAX_REGISTERS_PER_MULTIPROCESSOR */
    *value = 65536;
    break;
  case 13: /* CLOCK_RATE, kHz */
    *value = 1980000;
    break;
  case 16: /* MULTIPROCESSOR_COUNT */
    *value = facts.sm_count;
    break;
  case 36: /* MEMORY_CLOCK_RATE, kHz */
    *value = 2619000;
    break;
  case 37: /* GLOBAL_MEMORY_BUS_WIDTH, bits */
    *value = 5120;
    break;
  case 38: /* L2_CACHE_SIZE */
    *value = 50 << 20;
    break;
  case 39: /* MAX_THREADS_PER_MULTIPROCESSOR */
    *value = facts.threads_per_sm;
    break;
  case 41: /* UNIFIED_ADDRESSING */
  case 95: /* COOPERATIVE_LAUNCH */
    *value = 1;
    break;
  case 75: /* COMPUTE_CAPABILITY_MAJOR */
    *value = facts.major;
    break;
  case 76: /* COMPUTE_CAPABILITY_MINOR */
    *value = facts.minor;
    break;
  case 81: /* MAX_SHARED_MEMORY_PER_MULTIPROCESSOR */
    *value = facts.shared_sm_bytes;
    break;
  case 97: /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    *value = facts.shared_optin_bytes;
    break;
  default:
    *value = 0;
  }
  return CUDA_SUCCESS;
}

/* ---- contexts ---- */

API CUresult cuDevicePrimaryCtxRetain(Handle *context, CUdevice device) {
  REQUIRE_DEVICE(device);
  *context = CONTEXT_BASE + (uint64_t)(device + 1) * HANDLE_STEP;
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  REQUIRE_DEVICE(device);
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *is_active) {
  REQUIRE_DEVICE(device);
  *flags = 0;
  *is_active = 1;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(Handle *context) {
  REQUIRE_ACTIVE;
  *context = current_context;
  return CUDA_SUCCESS;
}

API CUresult cuCtxSetCurrent(Handle context) {
  REQUIRE_ACTIVE;
  current_context = context;
  return CUDA_SUCCESS;
}

API CUresult cuCtxPushCurrent_v2(Handle context) { return cuCtxSetCurrent(context); }

API CUresult cuCtxPopCurrent_v2(Handle *context) { return cuCtxGetCurrent(context); }

API CUresult cuCtxGetDevice(CUdevice *device) {
  REQUIRE_ACTIVE;
  *device = current_context ? (int)((current_context - CONTEXT_BASE) / HANDLE_STEP) - 1 : 0;
  return CUDA_SUCCESS;
}

API CUresult cuCtxSynchronize(void) {
  REQUIRE_ACTIVE;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetLimit(size_t *value, int limit) {
  REQUIRE_ACTIVE;
  (void)limit;
  *value = 1 << 20;
  return CUDA_SUCCESS;
}

API CUresult cuCtxSetLimit(int limit, size_t value) {
  REQUIRE_ACTIVE;
  (void)limit, (void)value;
  return CUDA_SUCCESS;
}

/* ---- modules and functions ---- */

API CUresult cuModuleLoadData(Handle *module, const void *image) {
  REQUIRE_ACTIVE;
  if (!image)
    return CUDA_ERROR_INVALID_VALUE;
  *module = MODULE_BASE + atomic_fetch_add(&next_module, 1) * HANDLE_STEP;
  return CUDA_SUCCESS;
}

API CUresult cuModuleLoadDataEx(Handle *module, const void *image, unsigned count, int *options,
                                void **values) {
  (void)count, (void)options, (void)values;
  return cuModuleLoadData(module, image);
}

API CUresult cuModuleUnload(Handle module) {
  REQUIRE_ACTIVE;
  pthread_mutex_lock(&table_lock);
  for (unsigned i = 0; i < function_count; i++) {
    Function *function = find_function(FUNCTION_BASE + (uint64_t)i * HANDLE_STEP);
    if (function->module == module)
      atomic_store(&function->loaded, 0);
  }
  pthread_mutex_unlock(&table_lock);
  return CUDA_SUCCESS;
}

API CUresult cuModuleGetFunction(Handle *function, Handle module, const char *name) {
  REQUIRE_ACTIVE;
  return add_function(module, name, function);
}

API CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, Handle module,
                                  const char *name) {
  REQUIRE_ACTIVE;
  (void)pointer, (void)bytes, (void)module, (void)name;
  return CUDA_ERROR_NOT_FOUND;
}

API CUresult cuFuncGetAttribute(int *value, int attribute, Handle function) {
  REQUIRE_ACTIVE;
  if (!live_function(function))
    return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
  case 0: /* MAX_THREADS_PER_BLOCK */
    *value = 1024;
    break;
  case 4: /* NUM_REGS */
    *value = 32;
    break;
  default:
    *value = 0;
  }
  return CUDA_SUCCESS;
}

API CUresult cuFuncSetAttribute(Handle function, int attribute, int value) {
  REQUIRE_ACTIVE;
  (void)attribute, (void)value;
  return live_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuFuncSetCacheConfig(Handle function, int config) {
  return cuFuncSetAttribute(function, 0, config);
}

API CUresult cuOccupancyMaxActiveClusters(int *clusters, Handle function,
                                          const LaunchConfig *config) {
  REQUIRE_ACTIVE;
  unsigned per_cluster = 1;
  (void)function;
  for (unsigned i = 0; i < config->attribute_count; i++)
    if (config->attributes[i].id == 4) /* CLUSTER_DIMENSION */
      memcpy(&per_cluster, config->attributes[i].value, sizeof per_cluster);
  *clusters = facts.sm_count / (int)(per_cluster ? per_cluster : 1);
  return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Handle function, int threads,
                                                         size_t shared_bytes) {
  REQUIRE_ACTIVE;
  (void)function;
  int by_threads = facts.threads_per_sm / (threads > 0 ? threads : 1);
  int by_shared = (int)((size_t)facts.shared_sm_bytes / (shared_bytes + 1024));
  *blocks = by_threads < by_shared ? by_threads : by_shared;
  return CUDA_SUCCESS;
}

/* ---- launches ---- */

API CUresult cuLaunchKernelEx(const LaunchConfig *config, Handle function, void **params,
                              void **extra) {
  return launch(config, function, params, extra);
}

API CUresult cuLaunchKernel(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned shared_bytes, Handle stream, void **params, void **extra) {
  LaunchConfig config = {.grid = {grid_x, grid_y, grid_z},
                         .block = {block_x, block_y, block_z},
                         .shared_bytes = shared_bytes,
                         .stream = stream};
  return launch(&config, function, params, extra);
}

/* ---- pointers, streams, events, tensor maps ---- */

API CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr pointer) {
  REQUIRE_ACTIVE;
  switch (attribute) {
  case 2: /* MEMORY_TYPE: device */
    *(unsigned *)data = 2;
    return CUDA_SUCCESS;
  case 3: /* DEVICE_POINTER */
    *(CUdeviceptr *)data = pointer;
    return CUDA_SUCCESS;
  case 9: /* DEVICE_ORDINAL */
    *(int *)data = 0;
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_NOT_SUPPORTED;
  }
}

API CUresult cuStreamIsCapturing(Handle stream, int *status) {
  REQUIRE_ACTIVE;
  (void)stream;
  *status = atomic_load(&capturing) ? 1 : 0;
  return CUDA_SUCCESS;
}

API CUresult cuStreamCreate(Handle *stream, unsigned flags) {
  REQUIRE_ACTIVE;
  (void)flags;
  *stream = OTHER_BASE + atomic_fetch_add(&next_other, 1) * HANDLE_STEP;
  return CUDA_SUCCESS;
}

API CUresult cuStreamSynchronize(Handle stream) {
  REQUIRE_ACTIVE;
  (void)stream;
  return CUDA_SUCCESS;
}

API CUresult cuStreamQuery(Handle stream) { return cuStreamSynchronize(stream); }

API CUresult cuStreamDestroy_v2(Handle stream) { return cuStreamSynchronize(stream); }

API CUresult cuEventCreate(Handle *event, unsigned flags) { return cuStreamCreate(event, flags); }

API CUresult cuEventRecord(Handle event, Handle stream) {
  (void)event;
  return cuStreamSynchronize(stream);
}

API CUresult cuEventSynchronize(Handle event) { return cuStreamSynchronize(event); }

API CUresult cuEventDestroy_v2(Handle event) { return cuStreamSynchronize(event); }

API CUresult cuEventElapsedTime(float *milliseconds, Handle start, Handle end) {
  /* Nothing ran, so there is no time to tell. */
  REQUIRE_ACTIVE;
  (void)milliseconds, (void)start, (void)end;
  return CUDA_ERROR_NOT_SUPPORTED;
}

static uint64_t mix(uint64_t hash, const void *data, size_t bytes) { /* FNV-1a */
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3ull;
  return hash;
}

/* A tensor map is opaque 128 bytes: the address, then a hash of everything else, so that
 * two maps are equal exactly when they were made from the same arguments. */
static CUresult encode_tensor_map(unsigned char *map, uint64_t address, uint64_t hash) {
  REQUIRE_ACTIVE;
  memset(map, 0, 128);
  memcpy(map, &address, sizeof address);
  memcpy(map + 8, &hash, sizeof hash);
  return CUDA_SUCCESS;
}

API CUresult cuTensorMapEncodeTiled(unsigned char *map, int type, unsigned rank, void *address,
                                    const uint64_t *dims, const uint64_t *strides,
                                    const uint32_t *box, const uint32_t *element_strides,
                                    int interleave, int swizzle, int promotion, int fill) {
  int modes[] = {type, (int)rank, interleave, swizzle, promotion, fill};
  if (rank < 1 || rank > 5)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t hash = mix(0xcbf29ce484222325ull, modes, sizeof modes);
  hash = mix(hash, dims, rank * sizeof *dims);
  hash = mix(hash, strides, (rank - 1) * sizeof *strides);
  hash = mix(hash, box, rank * sizeof *box);
  hash = mix(hash, element_strides, rank * sizeof *element_strides);
  return encode_tensor_map(map, (uint64_t)address, hash);
}

API CUresult cuTensorMapEncodeIm2col(unsigned char *map, int type, unsigned rank, void *address,
                                     const uint64_t *dims, const uint64_t *strides,
                                     const int *lower, const int *upper, uint32_t channels,
                                     uint32_t pixels, const uint32_t *element_strides,
                                     int interleave, int swizzle, int promotion, int fill) {
  int modes[] = {type,      (int)rank, interleave, swizzle,
                 promotion, fill,      (int)channels, (int)pixels};
  if (rank < 3 || rank > 5)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t hash = mix(0xcbf29ce484222325ull, modes, sizeof modes);
  hash = mix(hash, dims, rank * sizeof *dims);
  hash = mix(hash, strides, (rank - 1) * sizeof *strides);
  hash = mix(hash, lower, (rank - 2) * sizeof *lower);
  hash = mix(hash, upper, (rank - 2) * sizeof *upper);
  hash = mix(hash, element_strides, rank * sizeof *element_strides);
  return encode_tensor_map(map, (uint64_t)address, hash);
}
