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
    return parts + mark_floats(int64_t{gridDim.x} * count * rows) + part(split, row, rows) * s.value_depth;
  }
  // Floats that so many marks take, so that what is behind them is aligned.
  FUSION_FN static int64_t mark_floats(int64_t marks) { return (marks + 1) / 2 * 4; }

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
  return count == 1 ? 0 : static_cast<size_t>(KeySplit::mark_floats(parts) + parts * value_depth) * sizeof(float);
}

// Neighbouring columns of a row's part that one lane adds up, read past the L1 cache, which other blocks do not write to.
template <int N>
struct PartColumns {
  static constexpr int kWidth = N % 4 == 0 ? 4 : N % 2 == 0 ? 2 : 1;
  alignas(4 * kWidth) float value[N];

  // Those from `first` on, of which `left` are there; whole: all or none of them.
  __device__ __forceinline__ void read(const float* first, int left, bool whole) {
    if (whole) {
#pragma unroll
      for (int c = 0; c < N; c += kWidth) {
        if constexpr (kWidth == 4) *reinterpret_cast<float4*>(value + c) = __ldcg(reinterpret_cast<const float4*>(first + c));
        if constexpr (kWidth == 2) *reinterpret_cast<float2*>(value + c) = __ldcg(reinterpret_cast<const float2*>(first + c));
        if constexpr (kWidth == 1) value[c] = __ldcg(first + c);
      }
    } else {
#pragma unroll
      for (int c = 0; c < N; ++c) value[c] = c < left ? __ldcg(first + c) : 0.0f;
    }
  }
};

// A warp puts the parts of a row together, which other blocks have written. What it reads is on its way at once.
template <Prob kProb, class Program, int kValueDepth, class T>
__device__ __forceinline__ void join_row(const KeySplit& split, int row, int rows, const AttentionShape& s, T* out) {
  constexpr int kColumns = (kValueDepth + 31) / 32, kAhead = kColumns > 4 ? 8 : 16;
  const int lane = threadIdx.x % 32, column = lane * kColumns, left = static_cast<int>(s.value_depth) - column;
  const bool whole = s.value_depth % kColumns == 0;
  const PartMark* const marks = split.mark(0, row, rows);
  const float* const values = split.values(0, row, rows, s) + column;
  const int64_t step = rows * s.value_depth;
  PartColumns<kColumns> ahead[kAhead];
  const auto read = [&](int begin) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (begin + i < split.count && left > 0) ahead[i].read(values + (begin + i) * step, left, whole);
      else ahead[i] = {};
    }
  };
  const auto mark_of = [&](int i) {
    if (i >= split.count) return PartMark{-INFINITY, 0.0f};
    const float2 both = __ldcg(reinterpret_cast<const float2*>(marks + int64_t{i} * rows));
    return PartMark{both.x, both.y};
  };

  PartMark mark = mark_of(lane);
  read(0);
  float top = mark.top;
  for (int i = lane + 32; i < split.count; i += 32) top = fmaxf(top, mark_of(i).top);
  top = lanes_max<32>(top);
  const float unit = score_unit<Program>(s), offset = top == -INFINITY ? 0.0f : top;
  float sum = 0.0f, value[kColumns] = {};
  for (int begin = 0; begin < split.count; begin += kAhead) {
    if (begin > 0) {
      read(begin);
      mark = mark_of(begin + lane);
    }
    const float weight = begin + lane < split.count ? exp2_fast((mark.top - offset) * unit) : 0.0f;
    if (lane < kAhead) sum += weight * mark.sum;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const float factor = __shfl_sync(0xffffffffu, weight, i);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) value[c] += factor * ahead[i].value[c];
    }
  }
  const float factor = normaliser<kProb>(lanes_sum<32>(sum), s.keys);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    if (c < left) store(out + (column + c) * s.out_column, factor == 0.0f ? 0.0f : value[c] * factor);
  }
}

}  // namespace fusion::gpu
