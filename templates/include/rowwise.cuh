// Rows on threads: a warp for a short row, a block for a longer one, so that reductions stay on chip.
#pragma once

#include <limits>

#include "include/vector.cuh"

namespace fusion::gpu {

constexpr int kRowVector = 8;     // neighbouring elements that one thread loads at once
constexpr int kRowElements = 16;  // elements of a row that one thread keeps in registers
constexpr int kRowThreads = 512;  // most threads of one row
constexpr int kShortRows = 4;     // short rows (a warp each) per block

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
  const int64_t wanted = ceil_div(length, kRowElements * 32) * 32;
  const int lanes = static_cast<int>(wanted < 32 ? 32 : wanted > kRowThreads ? kRowThreads : wanted);
  const int per_block = lanes == 32 ? kShortRows : 1;
  return {grid_size(ceil_div(rows, per_block), what), static_cast<unsigned>(lanes * per_block), lanes,
          length <= static_cast<int64_t>(lanes) * kRowElements};
}

// One thread's part of a row, `kRowElements` at a time. Where rows start at aligned addresses a thread takes
// vectors of neighbours (one 16-byte access); `packed` false deals them out one by one, coalesced all the same.
struct Row {
  int64_t index;
  int64_t length;
  int lanes;
  int lane;
  bool packed;
  int64_t start = 0;

  __device__ __forceinline__ Row(int64_t length_, int lanes_)
      : index(static_cast<int64_t>(blockIdx.x) * (blockDim.x / lanes_) + threadIdx.x / lanes_),
        length(length_),
        lanes(lanes_),
        lane(threadIdx.x % lanes_),
        packed(length_ % kRowVector == 0) {}

  __device__ __forceinline__ int64_t chunk() const { return static_cast<int64_t>(lanes) * kRowElements; }
  __device__ __forceinline__ int64_t position(int i) const {
    return packed ? start + (static_cast<int64_t>(i / kRowVector) * lanes + lane) * kRowVector + i % kRowVector
                  : start + lane + static_cast<int64_t>(i) * lanes;
  }
  // A vector lies in the row as a whole or not at all.
  __device__ __forceinline__ bool valid(int i) const {
    return position(packed ? i / kRowVector * kRowVector : i) < length;
  }

  template <class T, class X>
  __device__ __forceinline__ void load(const T* row, int64_t step, X (&x)[kRowElements]) const {
    if (packed) {
#pragma unroll
      for (int i = 0; i < kRowElements; i += kRowVector) {
        load_vector<kRowVector>(row + position(i) * step, step, valid(i) ? kRowVector : 0, vector(x, i));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRowElements; ++i) x[i] = valid(i) ? static_cast<X>(fusion::load(row + position(i) * step)) : X();
    }
  }

  template <class T, class X>
  __device__ __forceinline__ void store(T* row, const X (&x)[kRowElements]) const {
    if (packed) {
#pragma unroll
      for (int i = 0; i < kRowElements; i += kRowVector) {
        store_vector<kRowVector>(row + position(i), valid(i) ? kRowVector : 0, vector(x, i));
      }
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
  template <class X>
  static __device__ __forceinline__ auto vector(X (&x)[kRowElements], int i) -> X (&)[kRowVector] {
    return reinterpret_cast<X(&)[kRowVector]>(x[i]);
  }
  template <class X>
  static __device__ __forceinline__ X shuffle_xor(X x, int mask) {
    return __shfl_xor_sync(0xffffffffu, x, mask);
  }
};

}  // namespace fusion::gpu
