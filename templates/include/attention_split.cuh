// Attention of few queries over many keys: several blocks share the keys, a second kernel puts their parts together.
#pragma once

#include "include/attention.cuh"

namespace fusion::gpu {

// How the keys are dealt out, and where a block leaves its part: for every [batch, split, query] the sums over its
// keys of the weighted values, the highest score, which they are relative to, and the sum of weights.
struct KeySplit {
  float* parts;
  int count;
  int keys;  // of one split

  __device__ __forceinline__ float* part(int64_t batch, int split, int64_t query, const AttentionShape& s) const {
    return parts + ((batch * count + split) * s.queries + query) * (s.value_depth + 2);
  }
};

// One split, unless a tile of queries per batch leaves multiprocessors idle.
inline KeySplit key_split(const Device& device, int64_t queries, int64_t keys, int64_t batches) {
  constexpr int64_t kMostQueries = 64, kLeastKeys = 256, kRound = 128;  // a multiple of any tile
  if (queries > kMostQueries || batches == 0 || keys == 0) return {nullptr, 1, INT32_MAX};
  const int64_t wanted = 2 * device.multiprocessors / batches, most = keys / kLeastKeys;
  const int64_t count = wanted < most ? wanted : most;
  if (count <= 1) return {nullptr, 1, INT32_MAX};
  const int64_t each = ceil_div(ceil_div(keys, count), kRound) * kRound;
  return {nullptr, static_cast<int>(ceil_div(keys, each)), static_cast<int>(each)};
}

// Workspace for the parts of an attention that gives `dims` [..., queries, value depth].
inline size_t attention_part_bytes(const Device& device, const Ints& dims, int64_t keys) {
  const int64_t queries = dims[dims.size() - 2], value_depth = dims.back();
  if (count(dims) == 0) return 0;
  const int64_t rows = count(dims) / value_depth;
  const int split = key_split(device, queries, keys, rows / queries).count;
  return split == 1 ? 0 : static_cast<size_t>(split * rows * (value_depth + 2)) * sizeof(float);
}

constexpr int kJoinThreads = 128;

// A block per row of the result.
template <Prob kProb, class Program, class T, int N>
__global__ void __launch_bounds__(kJoinThreads)
    join_parts(T* out, const AttentionShape s, const Space<N> batches, const KeySplit split) {
  const int64_t batch = blockIdx.x / s.queries, query = blockIdx.x % s.queries;
  const int64_t step = s.queries * (s.value_depth + 2);
  const float* const parts = split.part(batch, 0, query, s);
  const float unit = score_unit<Program>(s);
  float top = -INFINITY, sum = 0.0f;
  for (int i = 0; i < split.count; ++i) top = fmaxf(top, parts[i * step + s.value_depth]);
  const float offset = top == -INFINITY ? 0.0f : top;
  for (int i = 0; i < split.count; ++i) {
    const float* const part = parts + i * step + s.value_depth;
    sum += part[1] * exp2_fast((part[0] - offset) * unit);
  }
  const float factor = normaliser<kProb>(sum, s.keys);
  int64_t at[N];
  batches.locate(batch, at);
  for (int64_t c = threadIdx.x; c < s.value_depth; c += kJoinThreads) {
    float value = 0.0f;
    for (int i = 0; i < split.count; ++i) {
      value += parts[i * step + c] * exp2_fast((parts[i * step + s.value_depth] - offset) * unit);
    }
    store(out + at[3] + query * s.out_row + c * s.out_column, factor == 0.0f ? 0.0f : value * factor);
  }
}

}  // namespace fusion::gpu
