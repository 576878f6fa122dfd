/* An op: arguments to parameters, their key, and either a replay or the op as it is. */
#include "op.h"

#include <structmember.h>
#include <string.h>

OpState op_state;

/* ---- the op as it is ---- */

/* Count why. */
int count_reason(OpCore *core, PyObject *reason) {
  PyObject *reasons = Py_NewRef(core->reasons);
  PyObject *before = PyDict_GetItemWithError(reasons, reason);
  PyObject *after = NULL;
  if (before != NULL || !PyErr_Occurred())
    after = PyLong_FromLongLong((before == NULL ? 0 : PyLong_AsLongLong(before)) + 1);
  int status = after == NULL ? -1 : PyDict_SetItem(reasons, reason, after);
  Py_XDECREF(after);
  Py_DECREF(reasons);
  return status;
}

typedef struct {
  PyObject *const *args;
  size_t nargsf;
  PyObject *kwnames;
} Given;

static PyObject *as_it_is(OpCore *core, const Given *given, const char *reason) {
  if (reason != NULL) {
    PyObject *text = PyUnicode_FromString(reason);
    int status = text == NULL ? -1 : count_reason(core, text);
    Py_XDECREF(text);
    if (status < 0)
      return NULL;
  }
  return PyObject_Vectorcall(core->function, given->args, given->nargsf, given->kwnames);
}

/* ---- binding ---- */

/* 1: bound, 0: the op itself says what is wrong, -1: exception. */
static int bind_op(OpCore *core, OpCall *call, const Given *given) {
  Py_ssize_t nargs = PyVectorcall_NARGS(given->nargsf);
  int count = core->param_count;
  if (nargs > core->positional_count)
    return 0;
  PyObject **values = call->values;
  if (nargs > 0)
    memcpy(values, given->args, nargs * sizeof *values);
  memset(values + nargs, 0, (count - nargs) * sizeof *values);
  if (given->kwnames != NULL && PyTuple_GET_SIZE(given->kwnames) > 0) {
    CallShape *shape = find_shape(&core->shapes, given->kwnames);
    if (shape == NULL || shape->option_count > 0)
      return PyErr_Occurred() ? -1 : 0;
    for (Py_ssize_t i = 0; i < shape->count; i++) {
      int slot = shape->slots[i];
      if (slot < nargs) /* given twice */
        return 0;
      values[slot] = given->args[nargs + i];
    }
  }
  for (int i = 0; i < count; i++)
    if (values[i] == NULL && (values[i] = core->defaults[i]) == NULL)
      return 0;
  return 1;
}

/* ---- one call ---- */

static inline int ask(const Question *question, long *answer) {
  PyObject *value = question->call(question->self, NULL);
  *answer = value == NULL ? -1 : PyLong_AsLong(value);
  Py_XDECREF(value);
  return *answer == -1 && PyErr_Occurred() ? -1 : 0;
}

/* 1: armed on what holds now, 0: there are no op plans now, -1: exception. */
static int arm_if_need_be(OpCore *core) {
  int holds = premises_hold(core->premises);
  if (holds != 0)
    return holds;
  PyObject *result = PyObject_CallMethodNoArgs(core->planner, op_state.arm);
  if (result == NULL)
    return -1;
  Py_DECREF(result);
  return core->premises != NULL;
}

/* Let Python decide: to watch the op, or to run it as it is. */
static PyObject *plan_it(OpCore *core, OpCall *call, const Given *given) {
  /* Dynamo would take the frames below for the program's, and compile them. */
  PyObject *compiles = op_state.compiles_frames.call(op_state.compiles_frames.self, NULL);
  if (compiles == NULL)
    return NULL;
  Py_DECREF(compiles);
  if (compiles != Py_None)
    return as_it_is(core, given, "torch.compile looks at each frame");
  Py_ssize_t nargs = PyVectorcall_NARGS(given->nargsf);
  PyObject *key = PyBytes_FromStringAndSize((char *)call->words, call->word_count * sizeof(uint64_t));
  PyObject *tensors = key == NULL ? NULL : tuple_of(call->tensors, call->tensor_count);
  PyObject *args = tensors == NULL ? NULL : tuple_of(given->args, nargs);
  PyObject *kwargs = args == NULL ? NULL : dict_of(given->args, nargs, given->kwnames);
  PyObject *result = NULL;
  if (kwargs != NULL)
    result = PyObject_CallMethodObjArgs(core->planner, op_state.run, key, tensors, args, kwargs, NULL);
  Py_XDECREF(key);
  Py_XDECREF(tensors);
  Py_XDECREF(args);
  Py_XDECREF(kwargs);
  return result;
}

/* ---- recording, for profile_launches() ---- */

/* A plan was found. Who does not have a number yet is given one, which takes Python and counts as
 * time of nobody. -1: exception. */
static int mark_found(OpCore *core, const OpPlan *plan, OpCall *call) {
  uint64_t found = read_ticks();
  int status = profile_locate();
  if (status == 0)
    status = profile_name(core->planner, &core->subject);
  for (int i = 0; status == 0 && i < plan->launch_count; i++)
    status = profile_name((PyObject *)plan->launches[i].entry, &plan->launches[i].entry->subject);
  uint64_t now = read_ticks();
  call->record.at[ENTRY] += now - found;
  call->record.at[FOUND] = now;
  return status;
}

static void record_replay(const OpCore *core, OpCall *call, int status) {
  if (!profile_knows(&core->subject))
    return;
  call->record.at[END] = read_ticks();
  call->record.label = (Label){.op = core->subject.number,
                               .kind = status == 1 ? REPLAY : FAILED_REPLAY};
  profile_add(&call->record);
}

static PyObject *call_armed(OpCore *core, OpCall *call, const Given *given) {
  int status = 1;
  for (int i = 0; status == 1 && i < op_state.mode_count; i++) {
    long modes;
    if (ask(&op_state.modes[i], &modes) < 0)
      status = -1;
    else if (modes != 0)
      return as_it_is(core, given, "a torch mode is active");
  }
  if (status == 1)
    status = make_op_key(core, call);
  if (status != 1)
    return status < 0 ? NULL : as_it_is(core, given, call->reason);
  OpPlan *plan = (OpPlan *)find_keyed(&core->plans, call->words, call->word_count);
  if (plan == NULL)
    return plan_it(core, call, given);
  PyObject *result = NULL;
  Py_INCREF(plan);
  status = call->recorded ? mark_found(core, plan, call) : 0;
  if (status == 0)
    status = replay(core, plan, call, &result);
  if (call->recorded && status != 0)
    record_replay(core, call, status);
  Py_DECREF(plan);
  if (status == 1)
    core->replays++;
  return status == 0 ? plan_it(core, call, given) : result;
}

static PyObject *call_op(OpCore *core, const Given *given) {
  OpCall call;
  call.reason = NULL;
  call.held = NULL;
  call.recorded = profiling && !profile_skips() && profile_drawn();
  if (call.recorded)
    call.record.at[ENTRY] = read_ticks();
  /* What a recording sees of another op inside is that one's launches. */
  if (recordings > 0 && own_recording() != NULL)
    return as_it_is(core, given, NULL);
  int status = bind_op(core, &call, given);
  if (status == 1)
    status = arm_if_need_be(core);
  if (status != 1) /* arm() has counted why */
    return status < 0 ? NULL : as_it_is(core, given, NULL);
  PyObject *result = call_armed(core, &call, given);
  Py_XDECREF(call.held);
  return result;
}

/* ---- the object that is called: a partial of the function, for torch.compile ---- */

static Py_ssize_t core_offset;

static OpCore **core_of(PyObject *op) { return (OpCore **)((char *)op + core_offset); }

static PyObject *op_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames) {
  Given given = {args, nargsf, kwnames};
  OpCore *core = *core_of(self);
  /* The member can be written, since only such a one is released with the partial. */
  if (core == NULL || !Py_IS_TYPE(core, &OpCore_Type) || core->function == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "the op has lost its core. Decorate the function again.");
    return NULL;
  }
  PyObject *result;
  Py_INCREF(core);
  PyObject *compiling = PyDict_GetItemWithError(rt.compiler, names.compiling);
  int is = compiling == Py_False ? 0 : compiling == NULL ? (PyErr_Occurred() ? -1 : 0)
                                                         : PyObject_IsTrue(compiling);
  if (is < 0)
    result = NULL;
  else if (is)
    result = as_it_is(core, &given, "torch.compile is compiling");
  else
    result = call_op(core, &given);
  Py_DECREF(core);
  return result;
}

static int op_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(*core_of(self));
  return Py_TYPE(self)->tp_base->tp_traverse(self, visit, arg);
}

static PyObject *op_reduce(PyObject *self, PyObject *Py_UNUSED(ignored)) {
  return PyObject_GetAttrString(self, "__qualname__"); /* as a function: by its name */
}

static PyObject *op_repr(PyObject *self) {
  PyObject *name = PyObject_GetAttrString(self, "__qualname__");
  PyObject *text = name == NULL ? NULL : PyUnicode_FromFormat("<planned op %S>", name);
  Py_XDECREF(name);
  return text;
}

static PyTypeObject *make_op_type(PyTypeObject *partial) {
  static PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, 0, READONLY},
                                  {"_core", T_OBJECT_EX, 0, 0},
                                  {NULL}};
  static PyMethodDef methods[] = {
      {"__reduce__", (PyCFunction)op_reduce, METH_NOARGS, "Pickled by its name."}, {NULL}};
  PyType_Slot slots[] = {{Py_tp_call, PyVectorcall_Call}, {Py_tp_repr, op_repr},
                         {Py_tp_traverse, op_traverse},   {Py_tp_clear, partial->tp_clear},
                         {Py_tp_members, members},        {Py_tp_methods, methods},
                         {0, NULL}};
  PyType_Spec spec = {.name = "launchkit.dispatch.native._core.PlannedOp",
                      .basicsize = (int)(partial->tp_basicsize + sizeof(PyObject *)),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                      .slots = slots};
  if (partial->tp_clear == NULL)
    slots[3] = (PyType_Slot){0, NULL};
  if (partial->tp_vectorcall_offset <= 0 || partial->tp_itemsize != 0 ||
      partial->tp_traverse == NULL) {
    PyErr_SetString(PyExc_TypeError, "functools.partial has another layout than is known");
    return NULL;
  }
  core_offset = partial->tp_basicsize;
  members[0].offset = partial->tp_vectorcall_offset;
  members[1].offset = core_offset;
  PyObject *bases = PyTuple_Pack(1, partial);
  PyObject *type = bases == NULL ? NULL : PyType_FromSpecWithBases(&spec, bases);
  Py_XDECREF(bases);
  return (PyTypeObject *)type;
}

PyObject *make_op(PyObject *Py_UNUSED(module), PyObject *args) {
  static PyTypeObject *type;
  PyObject *partial;
  OpCore *core;
  if (!PyArg_ParseTuple(args, "O!O!:make_op", &PyType_Type, &partial, &OpCore_Type, &core))
    return NULL;
  if (type == NULL && (type = make_op_type((PyTypeObject *)partial)) == NULL)
    return NULL;
  PyObject *made = PyObject_CallOneArg((PyObject *)type, core->function);
  if (made != NULL) {
    *core_of(made) = (OpCore *)Py_NewRef(core);
    *(vectorcallfunc *)((char *)made + type->tp_vectorcall_offset) = op_vectorcall;
  }
  return made;
}

/* ---- configuration ---- */

static int take_question(PyObject *function, Question *question) {
  if (!PyCFunction_CheckExact(function) || PyCFunction_GET_FLAGS(function) != METH_NOARGS)
    return 0;
  question->call = PyCFunction_GET_FUNCTION(function);
  question->self = Py_XNewRef(PyCFunction_GET_SELF(function));
  Py_INCREF(function); /* for ever */
  return 1;
}

/* configure_ops(modes, is_grad_enabled, requires_grad, frame callback, device): whether there can be op plans. */
PyObject *configure_ops(PyObject *Py_UNUSED(module), PyObject *args) {
  PyObject *modes, *recorded, *required, *compiles;
  PyTypeObject *device;
  if (!PyArg_ParseTuple(args, "O!OOOO!:configure_ops", &PyTuple_Type, &modes, &recorded, &required,
                        &compiles, &PyType_Type, &device))
    return NULL;
  OpState found = {.device = (PyTypeObject *)Py_NewRef(device),
                   .arm = PyUnicode_InternFromString("arm"),
                   .run = PyUnicode_InternFromString("run")};
  if (found.arm == NULL || found.run == NULL)
    return NULL;
  Py_ssize_t count = PyTuple_GET_SIZE(modes);
  bool known = count <= MAX_MODES && rt.read_tensor != NULL && rt.allocate != NULL &&
               take_question(recorded, &found.records_gradients) &&
               take_question(compiles, &found.compiles_frames) &&
               Py_IS_TYPE(required, &PyGetSetDescr_Type);
  for (Py_ssize_t i = 0; known && i < count; i++)
    known = take_question(PyTuple_GET_ITEM(modes, i), &found.modes[found.mode_count++]);
  if (!known)
    Py_RETURN_FALSE;
  PyGetSetDef *getset = ((PyGetSetDescrObject *)required)->d_getset;
  Py_INCREF(required);
  found.requires_grad = getset->get;
  found.requires_grad_closure = getset->closure;
  op_state = found;
  Py_RETURN_TRUE;
}
