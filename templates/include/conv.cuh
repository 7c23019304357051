// Convolution by the CUDA provider's own kernel, invoked on device memory of ours.
#pragma once

#include <string>
#include <vector>

#include "include/gpu.cuh"
#include "ort/op.h"

namespace fusion::gpu {

class Conv {
 public:
  struct Attributes {
    Ints strides, pads, dilations;
    int64_t group;
    const char* auto_pad;
  };

  Conv(const Api& api, const OrtKernelInfo* info, int type, int inputs, const Attributes& attributes)
      : api_(api), type_(type) {
    OrtAllocator* allocator = nullptr;
    check(api, api.KernelInfoGetAllocator(info, 0, &allocator));
    check(api, api.AllocatorGetInfo(allocator, &memory_));
    Made made(api);
    made.ints("strides", attributes.strides);
    made.ints("dilations", attributes.dilations);
    if (attributes.pads.size() > 0) made.ints("pads", attributes.pads);
    made.add("group", &attributes.group, 1, kInt);
    made.add("auto_pad", attributes.auto_pad, static_cast<int>(std::string(attributes.auto_pad).size()), kString);
    const char* constraint = "T";
    check(api, api.CreateOp(info, "Conv", "", 11, &constraint, &type, 1, made.list.data(),
                            static_cast<int>(made.list.size()), inputs, 1, &op_));
  }
  Conv(const Conv&) = delete;
  Conv& operator=(const Conv&) = delete;
  ~Conv() { api_.ReleaseOp(op_); }

  // The last tensor is the output; `element` is the size of one element in bytes.
  void operator()(const Run& run, std::initializer_list<Tensor> tensors, size_t element) const {
    std::vector<OrtValue*> values;
    OrtStatus* status = nullptr;
    for (const Tensor& t : tensors) {
      OrtValue* value = nullptr;
      const size_t bytes = static_cast<size_t>(count(*t.dims)) * element;
      status = api_.CreateTensorWithDataAsOrtValue(memory_, t.data, bytes, t.dims->data(),
                                                   static_cast<size_t>(t.dims->size()), type_, &value);
      if (status != nullptr) break;
      values.push_back(value);
    }
    if (status == nullptr) {
      status = api_.InvokeOp(run.context, op_, values.data(), static_cast<int>(values.size()) - 1, &values.back(), 1);
    }
    for (OrtValue* value : values) api_.ReleaseValue(value);
    check(api_, status);
  }

 private:
  static constexpr int kInt = 1, kInts = 2, kString = 5;

  // Attributes are copied into the operator that is made of them.
  struct Made {
    explicit Made(const Api& a) : api(a) {}
    ~Made() {
      for (OrtOpAttr* attribute : list) api.ReleaseOpAttr(attribute);
    }
    void ints(const char* name, const Ints& values) { add(name, values.data(), values.size(), kInts); }
    void add(const char* name, const void* data, int length, int kind) {
      OrtOpAttr* attribute = nullptr;
      check(api, api.CreateOpAttr(name, data, length, kind, &attribute));
      list.push_back(attribute);
    }
    const Api& api;
    std::vector<OrtOpAttr*> list;
  };

  Api api_;
  int type_;
  const OrtMemoryInfo* memory_ = nullptr;
  OrtOp* op_ = nullptr;
};

}  // namespace fusion::gpu
