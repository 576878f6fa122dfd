/* The extension module: its types, and configure(), which tells it what Python knows. */
#include "op.h"

Runtime rt;
Names names;

/* Version 1 of DLPack's table of functions: a version of its own in front of it. */
typedef struct {
  uint32_t major, minor;
  void *previous;
  Allocator allocate;
  void *from_object, *to_object;
  TensorReader read_tensor;
  StreamReader read_stream;
} ExchangeTable;

static int take_exchange(PyObject *capsule) {
  rt.read_tensor = NULL;
  rt.read_stream = NULL;
  rt.allocate = NULL;
  if (capsule == Py_None)
    return 0;
  ExchangeTable *table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  if (table == NULL)
    return -1;
  if (table->major == 1) {
    rt.read_tensor = table->read_tensor;
    rt.read_stream = table->read_stream;
    rt.allocate = table->allocate;
  }
  return 0;
}

static PyObject *configure(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"tensor", "parameter", "triton_dtype", "torch_dtype", "exchange",
                             "miss", "absent", "compiler", "adopt", "finish", "dtype_text",
                             "refuse", NULL};
  PyObject *given[12];
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$O!O!O!O!OOOO!OOOO:configure", keywords,
                                   &PyType_Type, &given[0], &PyType_Type, &given[1], &PyType_Type,
                                   &given[2], &PyType_Type, &given[3], &given[4], &given[5],
                                   &given[6], &PyDict_Type, &given[7], &given[8], &given[9],
                                   &given[10], &given[11]))
    return NULL;
  if (take_exchange(given[4]) < 0)
    return NULL;
  /* Never released: launches may be under way. */
  for (int i = 0; i < 12; i++)
    Py_INCREF(given[i]);
  rt.tensor = (PyTypeObject *)given[0];
  rt.parameter = (PyTypeObject *)given[1];
  rt.triton_dtype = (PyTypeObject *)given[2];
  rt.torch_dtype = (PyTypeObject *)given[3];
  rt.miss = given[5];
  rt.absent = given[6];
  rt.compiler = given[7];
  rt.adopt = given[8];
  rt.finish = given[9];
  rt.dtype_text = given[10];
  rt.refuse = given[11];
  return PyBool_FromLong(rt.read_tensor != NULL);
}

static PyMethodDef functions[] = {
    {"configure", (PyCFunction)(void (*)(void))configure, METH_VARARGS | METH_KEYWORDS,
     "Tell the core the types and functions it goes by; returns whether tensors are read without "
     "calling Python."},
    {"read_tensors_directly", read_tensors_directly, METH_O,
     "read_tensors_directly(((tensor, handle, address, dtype number, whether strided), ...)): "
     "read tensors through libtorch's C interface if these are read right; returns whether."},
    {"make_launch_function", make_launch_function, METH_VARARGS,
     "make_launch_function(functools.partial, function, autotuned): a function that launches, and "
     "that torch.compile takes for the given one."},
    {"configure_grids", configure_grids, METH_O, "configure_grids(type): that of declared grids."},
    {"launch_adopted", (PyCFunction)(void (*)(void))launch_adopted, METH_FASTCALL | METH_KEYWORDS,
     "launch_adopted(kernel, grid, ...): launch without asking whether torch.compile is compiling."},
    {"launch_installed", (PyCFunction)(void (*)(void))launch_installed,
     METH_FASTCALL | METH_KEYWORDS,
     "launch_installed(kernel, grid, ...): the same for install()'s kernel[grid]."},
    {"begun_by_install", begun_by_install, METH_NOARGS,
     "Tell whether this thread's innermost launch is one of install()'s kernel[grid]."},
    {"ticks", profile_ticks, METH_NOARGS, "Read the counter that launches are timed with."},
    {"use_clock", profile_use_clock, METH_O,
     "use_clock(whether): time launches with the system's clock in ns, or else with the CPU's "
     "counter where that is even; returns whether it is the counter."},
    {"configure_ops", configure_ops, METH_VARARGS,
     "configure_ops(functions that count torch's modes, is_grad_enabled, requires_grad, frame "
     "callback, device type): tell op plans what they go by; returns whether there can be any."},
    {"make_op", make_op, METH_VARARGS,
     "make_op(functools.partial, function, OpCore): a function that replays, and that "
     "torch.compile takes for the given one."},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "launchkit.dispatch.native._core",
    .m_doc = "The launch core in C.",
    .m_size = -1,
    .m_methods = functions,
};

static int intern_names(void) {
  struct {
    PyObject **place;
    const char *text;
  } all[] = {
      {&names.data_ptr, "data_ptr"}, {&names.dtype, "dtype"},
      {&names.device, "device"},     {&names.index, "index"},
      {&names.type, "type"},         {&names.compiling, "_is_compiling_flag"},
      {&names.entry, "_launchkit_entry"}, {&names.route, "_launchkit_route"},
      {&names.missed, "missed"},
      {&names.best_config, "best_config"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if ((*all[i].place = PyUnicode_InternFromString(all[i].text)) == NULL)
      return -1;
  return 0;
}

PyMODINIT_FUNC PyInit__core(void) {
  PyTypeObject *types[] = {&WatchSet_Type, &Plan_Type,      &Core_Type,
                           &Entry_Type,    &Subscript_Type, &BoundLaunch_Type,
                            &Recording_Type, &OpPlan_Type,   &OpCore_Type,
                            &LaunchRecorder_Type, &InstalledSubscript_Type, &HeuristicFront_Type,
                            &Frozen_Type};
  PyObject *module = intern_names() < 0 || know_entries() < 0 ? NULL : PyModule_Create(&definition);
  for (size_t i = 0; module != NULL && i < sizeof types / sizeof *types; i++)
    if (PyModule_AddType(module, types[i]) < 0)
      Py_CLEAR(module);
  if (module != NULL)
    make_watcher();
  return module;
}
