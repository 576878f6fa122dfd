/* A replay: an op's launches once more, with the addresses of this call. Until the first launch
 * everything can be given up, and the op runs as it is.
 */
#include "op.h"

#include <string.h>

#define UNALIGNED 15

/* ---- results: allocations of their own ---- */

static int make_result(PyObject *maker, PyObject **made, uint64_t *address) {
  PyObject *args = PyTuple_GET_ITEM(maker, 1), *names = PyTuple_GET_ITEM(maker, 2);
  Py_ssize_t positional = PyTuple_GET_SIZE(args) - PyTuple_GET_SIZE(names);
  DLTensor seen;
  *made = PyObject_Vectorcall(PyTuple_GET_ITEM(maker, 0), ((PyTupleObject *)args)->ob_item,
                              positional, names);
  if (*made == NULL)
    return -1;
  if (!is_tensor(*made) || rt.read_tensor(*made, &seen) != 0) {
    PyErr_Clear();
    return 0;
  }
  *address = (uint64_t)(uintptr_t)seen.data + seen.byte_offset;
  return (*address & UNALIGNED) == 0;
}

static PyObject *result_item(PyObject *item, const OpCall *call, PyObject *const *made) {
  long from = PyLong_AsLong(PyTuple_GET_ITEM(item, 0));
  PyObject *place = PyTuple_GET_ITEM(item, 1);
  if (from < 0)
    return Py_NewRef(place);
  Py_ssize_t index = PyLong_AsSsize_t(place);
  return Py_NewRef(from == FROM_ARGUMENT ? call->tensors[index] : made[index]);
}

static PyObject *build_result(const OpPlan *plan, const OpCall *call, PyObject *const *made) {
  Py_ssize_t count = PyTuple_GET_SIZE(plan->results);
  if (plan->container == Py_None)
    return result_item(PyTuple_GET_ITEM(plan->results, 0), call, made);
  bool list = plan->container == (PyObject *)&PyList_Type;
  PyObject *result = list ? PyList_New(count) : PyTuple_New(count);
  for (Py_ssize_t i = 0; result != NULL && i < count; i++) {
    PyObject *item = result_item(PyTuple_GET_ITEM(plan->results, i), call, made);
    if (list)
      PyList_SET_ITEM(result, i, item);
    else
      PyTuple_SET_ITEM(result, i, item);
  }
  return result;
}

/* ---- launches ---- */

static void fill_frame(const OpPlan *plan, Frame *frame, const OpCall *call,
                       const uint64_t *results, void *stream) {
  for (int i = 0; i < plan->address_count; i++) {
    const Address *address = &plan->addresses[i];
    if (address->from == FROM_ARGUMENT)
      frame->values[address->value] = call->addresses[address->place];
    else if (address->from == FROM_RESULT)
      frame->values[address->value] = results[address->place];
  }
  for (int i = 0; i < plan->launch_count; i++)
    frame->configs[i].stream = stream;
}

static void ignore_error(void *Py_UNUSED(context), const char *Py_UNUSED(kind),
                         const char *Py_UNUSED(message)) {}

enum { NO_WORKSPACE = -1 };

/* Without the GIL: the allocator may wait for the GPU, and a full queue of launches does.
 * 0: launched, NO_WORKSPACE: nothing was, else the driver's error. */
static int run(const OpPlan *plan, Frame *frame, int device_type, int device_id, bool timed,
               int *launched) {
  Managed *workspace = NULL;
  if (plan->workspace_bytes > 0) {
    int64_t bytes = plan->workspace_bytes;
    DLTensor wanted = {.device_type = device_type,
                       .device_id = device_id,
                       .ndim = 1,
                       .dtype_code = 1, /* unsigned */
                       .dtype_bits = 8,
                       .dtype_lanes = 1,
                       .shape = &bytes};
    if (rt.allocate(&wanted, &workspace, NULL, ignore_error) != 0)
      return NO_WORKSPACE;
    uint64_t start = (uint64_t)(uintptr_t)workspace->tensor.data + workspace->tensor.byte_offset;
    if (start & UNALIGNED) {
      workspace->deleter(workspace);
      return NO_WORKSPACE;
    }
    for (int i = 0; i < plan->address_count; i++)
      if (plan->addresses[i].from == FROM_WORKSPACE)
        frame->values[plan->addresses[i].value] = start + (uint64_t)plan->addresses[i].place;
  }
  int status = 0;
  void **params = frame->params;
  if (timed)
    frame->stamps[0] = read_ticks();
  for (int i = 0; status == 0 && i < plan->launch_count; i++) {
    const OpLaunch *launch = &plan->launches[i];
    if (!launch->empty)
      status = call_driver(launch->plan, &frame->configs[i], params);
    if (timed)
      frame->stamps[i + 1] = read_ticks();
    *launched += status == 0;
    params += launch->plan->param_count + 2;
  }
  /* The allocator gives this memory to nobody but what comes later on the same stream. */
  if (workspace != NULL)
    workspace->deleter(workspace);
  return status;
}

/* Those that were made, one by one; and for the record of the replay, all of them. */
static void record_launches(const OpCore *core, const OpPlan *plan, const Frame *frame,
                            OpCall *call, int launched) {
  for (int i = 0; i < launched; i++) {
    if (!profile_knows(&core->subject) || !profile_knows(&plan->launches[i].entry->subject))
      continue; /* another recording has begun meanwhile */
    Record record = {.reads = 1};
    record.label.kernel = plan->launches[i].entry->subject.number;
    record.label.op = core->subject.number;
    record.label.kind = REPLAYED;
    record.at[ENTRY] = frame->stamps[i];
    record.at[END] = frame->stamps[i + 1];
    profile_add(&record);
  }
  call->record.at[GRID] = frame->stamps[0];
  call->record.at[DRIVER] = frame->stamps[launched];
  call->record.reads = 3 + (uint32_t)launched;
}

static int launch_all(OpCore *core, OpPlan *plan, OpCall *call, const uint64_t *results,
                      void *stream) {
  Frame *frame = plan->frame;
  plan->frame = NULL; /* another thread that comes meanwhile makes its own */
  if (frame == NULL && (frame = make_frame(plan)) == NULL)
    return NO_WORKSPACE;
  fill_frame(plan, frame, call, results, stream);
  int device_id = core->device_index_counts ? (int)call->device : 0;
  int status, launched = 0;
  Py_BEGIN_ALLOW_THREADS;
  status = run(plan, frame, core->device_type, device_id, call->recorded, &launched);
  Py_END_ALLOW_THREADS;
  if (call->recorded && status != NO_WORKSPACE)
    record_launches(core, plan, frame, call, launched);
  if (plan->frame == NULL)
    plan->frame = frame;
  else
    PyMem_RawFree(frame);
  return status;
}

static int replay_with(OpCore *core, OpPlan *plan, OpCall *call, PyObject **made,
                       uint64_t *addresses) {
  void *stream;
  for (int i = 0; i < plan->maker_count; i++) {
    int status = make_result(PyTuple_GET_ITEM(plan->makers, i), &made[i], &addresses[i]);
    if (status != 1)
      return status;
  }
  if (!plan->key.kept) /* dropped while torch allocated, and with it the stream's source */
    return 0;
  if (read_current_stream(core->stream_source, core->stream_key, call->device, &stream) < 0)
    return -1;
  /* Last, since Python code may have run: nothing does from here to the launches. */
  int holds = op_plan_holds(plan, true);
  if (holds != 1)
    return holds;
  int status = launch_all(core, plan, call, addresses, stream);
  if (status == NO_WORKSPACE)
    return 0;
  if (status != 0) {
    raise_status(status);
    return -1;
  }
  for (int i = 0; i < plan->launch_count; i++)
    if (plan->launches[i].core->launch_count != NULL)
      plan->launches[i].core->launch_count[1]++;
  for (int i = 0; i < plan->launch_count; i++)
    if (announce(plan->launches[i].core, plan->launches[i].plan) < 0)
      return -1;
  return 1;
}

int replay(OpCore *core, OpPlan *plan, OpCall *call, PyObject **result) {
  PyObject *made[MAX_RESULTS] = {NULL};
  uint64_t addresses[MAX_RESULTS];
  int holds = plan->maker_count > 0 ? op_plan_holds(plan, true) : 1;
  int status = holds == 1 ? replay_with(core, plan, call, made, addresses) : holds;
  if (status == 1) {
    *result = build_result(plan, call, made);
    status = *result == NULL ? -1 : 1;
  }
  for (int i = 0; i < plan->maker_count; i++)
    Py_XDECREF(made[i]);
  return status;
}
