// Dimensions: short vectors of integers, and what they say of where a tensor's elements lie.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>

namespace fusion {

// A failure of one operator call; the ABI boundary turns it into an OrtStatus that names the node.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A short vector of integers without heap storage: dimensions, axes, or the contents of a shape tensor.
class Ints {
 public:
  static constexpr int kCapacity = 64;

  Ints() = default;
  Ints(std::initializer_list<int64_t> values) {
    for (int64_t value : values) push_back(value);
  }
  Ints(const int64_t* data, int64_t size) {
    for (int64_t i = 0; i < size; ++i) push_back(data[i]);
  }
  static Ints filled(int64_t size, int64_t value) {
    Ints out;
    for (int64_t i = 0; i < size; ++i) out.push_back(value);
    return out;
  }

  int size() const { return size_; }
  int64_t& operator[](int i) { return data_[i]; }
  int64_t operator[](int i) const { return data_[i]; }
  const int64_t* data() const { return data_; }
  const int64_t* begin() const { return data_; }
  const int64_t* end() const { return data_ + size_; }
  int64_t back() const { return data_[size_ - 1]; }
  void pop_back() { --size_; }
  void push_back(int64_t value) {
    if (size_ == kCapacity) throw Error("a shape computation needs more than 64 elements");
    data_[size_++] = value;
  }
  // Element i counted from the end when negative, checked.
  int64_t at(int64_t i) const {
    if (i < 0) i += size_;
    if (i < 0 || i >= size_) throw Error("a shape computation reads past the end of a shape");
    return data_[i];
  }
  bool operator==(const Ints& other) const {
    if (size_ != other.size_) return false;
    for (int i = 0; i < size_; ++i)
      if (data_[i] != other.data_[i]) return false;
    return true;
  }
  bool operator!=(const Ints& other) const { return !(*this == other); }

 private:
  int64_t data_[kCapacity];
  int size_ = 0;
};

inline int64_t count(const Ints& dims) {
  int64_t n = 1;
  for (int64_t d : dims) {
    if (d < 0) throw Error("a dimension is negative");
    if (__builtin_mul_overflow(n, d, &n)) throw Error("a tensor is too large");
  }
  return n;
}

// Element strides of a contiguous row-major tensor.
inline Ints contiguous(const Ints& dims) {
  Ints strides = Ints::filled(dims.size(), 1);
  for (int i = dims.size() - 2; i >= 0; --i) strides[i] = strides[i + 1] * dims[i + 1];
  return strides;
}

// Where part of a tensor begins in memory, and its strides.
struct Window {
  int64_t offset;
  Ints strides;
};

// The part that has, along each axis, `counts` elements from `starts` on, `steps` apart.
inline Window window(const Ints& dims, const Ints& strides, const Ints& counts, const Ints& starts, const Ints& steps) {
  Window out{0, strides};
  const bool empty = count(counts) == 0;
  for (int i = 0; i < dims.size(); ++i) {
    const int64_t last = starts[i] + (counts[i] - 1) * steps[i];
    if (!empty && (starts[i] < 0 || starts[i] >= dims[i] || last < 0 || last >= dims[i]))
      throw Error("a part of a tensor lies outside of it");
    if (counts[i] > 1) out.strides[i] *= steps[i];
    if (!empty) out.offset += starts[i] * strides[i];
  }
  return out;
}

// Strides of a strided tensor whose axes are split in several, or axes of size 1 put in or taken out.
inline Ints split_strides(const Ints& dims, const Ints& strides, const Ints& split) {
  Ints out = Ints::filled(split.size(), 0);
  int next = split.size() - 1;
  for (int i = dims.size() - 1; i >= 0; --i) {
    if (dims[i] == 1) continue;
    int64_t stride = strides[i], left = dims[i];
    for (; next >= 0 && (left > 1 || split[next] == 1); --next) {
      out[next] = stride;
      stride *= split[next];
      if (split[next] == 0 || left % split[next] != 0) {
        if (count(split) == 0) return out;
        throw Error("a reshape of a part of a tensor merges axes");
      }
      left /= split[next];
    }
  }
  return out;
}

}  // namespace fusion
