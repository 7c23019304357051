// Attention of few queries over many keys: several blocks share the keys, and the last of them puts their parts together.
#pragma once

#include "include/attention.cuh"
#include "include/workspace.cuh"

namespace fusion::gpu {

// How the keys are dealt out, and where a block leaves its part of a row: the sums over its keys of the weighted values,
// the highest score, which they are relative to, and the sum of weights.
struct KeySplit {
  float* parts;
  unsigned* done;  // how many of the blocks that share keys have left their parts; zeros between launches
  int count = 1;
  int keys = INT32_MAX;  // of one split

  __device__ __forceinline__ float* part(int split, int row, int rows, const AttentionShape& s) const {
    return parts + ((int64_t{blockIdx.x} * count + split) * rows + row) * (s.value_depth + 2);
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
  return count == 1 ? 0 : static_cast<size_t>(blocks * count * rows * (value_depth + 2)) * sizeof(float);
}

// A warp puts the parts of a row together, which other blocks have written.
template <Prob kProb, class Program, int kValueDepth, class T>
__device__ __forceinline__ void join_row(const KeySplit& split, int row, int rows, const AttentionShape& s, T* out) {
  constexpr int kColumns = (kValueDepth + 31) / 32;
  const int lane = threadIdx.x % 32;
  const int64_t step = rows * (s.value_depth + 2);
  const float* const first = split.part(0, row, rows, s);
  const float* const marks = first + s.value_depth;
  const float unit = score_unit<Program>(s);
  float top = -INFINITY, sum = 0.0f, value[kColumns] = {};
  for (int i = lane; i < split.count; i += 32) top = fmaxf(top, __ldcg(marks + i * step));
  top = lanes_max<32>(top);
  const float offset = top == -INFINITY ? 0.0f : top;
  for (int begin = 0; begin < split.count; begin += 32) {
    const int own = begin + lane;
    const float weight = own < split.count ? exp2_fast((__ldcg(marks + own * step) - offset) * unit) : 0.0f;
    if (own < split.count) sum += weight * __ldcg(marks + own * step + 1);
#pragma unroll 16
    for (int i = begin; i < min(begin + 32, split.count); ++i) {
      const float factor = __shfl_sync(0xffffffffu, weight, i - begin);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (lane + c * 32 < s.value_depth) value[c] += factor * __ldcg(first + i * step + lane + c * 32);
      }
    }
  }
  const float factor = normaliser<kProb>(lanes_sum<32>(sum), s.keys);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int column = lane + c * 32;
    if (column < s.value_depth) store(out + column * s.out_column, factor == 0.0f ? 0.0f : value[c] * factor);
  }
}

}  // namespace fusion::gpu
