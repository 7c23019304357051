// Rows on threads: a warp or a part of one for a short row, a block for a longer one. Each thread keeps several vectors
// of its row, all of which are asked for before the first is used.
#pragma once

#include <limits>

#include "include/vector.cuh"

namespace fusion::gpu {

constexpr int kShortWarps = 4;  // at most per block, of short rows

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
  __device__ __forceinline__ float operator()(float a, float b) const { return max_nan(a, b); }
};
struct Min {
  template <class X> static __device__ __forceinline__ X identity() { return highest<X>(); }
  template <class X> __device__ __forceinline__ X operator()(X a, X b) const { return a < b || a != a ? a : b; }
  __device__ __forceinline__ float operator()(float a, float b) const { return min_nan(a, b); }
};

// The threads of a row that a whole block has.
struct OfBlock {
  __device__ static __forceinline__ int lanes() { return blockDim.x; }
  __device__ static __forceinline__ void sync() { __syncthreads(); }
};

// One thread's part of a row: C vectors of V elements, of a row that has up to kThreads threads (of a warp up to 32, of
// its team elsewhere, from the first of the block on). Packed, every vector is one aligned access; otherwise elements are
// dealt out one by one, which is coalesced all the same.
template <int V, int C, int kThreads, bool kPacked, class Team = OfBlock>
struct Row {
  int64_t index;
  int length;
  int lane;
  int start = 0;

  explicit __device__ __forceinline__ Row(int64_t length_) : length(static_cast<int>(length_)) {
    if constexpr (kThreads <= 32) {
      index = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kThreads) + threadIdx.x / kThreads;
      lane = threadIdx.x % kThreads;
    } else {
      index = blockIdx.x;
      lane = threadIdx.x;
    }
  }

  __device__ __forceinline__ Row(int64_t length_, int64_t index_)
      : index(index_), length(static_cast<int>(length_)), lane(threadIdx.x) {}

  __device__ __forceinline__ int lanes() const { return kThreads <= 32 ? kThreads : Team::lanes(); }
  __device__ __forceinline__ int chunk() const { return lanes() * V * C; }
  __device__ __forceinline__ int position(int c, int i) const {
    return start + (kPacked ? (c * lanes() + lane) * V + i : (c * V + i) * lanes() + lane);
  }
  __device__ __forceinline__ bool valid(int c, int i) const { return position(c, kPacked ? 0 : i) < length; }

  // Where in a row whose elements are neighbours the first of the thread's lies.
  template <class T>
  __device__ __forceinline__ const T* place(const T* row) const {
    return row + position(0, 0);
  }

  template <class T>
  __device__ __forceinline__ void load(const T* row, int64_t step, Vector<T, V> (&x)[C]) const {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      x[c] = Vector<T, V>{};
      if constexpr (kPacked) {
        if (valid(c, 0)) x[c] = load_whole<T, V>(row + position(c, 0));
      } else {
#pragma unroll
        for (int i = 0; i < V; ++i) {
          if (valid(c, i)) x[c].set(i, row[position(c, i) * step]);
        }
      }
    }
  }

  template <class T>
  __device__ __forceinline__ void store(T* row, int c, const Vector<T, V>& y) const {
    if constexpr (kPacked) {
      if (valid(c, 0)) store_whole(row + position(c, 0), y);
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        if (valid(c, i)) row[position(c, i)] = y.element(i);
      }
    }
  }

  // Combines the threads' partial results; every thread of the row gets the whole. All of them must call it.
  // Tried: a mean and a variance in 16 bits by one exchange, each warp counting from one of its elements. On an H200 1.73
  // times an empty kernel for 1.76 with a residual and LayerNorm of 128x768, but 64.6 us for 63.4 at 8192x4096 and 262 for
  // 254 at 16384x8192.
  template <class Op, class X>
  __device__ __forceinline__ X reduce(X x, Op op) {
    x = across<kThreads < 32 ? kThreads : 32>(x, op);
    if constexpr (kThreads > 32) {
      constexpr int kWarps = kThreads / 32;
      __shared__ X partials[2][kWarps];  // in turn, so that what is read is not written to before the next barrier
      X* const partial = partials[turn];
      turn ^= 1;
      if (lane % 32 == 0) partial[lane / 32] = x;
      Team::sync();
      const int warps = lanes() / 32;
      if constexpr (kWarps <= 8) {
        x = partial[0];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) {
          if (w < warps) x = op(x, partial[w]);
        }
      } else {
        const int w = lane % kWarps;
        x = across<kWarps>(w < warps ? partial[w] : Op::template identity<X>(), op);
      }
    }
    return x;
  }

 private:
  int turn = 0;

  template <int N, class Op, class X>
  static __device__ __forceinline__ X across(X x, Op op) {
    // Other rows of the warp may be past the last one.
    const unsigned mask = kThreads < 32 ? ((1u << kThreads % 32) - 1) << threadIdx.x % 32 / kThreads * kThreads : ~0u;
#pragma unroll
    for (int o = N / 2; o > 0; o >>= 1) x = op(x, __shfl_xor_sync(mask, x, o));
    return x;
  }
};

// Whether vectors of V elements are neighbours and aligned in every row of operand k.
template <int V, int N, class T>
bool packs(const Space<N>& rows, int k, int64_t step, const T* p) {
  bool whole = step == 1 && aligned<V>(p);
  for (int d = 0; d < rows.rank; ++d) whole = whole && rows.axis[d].stride[k] % V == 0;
  return whole;
}

template <int V, int C, int kThreads, class Arguments>
void launch_rows(void (*kernel)(Arguments), const Device& device, int64_t rows, int64_t length, cudaStream_t stream,
                 const char* what, const Arguments& arguments) {
  grid_size(length + kThreads * V * C, what);  // a kernel counts a row in 32 bits
  const int64_t wanted = ceil_div(length, 32 * V * C) * 32;
  constexpr int kOfWarp = kThreads < 32 ? 32 / kThreads : 1;  // rows
  int64_t warps = 1;
  while (kThreads <= 32 && warps < kShortWarps && rows > warps * kOfWarp * device.multiprocessors * 8) warps *= 2;
  const int64_t threads = kThreads <= 32 ? 32 * warps : wanted < kThreads ? wanted : kThreads;
  const int64_t per_block = warps * kOfWarp;
  launch(kernel, grid_size(ceil_div(rows, per_block), what), static_cast<unsigned>(threads), 0, stream, what, arguments);
}

}  // namespace fusion::gpu
