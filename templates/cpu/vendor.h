// Matrix products and convolutions by ONNX Runtime's own CPU kernels.
#pragma once

#include <vector>

#include "cpu/loop.h"

namespace fusion {
namespace cpu {

// An operator of ONNX Runtime's, created with a kernel and invoked in its calls.
class Invocation {
 public:
  struct Attribute {
    const char* name;
    std::vector<int64_t> ints;
    bool list;
    const char* text;
  };

  Invocation(const Api& api, const OrtKernelInfo* info, const char* op, const char* domain, int version, int type,
             int inputs, const std::vector<Attribute>& attributes)
      : api_(api), type_(type) {
    const char* constraint = "T";
    std::vector<OrtOpAttr*> made;
    OrtStatus* status = nullptr;
    for (const Attribute& a : attributes) {
      OrtOpAttr* attribute = nullptr;
      const int length = a.text ? static_cast<int>(std::char_traits<char>::length(a.text)) : static_cast<int>(a.ints.size());
      const void* data = a.text ? static_cast<const void*>(a.text) : a.ints.data();
      status = api.CreateOpAttr(a.name, data, length, a.text ? 5 : a.list ? 2 : 1, &attribute);
      if (status) break;
      made.push_back(attribute);
    }
    if (!status)
      status = api.CreateOp(info, op, domain, version, &constraint, &type, 1, made.data(),
                            static_cast<int>(made.size()), inputs, 1, &op_);
    for (OrtOpAttr* attribute : made) api.ReleaseOpAttr(attribute);
    check(api, status);
    if (OrtStatus* failed = api.CreateCpuMemoryInfo(1, 0, &memory_)) {
      api.ReleaseOp(op_);
      check(api, failed);
    }
  }
  Invocation(const Invocation&) = delete;
  ~Invocation() {
    api_.ReleaseMemoryInfo(memory_);
    api_.ReleaseOp(op_);
  }

  template <class T>
  void operator()(const Run& run, const std::vector<Array<T>>& inputs, const Array<T>& output) const {
    std::vector<OrtValue*> values(inputs.size() + 1, nullptr);
    OrtStatus* status = nullptr;
    for (size_t i = 0; i < values.size() && !status; ++i) {
      const Array<T>& a = i < inputs.size() ? inputs[i] : output;
      status = api_.CreateTensorWithDataAsOrtValue(memory_, a.data, static_cast<size_t>(count(a.dims)) * sizeof(T),
                                                   a.dims.data(), static_cast<size_t>(a.dims.size()), type_,
                                                   &values[i]);
    }
    if (!status)
      status = api_.InvokeOp(run.context, op_, const_cast<const OrtValue* const*>(values.data()),
                             static_cast<int>(inputs.size()), &values.back(), 1);
    for (OrtValue* value : values)
      if (value) api_.ReleaseValue(value);
    check(api_, status);
  }

 private:
  Api api_;
  int type_;
  OrtOp* op_ = nullptr;
  OrtMemoryInfo* memory_ = nullptr;
};

// Whether an operator's input is constant, so that something may be made of it once and kept.
inline bool is_constant(const Api& api, const OrtKernelInfo* info, int slot) {
  int constant = 0;
  const OrtValue* value = nullptr;
  check(api, api.KernelInfoGetConstantInput_tensor(info, static_cast<size_t>(slot), &constant, &value));
  return constant != 0;
}

// The tensor as a contiguous one of T, transposed by `perm`; its own memory where it is that already.
template <class T, class S>
Array<T> dense(Run& run, const Array<S>& a, const Ints& perm = {}) {
  if constexpr (std::is_same<T, S>::value)
    if (!perm.size() && strides_of(a) == contiguous(a.dims)) return {a.data, a.dims};
  const Ints dims = perm.size() ? host::permute(a.dims, perm) : a.dims;
  T* data = static_cast<T*>(run.scratch(static_cast<size_t>(count(dims)) * sizeof(T)));
  gather(run, a.data, strides_over(dims, a, perm), dims, 0, count(dims), data);
  return {data, dims};
}

// out = a @ b over the last two axes, either stored transposed there (float only).
class MatMul {
 public:
  MatMul(const Api& api, const OrtKernelInfo* info, int type, bool trans_a, bool trans_b)
      : trans_a_(trans_a), invoke_(api, info, trans_a || trans_b ? "FusedMatMul" : "MatMul",
                trans_a || trans_b ? "com.microsoft" : "", trans_a || trans_b ? 1 : 13, type, 2,
                attributes(trans_a, trans_b)) {}

  template <class T>
  void operator()(const Run& run, const Array<T>& a, const Array<T>& b, const Array<T>& out) const {
    const int64_t total = count(out.dims);
    if (!total) return;
    if (a.dims[a.dims.size() - (trans_a_ ? 2 : 1)] == 0) {
      std::fill(out.data, out.data + total, T(0));
      return;
    }
    invoke_(run, std::vector<Array<T>>{a, b}, out);
  }

 private:
  static std::vector<Invocation::Attribute> attributes(bool trans_a, bool trans_b) {
    if (!trans_a && !trans_b) return {};
    return {{"transA", {trans_a}, false, nullptr}, {"transB", {trans_b}, false, nullptr}};
  }
  bool trans_a_;
  Invocation invoke_;
};

class Conv {
 public:
  Conv(const Api& api, const OrtKernelInfo* info, int type, bool bias, bool channels_last, const Ints& strides,
       const Ints& pads, const Ints& dilations, int64_t group, const char* auto_pad)
      : channels_last_(channels_last), invoke_(api, info, "Conv", "", 11, type, bias ? 3 : 2, attributes(strides, pads, dilations, group, auto_pad)) {}

  // The inputs have their channels first in any case.
  template <class T>
  void operator()(Run& run, const std::vector<Array<T>>& inputs, const Array<T>& out) const {
    if (!count(out.dims)) return;
    if (!channels_last_) return invoke_(run, inputs, out);
    Ints to_first{0, out.dims.size() - 1}, to_last{0};
    for (int i = 1; i + 1 < out.dims.size(); ++i) to_first.push_back(i), to_last.push_back(i + 1);
    to_last.push_back(1);
    const Ints dims = host::permute(out.dims, to_first);
    const Array<T> made{static_cast<T*>(run.scratch(static_cast<size_t>(count(dims)) * sizeof(T))), dims};
    invoke_(run, inputs, made);
    gather(run, made.data, strides_over(out.dims, made, to_last), out.dims, 0, count(out.dims), out.data);
  }

 private:
  static std::vector<Invocation::Attribute> attributes(const Ints& strides, const Ints& pads, const Ints& dilations,
                                                       int64_t group, const char* auto_pad) {
    const auto list = [](const Ints& v) { return std::vector<int64_t>(v.begin(), v.end()); };
    std::vector<Invocation::Attribute> out{{"strides", list(strides), true, nullptr},
                                           {"dilations", list(dilations), true, nullptr},
                                           {"group", {group}, false, nullptr},
                                           {"auto_pad", {}, false, auto_pad}};
    if (pads.size()) out.push_back({"pads", list(pads), true, nullptr});
    return out;
  }
  bool channels_last_;
  Invocation invoke_;
};

}  // namespace cpu
}  // namespace fusion
