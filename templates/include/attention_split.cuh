// Attention of few queries over many keys: several blocks share the keys, and the last of them puts their parts together.
#pragma once

#include "include/attention.cuh"
#include "include/workspace.cuh"

namespace fusion::gpu {

// What a block leaves of a row beside the weighted values: the highest score of its keys, which they are relative to, and the sum
// of weights.
struct alignas(8) PartMark {
  float top, sum;
};
constexpr int kMarkFloats = sizeof(PartMark) / sizeof(float);

// How the keys are dealt out, and where a block leaves its part of a row: its mark, and behind those of all the sums over its keys
// of the weighted values.
struct KeySplit {
  float* parts;
  unsigned* done;  // how many of the blocks that share keys have left their parts; zeros between launches
  int count = 1;
  int keys = INT32_MAX;  // of one split

  __device__ __forceinline__ int64_t part(int split, int row, int rows) const {
    return (int64_t{blockIdx.x} * count + split) * rows + row;
  }
  __device__ __forceinline__ PartMark* mark(int split, int row, int rows) const {
    return reinterpret_cast<PartMark*>(parts) + part(split, row, rows);
  }
  __device__ __forceinline__ float* values(int split, int row, int rows, const AttentionShape& s) const {
    return parts + int64_t{gridDim.x} * count * rows * kMarkFloats + part(split, row, rows) * s.value_depth;
  }

  // Whether this block is the last of those that share its keys.
  __device__ __forceinline__ bool is_last() const { return gpu::is_last(done + blockIdx.x, count); }
};

// One split, unless the blocks that `rows` queries of a tile make leave multiprocessors idle. Measured on an H100, a block for
// each of them and not two: 24.6 us for 26.1 with 32 heads and 8,192 keys, 106.8 for 111.3 with 16 times 32 heads and 4,096.
inline KeySplit key_split(const Device& device, int64_t blocks, int64_t rows, int64_t keys, void* parts = nullptr,
                          unsigned* done = nullptr) {
  constexpr int64_t kMostRows = 64, kFewKeys = 256, kLeastKeys = 128;  // the least is a multiple of any tile
  KeySplit split{static_cast<float*>(parts), done};
  if (rows > kMostRows || blocks == 0 || blocks > kCounters || keys <= kFewKeys) return split;
  const int64_t wanted = device.multiprocessors / blocks, most = keys / kLeastKeys;
  const int64_t count = wanted < most ? wanted : most;
  if (count <= 1) return split;
  const int64_t each = ceil_div(ceil_div(keys, count), kLeastKeys) * kLeastKeys;
  split.count = static_cast<int>(ceil_div(keys, each));
  split.keys = static_cast<int>(each);
  return split;
}

inline size_t part_bytes(const Device& device, int64_t blocks, int64_t rows, int64_t keys, int64_t value_depth) {
  const int count = key_split(device, blocks, rows, keys).count;
  const int64_t parts = blocks * count * rows;
  return count == 1 ? 0 : static_cast<size_t>(parts * (value_depth + kMarkFloats)) * sizeof(float);
}

// A warp puts the parts of a row together, which other blocks have written and which are therefore read past the L1 cache. All that
// it reads at a time is on its way at once, by few instructions: they run once, and come from memory themselves. `line` tells where
// the row's results go.
template <Prob kProb, class Program, int kValueDepth, class Line>
__device__ __forceinline__ void join_row(const KeySplit& split, int row, int rows, const AttentionShape& s, const Line& line) {
  constexpr int kColumns = (kValueDepth + 31) / 32, kAhead = 8;
  const int lane = threadIdx.x % 32, depth = static_cast<int>(s.value_depth), step = rows * depth;
  const PartMark* const marks = split.mark(0, row, rows);
  const float* from = split.values(0, row, rows, s);
  int columns[kColumns];  // past the last one it is read again
#pragma unroll
  for (int c = 0; c < kColumns; ++c) columns[c] = min(lane + 32 * c, depth - 1);
  const float unit = score_unit<Program>(s);
  float top = -INFINITY, sum = 0.0f, value[kColumns] = {};
#pragma unroll 1
  for (int begin = 0; begin < split.count; begin += kAhead) {
    float ahead[kAhead][kColumns] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i, from += step) {
      if (begin + i >= split.count) break;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) ahead[i][c] = __ldcg(from + columns[c]);
    }
    const bool has_mark = lane < kAhead && begin + lane < split.count;
    float2 mark{-INFINITY, 0.0f};
    if (has_mark) mark = __ldcg(reinterpret_cast<const float2*>(marks + (begin + lane) * rows));
    const float higher = fmaxf(top, lanes_max<32>(mark.x)), offset = higher == -INFINITY ? 0.0f : higher;
    const float shrink = begin == 0 ? 1.0f : exp2_fast((top - offset) * unit);
    const float weight = has_mark ? exp2_fast((mark.x - offset) * unit) : 0.0f;
    top = higher;
    sum = sum * shrink + weight * mark.y;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) value[c] *= shrink;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const float factor = __shfl_sync(0xffffffffu, weight, i);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) value[c] += factor * ahead[i][c];
    }
  }
  const float factor = normaliser<kProb>(lanes_sum<32>(sum), s.keys);
  auto* const out = line(row);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    if (lane + 32 * c < depth) store(out + (lane + 32 * c) * s.out_column, factor == 0.0f ? 0.0f : value[c] * factor);
  }
}

}  // namespace fusion::gpu
