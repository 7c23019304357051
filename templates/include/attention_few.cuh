// Attention of a query with few keys, by a warpgroup: for kernels that go on to other things.
#pragma once

#include "include/attention_mask.cuh"
#include "include/hopper.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

constexpr int kFewestKeys = 64;  // that one query has there at most

// Whether the kernel takes an attention: rows are aligned pieces of four neighbours, and few.
template <class Args>
bool is_fewest(const Args& a, int depth) {
  const AttentionShape& s = a.shape;
  bool fits = s.keys <= kFewestKeys && s.depth <= depth && s.value_depth <= depth && s.depth % 4 == 0 && s.value_depth % 4 == 0;
  fits = fits && a.batches.small && s.q_column == 1 && s.k_column == 1 && s.v_column == 1;
  const int64_t rows[] = {s.q_row, s.k_row, s.v_row};
  const void* const data[] = {a.q, a.k, a.v};
  for (int k = 0; k < 3; ++k) fits = fits && rows[k] % 4 == 0 && reinterpret_cast<uintptr_t>(data[k]) % 8 == 0;
  for (int d = 0; d < a.batches.rank; ++d) {
    for (int k = 0; k < 3; ++k) fits = fits && a.batches.axis[d].stride[k] % 4 == 0;
  }
  return fits;
}

// Four neighbours of every 128 elements of a row, which a lane has; zeros where there are none. Rows are aligned pieces of those.
template <int kPieces, class T>
__device__ __forceinline__ void load_quarters(uint2 (&to)[kPieces], const T* row, int64_t depth) {
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    const int first = j * 128 + static_cast<int>(threadIdx.x) % 32 * 4;
    to[j] = first < depth ? *reinterpret_cast<const uint2*>(row + first) : uint2{};
  }
}
template <class T>
__device__ __forceinline__ float quarter(const uint2& four, int e) {
  const T element = bit_cast<T>(static_cast<uint16_t>((e < 2 ? four.x : four.y) >> e % 2 * 16));
  return fusion::load(&element);
}

// The row of number `index` among those of all batches.
template <class T, int kDepth, Prob kProb, int N, class Program>
__device__ __forceinline__ void attention_row(const T* q, const T* k, const T* v, T* out, const AttentionShape& s,
                                           const Space<N>& batches, const Program& program, int64_t index) {
  constexpr int kPieces = (kDepth + 127) / 128, kEach = kPieces * 4, kWarps = kWarpgroup / 32, kAtOnce = 2;
  __shared__ float tops[kWarps], sums[kWarps], values[kWarps][kPieces * 128];
  const int batch = s.head(static_cast<int>(index)), row = static_cast<int>(index) - batch * static_cast<int>(s.queries);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int64_t at[N];
  batches.template locate<true>(batch, at);
  uint2 own[kPieces];
  float o[kEach] = {}, top = -INFINITY, sum = 0.0f;
  load_quarters(own, q + at[0] + row * s.q_row, s.depth);
  if constexpr (Program::kSink) {
    if (warp == 0) {
      top = program.sink(0.0f, typename Program::Element{program, at, row, 0}, batch, row, 0);
      sum = exp_below(top, top);
    }
  }
  const int keys = visible_keys<kProb, Program>(row + 1, static_cast<int>(s.keys));
  const LaterProduct<Program> later_product(s.scale);
#pragma unroll 1
  for (int first = warp; first < keys; first += kWarps * kAtOnce) {
    uint2 x[kAtOnce][kPieces], y[kAtOnce][kPieces];
    float score[kAtOnce], highest = top;
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int key = min(first + u * kWarps, keys - 1);
      load_quarters(x[u], k + at[1] + key * s.k_row, s.depth);
      load_quarters(y[u], v + at[2] + key * s.v_row, s.value_depth);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int key = min(first + u * kWarps, keys - 1);  // where there is none the last one again, which changes nothing
      float product = 0.0f;
#pragma unroll
      for (int i = 0; i < kEach; ++i) product = fmaf(quarter<T>(own[i / 4], i % 4), quarter<T>(x[u][i / 4], i % 4), product);
      product = lanes_sum<32>(product);
      if (kTriangle<Program> && key > row) product = later_product(product);
      score[u] = product * s.scale;
      if constexpr (!Program::kBare) {
        score[u] = program.score(score[u], typename Program::Element{program, at, row, key}, batch, row, key);
      }
      highest = fmaxf(highest, score[u]);
    }
    const float shrink = exp_below(top, highest);
    top = highest, sum *= shrink;
#pragma unroll
    for (float& each : o) each *= shrink;
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (first + u * kWarps >= keys) continue;
      const float weight = exp_below(score[u], top);
      sum += weight;
#pragma unroll
      for (int i = 0; i < kEach; ++i) o[i] = fmaf(weight, quarter<T>(y[u][i / 4], i % 4), o[i]);
    }
  }
  if (lane == 0) tops[warp] = top, sums[warp] = sum;
#pragma unroll
  for (int i = 0; i < kEach; ++i) values[warp][i / 4 * 128 + lane * 4 + i % 4] = o[i];
  sync_threads(1, kWarpgroup);
  float weight[kWarps], all = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) top = w == 0 ? tops[0] : fmaxf(top, tops[w]);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) weight[w] = exp_below(tops[w], top), all += weight[w] * sums[w];
  const float factor = normaliser<kProb>(all, s.keys);
#pragma unroll 1
  for (int c = threadIdx.x; c < s.value_depth; c += kWarpgroup) {
    float value = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) value += weight[w] * values[w][c];
    fusion::store(out + at[3] + row * s.out_row + c * s.out_column, factor == 0.0f ? 0.0f : value * factor);
  }
}

}  // namespace fusion::gpu
#endif
