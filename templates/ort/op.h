// One custom operator as ONNX Runtime sees it: ports, kernel life cycle, and one call of the kernel.
//
// A generated file defines `struct Kernel` with a constructor (const Api&, const OrtKernelInfo*) and
// `void compute(Run&)`, either of which may throw; the functions here turn what is thrown into an OrtStatus that names
// the node.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "include/shape_ops.h"
#include "ort/abi.h"

namespace fusion {

// Throws what ONNX Runtime reports.
inline void check(const Api& api, OrtStatus* status) {
  if (!status) return;
  const std::string text = api.GetErrorMessage(status);
  api.ReleaseStatus(status);
  throw Error(text);
}

// One input or output: its ONNX element type, and whether it stays in host memory on every provider.
struct Port {
  int type;
  bool host;
};

// One call of a kernel. Everything it hands out is valid until the call returns.
class Run {
 public:
  Run(const Api& api, OrtKernelContext* context, OrtAllocator* allocator)
      : api(api), context(context), allocator_(allocator) {}
  Run(const Run&) = delete;
  ~Run() {
    for (void* data : buffers_)
      if (OrtStatus* status = api.AllocatorFree(allocator_, data)) api.ReleaseStatus(status);
  }

  Ints dims(int slot) const {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check(api, api.GetTensorTypeAndShape(input_value(slot), &info));
    const Ints dims = dims_of(info);
    api.ReleaseTensorTypeAndShapeInfo(info);
    return dims;
  }

  // The same, which have to be those that the kernel was generated for (-1: any).
  Ints dims(int slot, const Ints& expected) const {
    const Ints found = dims(slot);
    bool fits = found.size() == expected.size();
    for (int i = 0; fits && i < found.size(); ++i) fits = expected[i] < 0 || expected[i] == found[i];
    if (!fits) throw Error("input " + std::to_string(slot) + " has not the dimensions that the kernel is for");
    return found;
  }

  // The elements of an int64 or int32 input in host memory.
  Ints read(int slot) const {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check(api, api.GetTensorTypeAndShape(input_value(slot), &info));
    const int64_t size = count(dims_of(info));
    int type = 0;
    OrtStatus* status = api.GetTensorElementType(info, &type);
    api.ReleaseTensorTypeAndShapeInfo(info);
    check(api, status);
    const void* data = input(slot);
    if (type == 7) return Ints(static_cast<const int64_t*>(data), size);
    Ints out;
    for (int64_t i = 0; i < size; ++i) out.push_back(static_cast<const int32_t*>(data)[i]);
    return out;
  }

  const OrtValue* input_value(int slot) const {
    const OrtValue* value = nullptr;
    check(api, api.KernelContext_GetInput(context, static_cast<size_t>(slot), &value));
    return value;
  }

  const void* input(int slot) const { return data(const_cast<OrtValue*>(input_value(slot))); }

  void* output(int slot, const Ints& dims) const {
    OrtValue* value = nullptr;
    count(dims);
    check(api, api.KernelContext_GetOutput(context, static_cast<size_t>(slot), dims.data(), dims.size(), &value));
    return data(value);
  }

  // Memory of the kernel's own device from ONNX Runtime's arena.
  void* scratch(size_t bytes) {
    void* data = nullptr;
    check(api, api.AllocatorAlloc(allocator_, bytes ? bytes : 1, &data));
    buffers_.push_back(data);
    return data;
  }

  // The provider's cudaStream_t.
  void* stream() const {
    void* stream = nullptr;
    check(api, api.KernelContext_GetGPUComputeStream(context, &stream));
    return stream;
  }

  const Api& api;
  OrtKernelContext* const context;

 private:
  Ints dims_of(OrtTensorTypeAndShapeInfo* info) const {
    size_t rank = 0;
    int64_t dims[Ints::kCapacity];
    OrtStatus* status = api.GetDimensionsCount(info, &rank);
    if (!status && rank <= Ints::kCapacity) status = api.GetDimensions(info, dims, rank);
    if (status) api.ReleaseTensorTypeAndShapeInfo(info);
    check(api, status);
    return Ints(dims, static_cast<int64_t>(rank));
  }

  void* data(OrtValue* value) const {
    void* data = nullptr;
    check(api, api.GetTensorMutableData(value, &data));
    return data;
  }

  OrtAllocator* allocator_;
  std::vector<void*> buffers_;
};

// A kernel of one node, and what is needed to report its failures.
template <class Kernel>
struct Instance {
  Instance(const Api& api, const OrtKernelInfo* info, std::string label)
      : api(api), label(std::move(label)), kernel(api, info) {
    check(api, api.KernelInfoGetAllocator(info, 0, &allocator));
  }
  Api api;
  std::string label;
  OrtAllocator* allocator = nullptr;
  Kernel kernel;
};

// Whether an operator's input is a constant of the model.
inline bool is_constant(const Api& api, const OrtKernelInfo* info, size_t slot) {
  int constant = 0;
  const OrtValue* value = nullptr;
  check(api, api.KernelInfoGetConstantInput_tensor(info, slot, &constant, &value));
  return constant != 0;
}

inline std::string node_label(const Api& api, const OrtKernelInfo* info, const char* op) {
  size_t size = 0;
  std::string node;
  OrtStatus* status = api.KernelInfo_GetNodeName(info, nullptr, &size);
  if (!status && size) {
    node.resize(size);
    status = api.KernelInfo_GetNodeName(info, &node[0], &size);
    node.resize(size ? size - 1 : 0);
  }
  if (status) api.ReleaseStatus(status);
  return "node '" + node + "' (" + op + "): ";
}

template <class Body>
OrtStatus* guarded(const Api& api, const std::string& label, Body body) {
  try {
    body();
    return nullptr;
  } catch (const std::exception& e) {
    return api.CreateStatus(kStatusRuntimeException, (label + e.what()).c_str());
  } catch (...) {
    return api.CreateStatus(kStatusFail, (label + "unknown failure").c_str());
  }
}

template <class Kernel, size_t kInputs, size_t kOutputs>
struct Op : OrtCustomOp {
  Op(const char* name, const char* provider, const Port* in, const Port* out)
      : OrtCustomOp{}, name(name), provider(provider), inputs(in), outputs(out) {
    version = kApiVersion;
    GetName = [](const OrtCustomOp* self) { return get(self).name; };
    GetExecutionProviderType = [](const OrtCustomOp* self) { return get(self).provider; };
    GetInputType = [](const OrtCustomOp* self, size_t i) { return get(self).inputs[i].type; };
    GetInputTypeCount = [](const OrtCustomOp*) { return kInputs; };
    GetOutputType = [](const OrtCustomOp* self, size_t i) { return get(self).outputs[i].type; };
    GetOutputTypeCount = [](const OrtCustomOp*) { return kOutputs; };
    GetInputCharacteristic = [](const OrtCustomOp*, size_t) { return 0; };
    GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return 0; };
    GetInputMemoryType = [](const OrtCustomOp* self, size_t i) { return get(self).inputs[i].host ? -2 : 0; };
    CreateKernelV2 = create;
    KernelComputeV2 = run;
    KernelDestroy = [](void* kernel) { delete static_cast<Instance<Kernel>*>(kernel); };
  }

  static const Op& get(const OrtCustomOp* self) { return *static_cast<const Op*>(self); }

  static OrtStatus* create(const OrtCustomOp* self, const OrtApi* table, const OrtKernelInfo* info, void** out) {
    const Api api(table);
    const std::string label = node_label(api, info, get(self).name);
    return guarded(api, label, [&] { *out = new Instance<Kernel>(api, info, label); });
  }

  static OrtStatus* run(void* kernel, OrtKernelContext* context) {
    auto& instance = *static_cast<Instance<Kernel>*>(kernel);
    return guarded(instance.api, instance.label, [&] {
      Run run(instance.api, context, instance.allocator);
      instance.kernel.compute(run);
    });
  }

  const char* name;
  const char* provider;
  const Port* inputs;
  const Port* outputs;
};

}  // namespace fusion

#define FUSION_OP(name, provider, inputs, outputs, Kernel)                                    \
  extern "C" __attribute__((visibility("hidden"))) const OrtCustomOp* fusion_op_##name() {    \
    static const fusion::Op<Kernel, sizeof(inputs) / sizeof(*(inputs)), sizeof(outputs) / sizeof(*(outputs))> op( \
        #name, provider, inputs, outputs);                                                    \
    return &op;                                                                               \
  }
