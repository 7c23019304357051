// Rows on threads: a warp for a short row, a block for a longer one, so that reductions stay on chip.
#pragma once

#include <limits>

#include "include/vector.cuh"

namespace fusion::gpu {

constexpr int kRowElements = 8;     // elements of a row that one thread keeps in registers
constexpr int kRowThreads = 1024;   // most threads of one row
constexpr int kShortRows = 4;       // short rows (a warp each) per block

template <class X>
__device__ __forceinline__ X highest() {
  using Limits = std::numeric_limits<X>;
  return Limits::has_infinity ? Limits::infinity() : Limits::max();
}
template <class X>
__device__ __forceinline__ X lowest() {
  using Limits = std::numeric_limits<X>;
  return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
}

struct Sum {
  template <class X> static __device__ __forceinline__ X identity() { return X(0); }
  template <class X> __device__ __forceinline__ X operator()(X a, X b) const { return a + b; }
};
struct Prod {
  template <class X> static __device__ __forceinline__ X identity() { return X(1); }
  template <class X> __device__ __forceinline__ X operator()(X a, X b) const { return a * b; }
};
// NaN wins, as in numpy.
struct Max {
  template <class X> static __device__ __forceinline__ X identity() { return lowest<X>(); }
  template <class X> __device__ __forceinline__ X operator()(X a, X b) const { return a > b || a != a ? a : b; }
};
struct Min {
  template <class X> static __device__ __forceinline__ X identity() { return highest<X>(); }
  template <class X> __device__ __forceinline__ X operator()(X a, X b) const { return a < b || a != a ? a : b; }
};

struct RowLaunch {
  unsigned grid;
  unsigned threads;
  int lanes;       // threads of one row
  bool registers;  // the row fits in them
};

inline RowLaunch row_launch(int64_t rows, int64_t length, const char* what) {
  grid_size(length + kRowThreads * kRowElements, what);  // a kernel counts a row in 32 bits
  const int64_t wanted = ceil_div(length, kRowElements * 32) * 32;
  const int lanes = static_cast<int>(wanted < 32 ? 32 : wanted > kRowThreads ? kRowThreads : wanted);
  const int per_block = lanes == 32 ? kShortRows : 1;
  return {grid_size(ceil_div(rows, per_block), what), static_cast<unsigned>(lanes * per_block), lanes,
          length <= static_cast<int64_t>(lanes) * kRowElements};
}

// One thread's part of a row, `kRowElements` at a time. Where rows start at aligned addresses a thread takes
// neighbouring elements (one 16-byte access); `packed` false deals them out one by one, coalesced all the same.
struct Row {
  int64_t index;
  int length;
  int lanes;
  int lane;
  bool packed;
  int start = 0;

  __device__ __forceinline__ Row(int64_t length_, int lanes_)
      : index(static_cast<int64_t>(blockIdx.x) * (blockDim.x / lanes_) + threadIdx.x / lanes_),
        length(static_cast<int>(length_)),
        lanes(lanes_),
        lane(threadIdx.x % lanes_),
        packed(length_ % kRowElements == 0) {}

  __device__ __forceinline__ int chunk() const { return lanes * kRowElements; }
  __device__ __forceinline__ int position(int i) const { return first() + i * (packed ? 1 : lanes); }
  // Neighbours lie in the row together or not at all.
  __device__ __forceinline__ bool valid(int i) const { return first() + i * (packed ? 0 : lanes) < length; }

  template <class T, class X>
  __device__ __forceinline__ void load(const T* row, int64_t step, X (&x)[kRowElements]) const {
    if (packed) {
      load_vector<kRowElements>(row + first() * step, step, valid(0) ? kRowElements : 0, x);
    } else {
#pragma unroll
      for (int i = 0; i < kRowElements; ++i) {
        x[i] = valid(i) ? static_cast<X>(fusion::load(row + position(i) * step)) : X();
      }
    }
  }

  template <class T, class X>
  __device__ __forceinline__ void store(T* row, const X (&x)[kRowElements]) const {
    if (packed) {
      store_vector<kRowElements>(row + first(), 1, valid(0) ? kRowElements : 0, x);
    } else {
#pragma unroll
      for (int i = 0; i < kRowElements; ++i) {
        if (valid(i)) fusion::store(row + position(i), x[i]);
      }
    }
  }

  // Combines the threads' partial results; every thread of the row gets the whole. All of them must call it.
  template <class Op, class X>
  __device__ __forceinline__ X reduce(X x, Op op) const {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) x = op(x, shuffle_xor(x, o));
    if (lanes == 32) return x;
    __shared__ X partial[32];
    __syncthreads();  // the last reduction's readers are done
    if (lane % 32 == 0) partial[lane / 32] = x;
    __syncthreads();
    x = lane % 32 < lanes / 32 ? partial[lane % 32] : Op::template identity<X>();
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) x = op(x, shuffle_xor(x, o));
    return x;
  }

 private:
  __device__ __forceinline__ int first() const { return start + lane * (packed ? kRowElements : 1); }
  template <class X>
  static __device__ __forceinline__ X shuffle_xor(X x, int mask) {
    return __shfl_xor_sync(0xffffffffu, x, mask);
  }
};

}  // namespace fusion::gpu
