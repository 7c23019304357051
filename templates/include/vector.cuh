// Several elements of a row at once: 16-byte loads and stores where the address allows, one by one elsewhere.
#pragma once

#include "include/gpu.cuh"

namespace fusion::gpu {

template <class T, int N>
struct alignas(sizeof(T) * N <= 16 ? sizeof(T) * N : 16) Chunk {
  T element[N];
};

// Whether rows can be read or written in chunks of N neighbours, or have one element for all columns.
template <int N, class T>
bool in_chunks(const T* p, int64_t row, int64_t column) {
  constexpr int64_t kAligned = alignof(Chunk<T, N>);
  const bool even = row * static_cast<int64_t>(sizeof(T)) % kAligned == 0;
  return column == 0 || (column == 1 && even && reinterpret_cast<uintptr_t>(p) % kAligned == 0);
}
template <int N, class T>
__device__ __forceinline__ void fetch_chunk(Chunk<T, N>& to, const T* p, int64_t column) {
  if (column != 0) {
    to = *reinterpret_cast<const Chunk<T, N>*>(p);
  } else {
    const T element = *p;
#pragma unroll
    for (T& e : to.element) e = element;
  }
}

// As many elements as one access moves, or several of 16 bytes, kept as the words that registers hold: elements narrower
// than those would be taken apart as soon as they are there, and the next load waits.
template <class T, int N>
struct Vector {
  static constexpr int kBytes = sizeof(T) * N, kWords = (kBytes + 3) / 4;
  static_assert(kBytes <= 16 || kBytes % 16 == 0, "whole accesses");
  uint32_t word[kWords];

  __device__ __forceinline__ T element(int i) const {
    if constexpr (sizeof(T) == 8) return bit_cast<T>(word[2 * i] | static_cast<uint64_t>(word[2 * i + 1]) << 32);
    if constexpr (sizeof(T) == 4) return bit_cast<T>(word[i]);
    if constexpr (sizeof(T) == 2) return bit_cast<T>(static_cast<uint16_t>(word[i / 2] >> i % 2 * 16));
    if constexpr (sizeof(T) == 1) return bit_cast<T>(static_cast<uint8_t>(word[i / 4] >> i % 4 * 8));
  }
  // Of one that is zero there.
  __device__ __forceinline__ void set(int i, T value) {
    if constexpr (sizeof(T) == 8) {
      word[2 * i] = static_cast<uint32_t>(bit_cast<uint64_t>(value));
      word[2 * i + 1] = static_cast<uint32_t>(bit_cast<uint64_t>(value) >> 32);
    }
    if constexpr (sizeof(T) == 4) word[i] = bit_cast<uint32_t>(value);
    if constexpr (sizeof(T) == 2) word[i / 2] |= static_cast<uint32_t>(bit_cast<uint16_t>(value)) << i % 2 * 16;
    if constexpr (sizeof(T) == 1) word[i / 4] |= static_cast<uint32_t>(bit_cast<uint8_t>(value)) << i % 4 * 8;
  }
};

// An element in the type that it is computed in.
template <class T, int N>
__device__ __forceinline__ auto get(const Chunk<T, N>& x, int i) {
  return load(&x.element[i]);
}
template <class T, int N>
__device__ __forceinline__ auto get(const Vector<T, N>& x, int i) {
  const T value = x.element(i);
  return load(&value);
}
template <class T, int N, class X>
__device__ __forceinline__ void put(Vector<T, N>& x, int i, X value) {
  T stored;
  store(&stored, value);
  x.set(i, stored);
}

template <class T, int N>
__device__ __forceinline__ Vector<T, N> load_whole(const T* p) {
  if constexpr (sizeof(T) * N % 16 == 0) {
    Vector<T, N> x;
#pragma unroll
    for (int i = 0; i < x.kBytes / 16; ++i) {
      const uint4 v = reinterpret_cast<const uint4*>(p)[i];
      x.word[i * 4] = v.x, x.word[i * 4 + 1] = v.y, x.word[i * 4 + 2] = v.z, x.word[i * 4 + 3] = v.w;
    }
    return x;
  } else if constexpr (sizeof(T) * N == 8) {
    const uint2 v = *reinterpret_cast<const uint2*>(p);
    return {{v.x, v.y}};
  } else if constexpr (sizeof(T) * N == 4) {
    return {{*reinterpret_cast<const uint32_t*>(p)}};
  } else {
    Vector<T, N> x{};
#pragma unroll
    for (int i = 0; i < N; ++i) x.set(i, p[i]);
    return x;
  }
}
// By words, as the compiler takes other stores of several apart where it loses sight of their alignment.
template <class T, int N>
__device__ __forceinline__ void store_whole(T* p, const Vector<T, N>& x) {
  if constexpr (sizeof(T) * N % 16 == 0) {
#pragma unroll
    for (int i = 0; i < x.kBytes / 16; ++i) {
      const uint4 v{x.word[i * 4], x.word[i * 4 + 1], x.word[i * 4 + 2], x.word[i * 4 + 3]};
      __stwb(reinterpret_cast<uint4*>(p) + i, v);
    }
  } else if constexpr (sizeof(T) * N == 8) {
    __stwb(reinterpret_cast<uint2*>(p), uint2{x.word[0], x.word[1]});
  } else if constexpr (sizeof(T) * N == 4) {
    *reinterpret_cast<uint32_t*>(p) = x.word[0];
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) p[i] = x.element(i);
  }
}

template <int V, class T>
__host__ __device__ __forceinline__ bool aligned(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % (sizeof(T) * V) == 0;
}

// How many elements of a vector there are, of those `left`. Packed, all or none.
template <int V, bool kPacked>
__device__ __forceinline__ int valid(int64_t left) {
  return left >= V ? V : kPacked || left < 0 ? 0 : static_cast<int>(left);
}

// x[i] = p[i * step] for i < valid; the rest is zero. Packed, neighbours are one element or all aligned.
template <int V, bool kPacked, class T>
__device__ __forceinline__ void load_vector(const T* p, int64_t step, int valid, Vector<T, V>& x) {
  x = Vector<T, V>{};
  if (step == 0) {
    T value{};
    if (valid > 0) value = *p;
#pragma unroll
    for (int i = 0; i < V; ++i) x.set(i, value);
  } else if (kPacked || (step == 1 && valid >= V && aligned<V>(p))) {
    if (valid > 0) x = load_whole<T, V>(p);
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (i < valid) x.set(i, p[i * step]);
    }
  }
}

// p[i * step] = x[i] for i < valid.
template <int V, bool kPacked, class T>
__device__ __forceinline__ void store_vector(T* p, int64_t step, int valid, const Vector<T, V>& x) {
  if (kPacked || (step == 1 && valid >= V && aligned<V>(p))) {
    if (valid > 0) store_whole(p, x);
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (i < valid) p[i * step] = x.element(i);
    }
  }
}

// Vectors of V elements must not straddle the end of the innermost axis; a one-axis space may end in a part of one.
template <int N>
bool vectorizable(const Space<N>& s, int width) {
  return s.rank <= 1 || s.axis[0].size % width == 0;
}

// Whether vectors of V elements of operand k are aligned wherever they lie, or one element each.
template <int V, int N, class T>
bool packs(const Space<N>& s, int k, const T* p) {
  if (s.axis[0].stride[k] == 0) return true;
  bool whole = s.axis[0].stride[k] == 1 && aligned<V>(p);
  for (int d = 1; d < s.rank; ++d) whole = whole && s.axis[d].stride[k] % V == 0;
  return whole;
}

constexpr int kPassThreads = 256;

// Whether threads of two vectors each still fill the GPU twice over.
inline bool is_long(const Device& device, int64_t vectors) { return vectors >= int64_t{4096} * device.multiprocessors; }

template <int V, int kVectors, class Arguments>
void launch_pass(void (*kernel)(Arguments), int64_t count, cudaStream_t stream, const char* what, const Arguments& arguments) {
  const unsigned grid = grid_size(ceil_div(count, V * kVectors * kPassThreads), what);
  launch(kernel, grid, kPassThreads, 0, stream, what, arguments);
}

// How many blocks each of several passes of one launch has.
template <int N>
struct PassBlocks {
  unsigned of[N];
};

// Several passes at once, of so many vectors each; `twice` has threads of two.
template <int N, class Kernel, class... Arguments>
void launch_passes(const Device& device, Kernel once, Kernel twice, const int64_t (&vectors)[N], cudaStream_t stream,
                   const char* what, const Arguments&... arguments) {
  bool any_long = false;
  for (const int64_t n : vectors) any_long = any_long || is_long(device, n);
  PassBlocks<N> blocks;
  int64_t all = 0;
  for (int i = 0; i < N; ++i) {
    blocks.of[i] = grid_size(ceil_div(vectors[i], kPassThreads * (any_long ? 2 : 1)), what);
    all += blocks.of[i];
  }
  if (all > 0) launch(any_long ? twice : once, grid_size(all, what), kPassThreads, 0, stream, what, arguments..., blocks);
}

// Of so many neighbouring lanes, for all of them.
template <int kLanes>
__device__ __forceinline__ float lanes_sum(float x) {
#pragma unroll
  for (int o = kLanes / 2; o > 0; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
  return x;
}

}  // namespace fusion::gpu
