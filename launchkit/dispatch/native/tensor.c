/* A tensor's dtype, device and address.
 *
 * Read through libtorch's stable C interface where the place of the at::Tensor in the Python
 * object could be proven; else through DLPack's exchange, which costs five times as much; else
 * through Python methods. All three give what Tensor.data_ptr() gives, and refuse what it does.
 */
#include "core.h"

#include <dlfcn.h>
#include <string.h>

/* ---- libtorch's C interface ---- */

typedef int32_t (*FieldReader)(void *tensor, int32_t *out);

static struct {
  FieldReader dtype, device_type, device_index, layout;
  int32_t (*address)(void *tensor, void **out);
  int32_t strided; /* the layout */
} torch_c;

/* c10::DeviceType */
enum { TORCH_CPU = 0, TORCH_CUDA = 1 };

static bool find_torch_c(void) {
  void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL)
    return false;
  torch_c.dtype = (FieldReader)dlsym(library, "aoti_torch_get_dtype");
  torch_c.device_type = (FieldReader)dlsym(library, "aoti_torch_get_device_type");
  torch_c.device_index = (FieldReader)dlsym(library, "aoti_torch_get_device_index");
  torch_c.layout = (FieldReader)dlsym(library, "aoti_torch_get_layout");
  torch_c.address = (int32_t (*)(void *, void **))dlsym(library, "aoti_torch_get_data_ptr");
  dlclose(library); /* torch holds it */
  return torch_c.dtype && torch_c.device_type && torch_c.device_index && torch_c.layout &&
         torch_c.address;
}

static inline int read_at(PyObject *tensor, Py_ssize_t offset, TensorFacts *facts, bool index) {
  void *handle = (char *)tensor + offset;
  int32_t dtype, type, layout;
  void *address;
  facts->device_index = 0;
  if (*(void **)handle == NULL || torch_c.device_type(handle, &type) != 0 ||
      torch_c.dtype(handle, &dtype) != 0 ||
      (index && torch_c.device_index(handle, &facts->device_index) != 0))
    return 0;
  /* Only strided ones have an address for Python. Here mkldnn ones, which the GPU has none of,
   * have one, too; of all others the address is refused. */
  if (type != TORCH_CUDA && (torch_c.layout(handle, &layout) != 0 || layout != torch_c.strided))
    return 0;
  if (torch_c.address(handle, &address) != 0)
    return 0;
  facts->dtype = (uint32_t)dtype;
  facts->address = (uint64_t)(uintptr_t)address;
  facts->device_type = type == TORCH_CUDA ? DL_CUDA : type == TORCH_CPU ? DL_CPU : -1;
  return 1;
}

int read_directly(PyObject *tensor, TensorFacts *facts, bool index) {
  return read_at(tensor, rt.tensor_offset, facts, index);
}

/* ---- where the at::Tensor stands, proven with tensors whose handles are known ---- */

typedef struct {
  PyObject *tensor;
  void **handle; /* to another at::Tensor of the same tensor: one word, the same in both */
  uint64_t address;
  int dtype, strided;
} Probe;

static int take_probe(PyObject *spec, Probe *probe) {
  PyObject *handle;
  unsigned long long address;
  if (!PARSE_ITEM(spec, "OOKip", &probe->tensor, &handle, &address, &probe->dtype,
                  &probe->strided))
    return -1;
  probe->address = address;
  probe->handle = PyCapsule_GetPointer(handle, NULL);
  return probe->handle == NULL ? -1 : 0;
}

/* The only place where every probe holds its own word, or 0. */
static Py_ssize_t common_place(const Probe *probes, Py_ssize_t count) {
  Py_ssize_t found = 0;
  for (Py_ssize_t at = sizeof(PyObject); at + (Py_ssize_t)sizeof(void *) <= rt.tensor->tp_basicsize;
       at += sizeof(void *)) {
    bool all = true;
    for (Py_ssize_t i = 0; all && i < count; i++)
      all = *(void **)((char *)probes[i].tensor + at) == *probes[i].handle;
    if (all && found != 0)
      return 0;
    found = all ? at : found;
  }
  return found;
}

/* The others must be read as they are, and one that is not strided not at all. */
static bool reads_right(const Probe *probes, Py_ssize_t count, Py_ssize_t place) {
  int32_t first[2] = {0, 0};
  for (Py_ssize_t i = 0; i < count; i++) {
    TensorFacts facts;
    int32_t dtype;
    void *handle = (char *)probes[i].tensor + place;
    if (i == 0 && torch_c.layout(handle, &torch_c.strided) != 0)
      return false;
    if (read_at(probes[i].tensor, place, &facts, true) != probes[i].strided)
      return false;
    if (torch_c.dtype(handle, &dtype) != 0)
      return false;
    if (i == 0) {
      first[0] = dtype;
      first[1] = probes[i].dtype;
    }
    if ((dtype == first[0]) != (probes[i].dtype == first[1]))
      return false;
    if (probes[i].strided && (facts.address != probes[i].address || facts.device_type != DL_CPU))
      return false;
  }
  return true;
}

#define MAX_PROBES 16

/* read_tensors_directly(probes); the first probe is strided. */
PyObject *read_tensors_directly(PyObject *Py_UNUSED(module), PyObject *given) {
  Probe probes[MAX_PROBES];
  rt.tensor_offset = 0;
  if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) > MAX_PROBES) {
    PyErr_SetString(PyExc_TypeError, "expected a tuple of a few probes");
    return NULL;
  }
  Py_ssize_t count = PyTuple_GET_SIZE(given);
  for (Py_ssize_t i = 0; i < count; i++) {
    if (take_probe(PyTuple_GET_ITEM(given, i), &probes[i]) < 0)
      return NULL;
    if (rt.tensor == NULL || !is_tensor(probes[i].tensor))
      Py_RETURN_FALSE; /* a mode makes tensors of another class just now */
  }
  if (count < 2 || !find_torch_c())
    Py_RETURN_FALSE;
  Py_ssize_t place = common_place(probes, count);
  if (place == 0 || !reads_right(probes, count, place))
    Py_RETURN_FALSE;
  rt.tensor_offset = place;
  Py_RETURN_TRUE;
}

/* ---- DLPack's exchange ---- */

int read_exchanged(PyObject *tensor, TensorFacts *facts) {
  DLTensor seen;
  if (rt.read_tensor(tensor, &seen) != 0) {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
      return -1;
    PyErr_Clear(); /* sparse, meta, inside vmap: Triton says what it thinks of it */
    return 0;
  }
  facts->address = (uint64_t)(uintptr_t)seen.data + seen.byte_offset;
  facts->device_type = seen.device_type;
  facts->device_index = seen.device_id;
  facts->dtype = (uint64_t)seen.dtype_code << 24 | (uint64_t)seen.dtype_bits << 16 |
                 seen.dtype_lanes;
  return 1;
}

/* ---- Python methods ---- */

int read_by_methods(PyObject *tensor, TensorFacts *facts, PyObject **dtype) {
  PyObject *pointer = PyObject_CallMethodNoArgs(tensor, names.data_ptr);
  PyObject *device = pointer == NULL ? NULL : PyObject_GetAttr(tensor, names.device);
  PyObject *type = device == NULL ? NULL : PyObject_GetAttr(device, names.type);
  PyObject *index = type == NULL ? NULL : PyObject_GetAttr(device, names.index);
  *dtype = index == NULL ? NULL : PyObject_GetAttr(tensor, names.dtype);
  if (*dtype != NULL) {
    facts->address = PyLong_AsUnsignedLongLongMask(pointer);
    facts->device_type = PyUnicode_CompareWithASCIIString(type, "cuda") == 0  ? DL_CUDA
                         : PyUnicode_CompareWithASCIIString(type, "cpu") == 0 ? DL_CPU
                                                                              : -1;
    facts->device_index = index == Py_None ? 0 : (int32_t)PyLong_AsLong(index);
  }
  Py_XDECREF(pointer);
  Py_XDECREF(device);
  Py_XDECREF(type);
  Py_XDECREF(index);
  if (*dtype != NULL && !PyErr_Occurred())
    return 1;
  Py_CLEAR(*dtype);
  if (!PyErr_ExceptionMatches(PyExc_Exception))
    return -1;
  PyErr_Clear();
  return 0;
}
