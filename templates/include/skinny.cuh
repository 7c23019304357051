// Products of one or two rows in fp32: nothing but reading B, so every thread keeps as many loads under way as it can, several
// products of one left operand go in one launch, and their epilogues run on the sums.
#pragma once

#include "include/linear.cuh"
#include "include/skinny_tensor.cuh"
#include "include/vector.cuh"

namespace fusion::gpu {

constexpr int kSkinnyThreads = 512, kSkinnyBlocks = 2, kSkinnyRows = 2, kSkinnyLanes = 16;
constexpr int kSkinnyLoads = 8;  // under way per thread, at most

// Sums of the block's warps, before they are added up: [warp][row][column].
template <class T, int kRows>
struct SkinnySums {
  float value[kSkinnyThreads / 32 * kRows * kSkinnyLanes * (16 / sizeof(T))];
};

// 16 bytes that nobody reads again.
template <int V, class T>
__device__ __forceinline__ Chunk<T, V> stream_chunk(const T* p) {
  return bit_cast<Chunk<T, V>>(__ldcs(reinterpret_cast<const uint4*>(p)));
}

// acc += A[:, k] * B[k, columns of the thread] for kLoads rows of B, every `walkers`-th from k on, which is moved past
// them. All are asked for before the first is used.
template <int kLoads, class T, int kRows, int V>
__device__ __forceinline__ void add_rows(float (&acc)[kRows][V], const T* a, const T* b, const Product& p, int walkers,
                                         int64_t& k) {
  Chunk<T, V> chunk[kLoads];
  T left[kLoads][kRows];
  const T* right = b + k * p.b_k;
#pragma unroll
  for (int u = 0; u < kLoads; ++u, right += walkers * p.b_k) chunk[u] = stream_chunk<V>(right);
  const T* x = a + k * p.a_k;
#pragma unroll
  for (int u = 0; u < kLoads; ++u, x += walkers * p.a_k) {
#pragma unroll
    for (int m = 0; m < kRows; ++m) left[u][m] = x[m * p.a_row];
  }
#pragma unroll
  for (int u = 0; u < kLoads; ++u) {
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
#pragma unroll
      for (int v = 0; v < V; ++v) acc[m][v] += load(&left[u][m]) * load(&chunk[u].element[v]);
    }
  }
  k += static_cast<int64_t>(walkers) * kLoads;
}

// One strip of columns: `lanes` threads (a power of two) lie side by side along a row of B, 16 bytes each, and walk down
// the rows with the others of the block. `Operands` has a, b, p, batches and the epilogue, called by the same thread for
// the same element of equally wide products.
template <class T, int kRows, class Operands>
__device__ __forceinline__ void skinny_strip(const Operands& x, int64_t strip, int lanes, SkinnySums<T, kRows>& sums) {
  constexpr int V = 16 / sizeof(T);
  const Product& p = x.p;
  const int lane = threadIdx.x % lanes, walker = threadIdx.x / lanes, walkers = kSkinnyThreads / lanes;
  const int columns = lanes * V;
  const int64_t first = strip * columns, column = first + lane * V;
  float acc[kRows][V] = {};
  if (column < p.n) {
    const T* const b = x.b + column;
    int64_t k = walker;
    while (k + walkers * (kSkinnyLoads - 1) < p.k) add_rows<kSkinnyLoads>(acc, x.a, b, p, walkers, k);
    if (k + walkers * 3 < p.k) add_rows<4>(acc, x.a, b, p, walkers, k);
    if (k + walkers < p.k) add_rows<2>(acc, x.a, b, p, walkers, k);
    if (k < p.k) add_rows<1>(acc, x.a, b, p, walkers, k);
  }
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      for (int away = 16; away >= lanes; away /= 2) acc[m][v] += __shfl_xor_sync(0xffffffffu, acc[m][v], away);
      if (threadIdx.x % 32 < lanes) sums.value[(warp * kRows + m) * columns + lane * V + v] = acc[m][v];
    }
  }
  __syncthreads();
  typename decltype(x.batches)::Places at;
  x.batches.locate(0, at);
  for (int i = threadIdx.x; i < kRows * columns; i += kSkinnyThreads) {
    const int m = i / columns, c = i % columns;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kSkinnyThreads / 32; ++w) sum += sums.value[(w * kRows + m) * columns + c];
    if (first + c < p.n) x.epilogue(at, 0, m, first + c, p.alpha * sum);
  }
  __syncthreads();  // before the sums of the next product
}

// Whether the product has few rows, in 16 bits `most`, and B rows of whole vectors.
template <class Operands>
bool is_skinny(const Operands& x, int most = kFewAlone) {
  constexpr int V = 16 / sizeof(*x.b);
  const int few = sizeof(*x.b) == 2 ? most : kSkinnyRows;
  const Product& p = x.p;
  return x.batches.count == 1 && x.batches.rank == 0 && p.m > 0 && p.m <= few && p.n > 0 && p.b_column == 1 &&
         p.n % V == 0 && p.b_k % V == 0 && reinterpret_cast<uintptr_t>(x.b) % 16 == 0;
}

// How many threads lie side by side, for so many columns in one launch: wide strips suit the memory, as long as every
// multiprocessor has one. Measured on an H200.
template <class T>
int skinny_lanes(const Device& device, int64_t columns) {
  const auto strips = [&](int lanes) { return columns / (lanes * static_cast<int64_t>(16 / sizeof(T))); };
  int lanes = kSkinnyLanes;
  while (lanes > 4 && strips(lanes) < device.multiprocessors) lanes /= 2;
  return strips(lanes) < device.multiprocessors / 2 ? 2 : lanes;
}

template <class T>
__host__ __device__ __forceinline__ int64_t skinny_strips(const Product& p, int lanes) {
  const int64_t columns = lanes * static_cast<int64_t>(16 / sizeof(T));
  return (p.n + columns - 1) / columns;
}

}  // namespace fusion::gpu
