// The vendor's convolution: what cuDNN's graph API computes, in the same words, for the kernels' `CudnnConv`.
#pragma once

#include <cstring>
#include <map>
#include <vector>

#include "cublas.h"
#include "tf32.h"

namespace cuda_host {

// Other descriptors are copied into it, which may be destroyed before it is.
struct Descriptor {
  int kind;
  bool final = false;
  std::map<int, std::vector<char>> attributes;
  std::map<int, std::vector<Descriptor>> parts;

  template <class T>
  std::vector<T> all(int attribute) const {
    const auto found = attributes.find(attribute);
    std::vector<T> values(found == attributes.end() ? 0 : found->second.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), found->second.data(), found->second.size());
    return values;
  }
  template <class T>
  T one(int attribute) const {
    T value;
    return std::memcpy(&value, attributes.at(attribute).data(), sizeof(T)), value;
  }
  const Descriptor& other(int attribute) const { return parts.at(attribute).at(0); }
};

inline int cudnn_create(int kind, void** made) { return *made = new Descriptor{kind}, 0; }
inline int cudnn_destroy(void* made) { return delete static_cast<Descriptor*>(made), 0; }
inline int cudnn_set(void* of, int attribute, int type, int64_t count, const void* values) {
  const size_t size = type == 3 || type == 0 || type == 6 ? 8 : type == 2 ? 1 : 4;
  const char* const data = static_cast<const char*>(values);
  auto& found = *static_cast<Descriptor*>(of);
  if (found.final) return 1;
  if (type == 15) {
    for (int64_t i = 0; i < count; ++i) found.parts[attribute].push_back(*static_cast<Descriptor* const*>(values)[i]);
    return 0;
  }
  found.attributes[attribute].assign(data, data + size * count);
  return 0;
}
inline int cudnn_finalize(void* of) { return static_cast<Descriptor*>(of)->final = true, 0; }
// A heuristic names two kernels, of which the first is on tensor cores; a plan needs no memory.
inline int cudnn_get(void* of, int attribute, int, int64_t, int64_t* count, void* values) {
  auto& found = *static_cast<Descriptor*>(of);
  *count = 1;
  if (attribute == 402) return std::memset(values, 0, 8), 0;
  if (attribute == 300) return **static_cast<Descriptor**>(values) = found.other(300), 0;
  if (attribute == 1303) {
    const auto notes = found.all<int>(1303);
    *count = static_cast<int64_t>(notes.size());
    return std::copy(notes.begin(), notes.end(), static_cast<int*>(values)), 0;
  }
  if (attribute != 202 || !found.final) return 1;
  const void* const graph = &found.other(201);
  *count = 2;
  for (int i = 0; i < 2; ++i) {
    Descriptor engine{2};
    const int tensor_cores = 0;
    const void* const part = &engine;
    if (i == 0) cudnn_set(&engine, 1303, 11, 1, &tensor_cores);
    cudnn_set(static_cast<void**>(values)[i], 1, 15, 1, &graph), cudnn_set(static_cast<void**>(values)[i], 300, 15, 1, &part);
  }
  return 0;
}

// A tensor: where the element at a position lies, and what is in it.
struct Image {
  std::vector<int64_t> dims, strides;
  int type;
  int64_t id;
  bool is_virtual;
  std::vector<float>* virtual_;
  char* data;

  Image(const Descriptor& d, const std::map<int64_t, void*>& bound, std::map<int64_t, std::vector<float>>& made)
      : dims(d.all<int64_t>(902)), strides(d.all<int64_t>(903)), type(d.one<int>(901)), id(d.one<int64_t>(906)),
        is_virtual(d.one<bool>(907)), virtual_(&made[id]), data(nullptr) {
    if (is_virtual) virtual_->resize(static_cast<size_t>(dims[0] * strides[0]));
    else data = static_cast<char*>(bound.at(id));
    if (type == 9) type = 14;  // cuBLAS's number of bfloat16
  }
  // Axes of one position are read again and again.
  int64_t at(const std::vector<int64_t>& place) const {
    int64_t offset = 0;
    for (size_t i = 0; i < dims.size(); ++i) offset += dims[i] == 1 ? 0 : place[i] * strides[i];
    return offset;
  }
  float element(int64_t offset) const { return is_virtual ? (*virtual_)[offset] : get(data, type, offset); }
  float load(const std::vector<int64_t>& place) const { return element(at(place)); }
  void store(const std::vector<int64_t>& place, float value) const {
    if (is_virtual) (*virtual_)[at(place)] = value;
    else put(data, type, at(place), value);
  }
  template <class F>
  void each(F visit) const {
    std::vector<int64_t> place(dims.size(), 0);
    for (int64_t left = count(); left > 0; --left) {
      visit(place);
      for (size_t i = dims.size(); i-- > 0 && ++place[i] == dims[i];) place[i] = 0;
    }
  }
  int64_t count() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
};

// On tensor cores floats are rounded to TF32.
inline float operand(float x, int type, bool on_tensor_cores) {
  return on_tensor_cores && type == 0 ? cut(to_tf32(x)) : x;
}

inline float dot(const Descriptor& how, const Image& x, const Image& w, const std::vector<int64_t>& place, int64_t groups,
                 bool on_tensor_cores) {
  const auto dilations = how.all<int64_t>(102), strides = how.all<int64_t>(103), before = how.all<int64_t>(105);
  float sum = 0.0f;
  Image window = w;
  window.dims[0] = window.dims[1] = 1;
  std::vector<int64_t> from{place[0], place[1] / (w.dims[0] / groups) * w.dims[1]};
  from.resize(place.size());
  window.each([&](const std::vector<int64_t>& tap) {
    for (size_t i = 2; i < tap.size(); ++i) {
      from[i] = place[i] * strides[i - 2] - before[i - 2] + tap[i] * dilations[i - 2];
      if (from[i] < 0 || from[i] >= x.dims[i]) return;
    }
    int64_t there = x.at(from), weight = place[1] * w.strides[0] + window.at(tap);
    for (int64_t channel = 0; channel < w.dims[1]; ++channel, there += x.strides[1], weight += w.strides[1]) {
      sum += operand(x.element(there), x.type, on_tensor_cores) * operand(w.element(weight), w.type, on_tensor_cores);
    }
  });
  return sum;
}

inline void execute(const Descriptor& plan, const Descriptor& pack) {
  const auto ids = pack.all<int64_t>(1000);
  const auto pointers = pack.all<void*>(1001);
  std::map<int64_t, void*> bound;
  std::map<int64_t, std::vector<float>> made;
  for (size_t i = 0; i < ids.size(); ++i) bound[ids[i]] = pointers[i];
  const Descriptor& chosen = plan.other(401);
  const bool on_tensor_cores = !chosen.other(300).all<int>(1303).empty();
  for (const Descriptor& o : chosen.other(1).parts.at(801)) {
    if (o.kind == 10) {
      const Image x(o.other(704), bound, made), w(o.other(703), bound, made), y(o.other(705), bound, made);
      y.each([&](const std::vector<int64_t>& p) { y.store(p, dot(o.other(702), x, w, p, x.dims[1] / w.dims[1], on_tensor_cores)); });
      continue;
    }
    const Image x(o.other(751), bound, made), y(o.other(753), bound, made);
    const bool adds = o.other(750).one<int>(0) == 0;
    const Image b = adds ? Image(o.other(752), bound, made) : x;
    y.each([&](const std::vector<int64_t>& p) {
      const float value = x.load(p);
      y.store(p, adds ? value + b.load(p) : !(value > 0) && value == value ? 0.0f : value);
    });
  }
}
inline int cudnn_execute(void*, void* plan, void* pack) {
  enqueue([plan = *static_cast<Descriptor*>(plan), pack = *static_cast<Descriptor*>(pack)] { execute(plan, pack); });
  return 0;
}

inline void* cudnn(const char* name) {
  const std::pair<const char*, void*> known[] = {
      {"cudnnBackendCreateDescriptor", reinterpret_cast<void*>(cudnn_create)},
      {"cudnnBackendDestroyDescriptor", reinterpret_cast<void*>(cudnn_destroy)},
      {"cudnnBackendSetAttribute", reinterpret_cast<void*>(cudnn_set)},
      {"cudnnBackendGetAttribute", reinterpret_cast<void*>(cudnn_get)},
      {"cudnnBackendFinalize", reinterpret_cast<void*>(cudnn_finalize)},
      {"cudnnBackendExecute", reinterpret_cast<void*>(cudnn_execute)},
  };
  for (const auto& [known_name, function] : known) {
    if (!std::strcmp(name, known_name)) return function;
  }
  return nullptr;
}

// A library of the vendor's, or a function of one, by name.
inline void* vendor(const char* name) {
  void* const found = cudnn(name);
  return found != nullptr ? found : cublas(name);
}

}  // namespace cuda_host
