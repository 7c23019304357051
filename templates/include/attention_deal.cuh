// Masks that are the same for all queries leave batches keys of their own number: tiles of queries that have the most of
// them come first, so that what a block is dealt after them can make up for it.
#pragma once

#include "include/attention_by_key.cuh"

namespace fusion::gpu {

// All masks, as every block sees them before its first tile.
template <int kKeys>
struct LongestFirst {
  static constexpr int kMost = kDealt;
  float of[kMost];          // of every mask the tiles of keys, as Ceilings has them
  uint16_t shown[kMost];    // how many of them each mask leaves
  uint16_t ordered[kMost];  // masks: those that leave the most come first

  // The tile of queries that comes as the `turn`-th, where `each` in a row share a mask.
  __device__ __forceinline__ unsigned tile(unsigned turn, unsigned each) const {
    return ordered[turn / each] * each + turn % each;
  }

  // Looks at the masks and orders them. For all kThreads of the block.
  template <int kThreads, int N, class Program>
  __device__ __forceinline__ void begin(const Program& program, const Space<N>& batches, const TileMap& map, int keys) {
    judge<kThreads>(program, batches, map, keys);
    __syncthreads();
    order<kThreads>(map.masks, map.tiles);
  }

  // Orders them by what is known of their tiles; those that leave as many stay in their order.
  template <int kThreads>
  __device__ __forceinline__ void order(int masks, int tiles) {
    static_assert(kMost <= kThreads, "a thread has a mask");
    const int mine = static_cast<int>(threadIdx.x);
    if (mine < masks) {
      int left = 0;
      for (int t = mine * tiles; t < (mine + 1) * tiles; ++t) left += of[t] > kHidden;
      shown[mine] = static_cast<uint16_t>(left);
    }
    __syncthreads();
    if (mine < masks) {
      int before = 0;
      for (int m = 0; m < masks; ++m) before += shown[m] > shown[mine] || (shown[m] == shown[mine] && m < mine);
      ordered[before] = static_cast<uint16_t>(mine);
    }
    __syncthreads();
  }

 private:
  // All that a thread reads of some tiles is on its way at once.
  template <int kThreads, int N, class Program>
  __device__ __forceinline__ void judge(const Program& program, const Space<N>& batches, const TileMap& map, int keys) {
    using Keys = LaneKeys<kKeys, Program>;
    constexpr int kEach = 2, kAtOnce = kThreads / Keys::kLanes;
    const int tiles = map.masks * map.tiles;
#pragma unroll 1
    for (int first = 0; first < tiles; first += kEach * kAtOnce) {
      Keys mine[kEach];
      const int own = first + static_cast<int>(threadIdx.x) / Keys::kLanes;
      const auto which = [&](int i) { return min(own + i * kAtOnce, tiles - 1); };  // or the last one again
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        int64_t at[N];
        batches.template locate<true>(int64_t{which(i) / map.tiles} * map.sharing, at);
        mine[i].read(program, at, which(i) % map.tiles, keys, keys % 8 == 0 && program.is_whole(at));
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const float found = mine[i].judge(program, keys);
        if (Keys::lane() == 0) of[which(i)] = found;
      }
    }
  }
};

}  // namespace fusion::gpu
