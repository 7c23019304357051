// What kernels read and write as their host side knows it: tensors, strided views, and iteration spaces of these.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <utility>

#include "include/dims.h"
#include "include/divisor.h"

namespace fusion::gpu {

constexpr int kMaxRank = 8;  // the emitter turns regions of a higher rank down

struct Tensor {
  void* data;
  const Ints* dims;
  Ints strides = {};  // of elements; contiguous where there are none
};

inline Ints strides_of(const Tensor& t) { return t.strides.size() ? t.strides : contiguous(*t.dims); }

// Part of a tensor of T: along each axis `counts` elements from `starts` on, `steps` apart.
template <class T>
Tensor part(const Tensor& t, const Ints& counts, const Ints& starts, const Ints& steps) {
  const Window w = window(*t.dims, strides_of(t), counts, starts, steps);
  return {static_cast<T*>(t.data) + w.offset, &counts, w.strides};
}

// The same elements in other dimensions; of a part, axes are only split.
inline Tensor reshaped(const Tensor& t, const Ints& dims) {
  if (!t.strides.size()) return {t.data, &dims};
  return {t.data, &dims, split_strides(*t.dims, t.strides, dims)};
}

// A tensor as a kernel reads it: sizes and element strides after an optional permutation, outermost axis first.
struct View {
  int rank = 0;
  int64_t size[kMaxRank] = {};
  int64_t stride[kMaxRank] = {};

  // Stride of the axis `back` places from the end, 0 where the operand is broadcast.
  int64_t step(int back) const { return back <= rank && size[rank - back] != 1 ? stride[rank - back] : 0; }
};

inline View view(const Tensor& tensor, std::initializer_list<int> perm = {}) {
  const Ints& dims = *tensor.dims;
  const Ints strides = strides_of(tensor);
  View out;
  out.rank = static_cast<int>(dims.size());
  for (int d = 0; d < out.rank; ++d) {
    const int source = perm.size() == 0 ? d : perm.begin()[d];
    out.size[d] = dims[source];
    out.stride[d] = strides[source];
  }
  return out;
}

// The first row of a matrix.
inline View one_row(const View& table) {
  View out;
  out.rank = 1, out.size[0] = table.size[1], out.stride[0] = table.stride[1];
  return out;
}

// The view with its last two axes swapped.
inline View transposed(View v) {
  std::swap(v.size[v.rank - 1], v.size[v.rank - 2]);
  std::swap(v.stride[v.rank - 1], v.stride[v.rank - 2]);
  return v;
}

// An iteration space and where each of N broadcast operands lies in it. Axes are kept innermost first, those of size
// one dropped, neighbours that every operand walks as one merged: most spaces end with one or two axes.
template <int N>
struct Space {
  static constexpr int kOperands = N > 0 ? N : 1;  // no array has none
  using Places = int64_t[kOperands];
  // What a walk needs of an axis lies side by side: a launch's first reads of its parameters come line by line from memory.
  struct Along {
    int64_t size;
    Divisor divisor;  // of the size, if all positions are numbers of 31 bits
    int64_t stride[kOperands];
  };
  int rank;
  bool small;  // positions and offsets are numbers of 31 bits
  int64_t count;
  Along axis[kMaxRank];

  void prepare() {
    const bool few = count <= INT32_MAX;
    small = few;
    for (int k = 0; k < N && count > 0; ++k) {
      int64_t reach = 0;
      for (int d = 0; d < rank; ++d) reach += (axis[d].size - 1) * std::abs(axis[d].stride[k]);
      small = small && reach <= INT32_MAX;
    }
    for (int d = 0; d < rank && count > 0 && few; ++d) {
      axis[d].divisor = Divisor::of(static_cast<uint64_t>(axis[d].size));
    }
  }

  // Element offset of every operand at linear index `e`; kSmall where the space is known to be small, kFlat where it has one axis at most, too.
  template <bool kSmall = false, bool kFlat = false>
  __device__ __forceinline__ void locate(int64_t e, Places& at) const {
    if constexpr (kFlat) {
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] = static_cast<int32_t>(e) * static_cast<int32_t>(axis[0].stride[k]);
    } else if (kSmall || small) {
      walk<int32_t>(static_cast<uint32_t>(e), at);
    } else {
      walk<int64_t>(static_cast<uint64_t>(e), at);
    }
  }

  // The same of a position that is a block's, of which no launch has more than 31 bits count: what is never run would lie between
  // what is, and instructions have to come from memory, too.
  __device__ __forceinline__ void locate_block(int64_t e, Places& at) const {
    walk<int64_t>(static_cast<uint32_t>(e), at);
  }

 private:
  __device__ __forceinline__ uint32_t divided(uint32_t e, int d) const { return axis[d].divisor.quotient(e); }
  __device__ __forceinline__ uint64_t divided(uint64_t e, int d) const { return e / static_cast<uint64_t>(axis[d].size); }

  template <class Offset, class Index>
  __device__ __forceinline__ void walk(Index e, Places& at) const {
    Offset offset[kOperands] = {};
    if (rank > 1) {
      e = split(e, 0, offset);
#pragma unroll 1
      for (int d = 1; d + 1 < rank; ++d) e = split(e, d, offset);
      add(e, rank - 1, offset);
    } else {
      add(e, 0, offset);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = offset[k];
  }
  template <class Offset, class Index>
  __device__ __forceinline__ Index split(Index e, int d, Offset (&offset)[kOperands]) const {
    const Index next = divided(e, d);
    add(e - next * static_cast<Index>(axis[d].size), d, offset);
    return next;
  }
  template <class Offset, class Index>
  __device__ __forceinline__ void add(Index position, int d, Offset (&offset)[kOperands]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) offset[k] += static_cast<Offset>(position) * static_cast<Offset>(axis[d].stride[k]);
  }
};

// The space of `dims` without its last `skip` axes.
template <int N>
Space<N> space(const Ints& dims, const View (&views)[Space<N>::kOperands], int skip = 0) {
  Space<N> s{};
  s.count = 1;
  const int rank = static_cast<int>(dims.size());
  for (int back = skip + 1; back <= rank; ++back) {
    const int64_t size = dims[rank - back];
    s.count *= size;
    if (size == 1) continue;
    bool merge = s.rank > 0;
    for (int k = 0; k < N && merge; ++k) {
      const auto& inner = s.axis[s.rank - 1];
      merge = views[k].step(back) == inner.stride[k] * inner.size;
    }
    if (merge) {
      s.axis[s.rank - 1].size *= size;
      continue;
    }
    s.axis[s.rank].size = size;
    for (int k = 0; k < N; ++k) s.axis[s.rank].stride[k] = views[k].step(back);
    ++s.rank;
  }
  s.prepare();
  return s;
}

// Position along one axis of a row-major space, from the linear index: (index / inner) % size.
struct Axis {
  int64_t inner;
  int64_t size;
  __device__ __forceinline__ int64_t at(int64_t index) const { return (index / inner) % size; }
};

inline Axis axis(const Ints& dims, int back, int skip = 0) {
  const int rank = static_cast<int>(dims.size());
  Axis a{1, dims[rank - back]};
  for (int d = rank - back + 1; d < rank - skip; ++d) a.inner *= dims[d];
  return a;
}

template <class T>
size_t bytes(const Ints& dims) {
  return static_cast<size_t>(count(dims)) * sizeof(T);
}
inline size_t largest(std::initializer_list<size_t> sizes) {
  size_t most = 0;
  for (size_t size : sizes) most = size > most ? size : most;
  return most;
}

}  // namespace fusion::gpu
