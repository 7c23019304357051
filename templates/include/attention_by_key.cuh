// What a mask that is the same for all queries does to tiles of keys: a few hundred numbers, which the warpgroup that
// copies looks at itself, so that no kernel has to go before.
#pragma once

#include "include/attention_sorts.cuh"

namespace fusion::gpu {

// Judges `tiles` tiles: of each a lane has eight keys, and all that a thread reads is on its way at once. Hidden ones are
// as others where they are walked, too. For kThreads.
template <int kKeys, int kThreads, int N, class Program>
__device__ __forceinline__ void judge_by_key(float* of, const Program& program, const int64_t (&at)[N], int keys, int tiles,
                                             bool whole, bool walked) {
  using Tiles = Ceilings<kKeys>;
  constexpr int kLanes = kKeys / 8, kAtOnce = kThreads / kLanes;
  static_assert(32 % kLanes == 0, "the lanes of a tile are of one warp");
  const int thread = static_cast<int>(threadIdx.x) % kThreads, lane = thread % kLanes;
#pragma unroll 1
  for (int first = 0; first < tiles; first += kAtOnce) {
    const int t = min(first + thread / kLanes, tiles - 1);             // where there is none, the last one again
    const int key = min(t * kKeys + lane * 8, (keys - 1) / 8 * 8);  // likewise
    typename Program::template Strip<8> strip;
    read_strips<8>(program, keys, tiles * kKeys, whole, [&](const auto& read) { read(strip, at, 0, key); });
    float found = Tiles::judge(program, strip, 0, 0, key, keys);
#pragma unroll
    for (int o = kLanes / 2; o > 0; o /= 2) found = Tiles::both(found, __shfl_xor_sync(0xffffffffu, found, o));
    if (lane == 0) of[t] = found == Tiles::kMixed || (walked && found <= kHidden) ? Tiles::kAlike : found;
  }
}

}  // namespace fusion::gpu
