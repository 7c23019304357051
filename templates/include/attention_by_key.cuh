// What a mask that is the same for all queries does to tiles of keys: a few hundred numbers, which the kernel that walks
// them looks at itself, so that none has to go before.
#pragma once

#include "include/attention_sorts.cuh"

namespace fusion::gpu {

// The eight keys of a tile that a lane has.
template <int kKeys, class Program>
struct LaneKeys {
  using Tiles = Ceilings<kKeys>;
  static constexpr int kLanes = kKeys / 8;
  static_assert(32 % kLanes == 0, "the lanes of a tile are of one warp");
  typename Program::template Strip<8> strip;
  int key;

  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }

  // Reads what the mask holds for them; `whole`: with few accesses.
  template <int N>
  __device__ __forceinline__ void read(const Program& program, const int64_t (&at)[N], int tile, int keys, bool whole) {
    key = min(tile * kKeys + lane() * 8, (keys - 1) / 8 * 8);  // where there are none, the last ones again
    if (whole) {
      strip.read_whole(program, at, 0, key);
    } else {
      strip.template read<false>(program, at, 0, key, keys - key);
      strip.template read<true>(program, at, 0, key, keys - key);
    }
  }

  // What that does to the tile. For its lanes together.
  __device__ __forceinline__ float judge(const Program& program, int keys) const {
    float found = Tiles::judge(program, strip, 0, 0, key, keys);
#pragma unroll
    for (int o = kLanes / 2; o > 0; o /= 2) found = Tiles::both(found, __shfl_xor_sync(0xffffffffu, found, o));
    return found == Tiles::kMixed ? Tiles::kAlike : found;
  }
};

// Judges `tiles` tiles of a mask. For kThreads.
template <int kKeys, int kThreads, int N, class Program>
__device__ __forceinline__ void judge_by_key(float* of, const Program& program, const int64_t (&at)[N], int keys, int tiles,
                                             bool whole) {
  using Keys = LaneKeys<kKeys, Program>;
  constexpr int kAtOnce = kThreads / Keys::kLanes;
#pragma unroll 1
  for (int first = 0; first < tiles; first += kAtOnce) {
    const int t = min(first + static_cast<int>(threadIdx.x) % kThreads / Keys::kLanes, tiles - 1);  // or the last one again
    Keys mine;
    mine.read(program, at, t, keys, whole);
    const float found = mine.judge(program, keys);
    if (Keys::lane() == 0) of[t] = found;
  }
}

// Finds the largest norm, times `s.scale`, of the keys of a tile; `reach` is no more than that before. For kThreads.
template <int kDepth, int kThreads, class T>
__device__ __forceinline__ void measure_keys(float& reach, const T* k, const AttentionShape& s, int first) {
  constexpr int kAtOnce = 4;  // this warpgroup has few registers
  float longest = longest_key<kDepth, kThreads, kAtOnce>(k, s, first);
#pragma unroll
  for (int o = 16; o > 0; o /= 2) longest = max_nan(longest, __shfl_xor_sync(0xffffffffu, longest, o));
  // Bits of floats that are not negative are in their order, and a NaN's come last.
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<int*>(&reach), __float_as_int(s.scale * sqrtf(longest)));
}

}  // namespace fusion::gpu
