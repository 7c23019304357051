// Several elements of a row at once: 16-byte loads and stores where the address allows, one by one elsewhere.
#pragma once

#include "include/gpu.cuh"

namespace fusion::gpu {

template <class T, int N>
struct alignas(sizeof(T) * N <= 16 ? sizeof(T) * N : 16) Chunk {
  T element[N];
};

template <int V, class T>
__device__ __forceinline__ bool aligned(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % alignof(Chunk<T, V>) == 0;
}

// x[i] = p[i * step] for i < valid, in the compute type; the rest is zero.
template <int V, class T, class X>
__device__ __forceinline__ void load_vector(const T* p, int64_t step, int valid, X (&x)[V]) {
  if (step == 0) {
    const X value = valid > 0 ? static_cast<X>(load(p)) : X();
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = value;
  } else if (step == 1 && valid >= V && aligned<V>(p)) {
    const Chunk<T, V> chunk = *reinterpret_cast<const Chunk<T, V>*>(p);
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = load(&chunk.element[i]);
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = i < valid ? static_cast<X>(load(p + i * step)) : X();
  }
}

// p[i * step] = x[i] for i < valid.
template <int V, class T, class X>
__device__ __forceinline__ void store_vector(T* p, int64_t step, int valid, const X (&x)[V]) {
  if (step == 1 && valid >= V && aligned<V>(p)) {
    Chunk<T, V> chunk;
#pragma unroll
    for (int i = 0; i < V; ++i) store(&chunk.element[i], x[i]);
    *reinterpret_cast<Chunk<T, V>*>(p) = chunk;
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (i < valid) store(p + i * step, x[i]);
    }
  }
}

// Vectors of V elements must not straddle the end of the innermost axis; a one-axis space may end in a part of one.
template <int N>
bool vectorizable(const Space<N>& s, int width) {
  return s.rank <= 1 || s.size[0] % width == 0;
}

constexpr int kPointwiseThreads = 256;

inline unsigned pointwise_grid(const Device& device, int64_t count, int width) {
  const int64_t blocks = ceil_div(ceil_div(count, width), kPointwiseThreads);
  const int64_t enough = static_cast<int64_t>(device.multiprocessors) * 64;  // a grid-stride loop does the rest
  return static_cast<unsigned>(blocks < enough ? blocks : enough);
}

}  // namespace fusion::gpu
