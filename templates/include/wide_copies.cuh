// How the operands of products of many rows come on Hopper: a few threads have the copy engine bring them, step by step, to a ring of
// slots in shared memory.
#pragma once

#include "include/wide_shared.cuh"
#include "include/wide_tile.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

constexpr int kStepsAhead = 2;  // asked for before the threads of a block have met

// A place of a ring of so many, and whether it has been filled an odd number of times before.
template <int kSlots>
struct RingPlace {
  int slot, parity;
  explicit __device__ __forceinline__ RingPlace(unsigned n)
      : slot(static_cast<int>(n % kSlots)), parity(static_cast<int>(n / kSlots % 2)) {}
  __device__ __forceinline__ void go_on(int steps = 1) {
    slot += steps;
    if (slot >= kSlots) slot -= kSlots, parity ^= 1;
  }
};

// Calls f with everything that the copy engine has to know.
template <int kProducts, int kChains, class F>
__device__ __forceinline__ void each_map(const WideOperands<kProducts, kChains>& x, const F& f) {
  f(x.left), f(x.last);
#pragma unroll
  for (const auto& chain : x.right) {
#pragma unroll
    for (const TensorMap& map : chain) f(map);
  }
}

// A block's tiles, which are the first one and every gridDim.x-th after it of so many, and its steps of each.
struct WideSteps {
  int tile, tiles, begin, count;
  template <int kProducts, int kChains>
  __device__ __forceinline__ WideSteps(const WideOperands<kProducts, kChains>& x, const Share& share)
      : tile(share.tile), tiles(x.order.across * x.order.down) {
    const int all = (x.depth + kPanel - 1) / kPanel;
    begin = share.of(all * share.part), count = share.of(all * (share.part + 1)) - begin;
  }
};

// What one of the threads that copy, which take turns, does for the tile at `at`.
template <class Tile, bool kTransB, int kChains>
struct WideCopies {
  static constexpr int kSlots = Tile::kSlots, kPanels = Tile::kColumns / kPanel, kCopiers = Tile::kCopiers;
  static_assert(kStepsAhead <= kSlots && kCopiers <= kSlots);
  const WideOperands<Tile::kProducts, kChains>& x;
  const WideSteps& mine;
  WidePosition<Tile> at;
  uint32_t ring;
  Barrier *full, *empty;
  int warp;
  ChainPlace panels[kPanels];
  int missing;  // rows of the tile that are not there

  __device__ __forceinline__ WideCopies(const WideOperands<Tile::kProducts, kChains>& x, const WideSteps& mine, uint32_t ring,
                                        Barrier* full, Barrier* empty, int warp)
      : x(x), mine(mine), at(x, mine.tile), ring(ring), full(full), empty(empty), warp(warp) {}
  __device__ __forceinline__ void find_operands() {
#pragma unroll
    for (int i = 0; i < kPanels; ++i) panels[i] = at.of_panel(x, i);
    missing = max(at.row + Tile::kRows - x.rows, 0);
  }
  template <class F>
  __device__ __forceinline__ void each_box(int step, const F& f) const {
    const int depth = (mine.begin + step) * kPanel;
#pragma unroll
    for (int i = 0; i < Tile::kBoxes; ++i) {
      const auto [chain, column] = panels[i % kPanels];
      f(i, x.right[chain][i / kPanels], kTransB ? depth : column, kTransB ? column : depth);
    }
  }
  __device__ __forceinline__ void bring_right(int step, int slot) const {
    const uint32_t right = ring + slot * Tile::kSlotBytes + Tile::kLeftBytes;
    full[slot].arrive_expecting(Tile::kSlotBytes - missing * kPanel * 2);
    const auto bring = [&](bool once) {
      each_box(step, [&](int i, const TensorMap& map, int column, int row) {
        copy_box(right + i * Tile::kBoxBytes, map, full[slot], column, row, once);
      });
    };
    if (x.once) {
      bring(true);
    } else {
      bring(false);
    }
  }
  __device__ __forceinline__ void bring_left(int step, int slot, int tile) const {
    const TensorMap& left = missing > 0 ? x.last : x.left;
    const bool leaves = x.fills && tile + static_cast<int>(gridDim.x) >= mine.tiles;
    copy_box(ring + slot * Tile::kSlotBytes, left, full[slot], (mine.begin + step) * kPanel, at.row, leaves);
  }

  __device__ __forceinline__ int ahead() const { return min(mine.count, kStepsAhead); }
  template <class F>
  __device__ __forceinline__ void each_ahead(const F& f) const {
#pragma unroll 1
    for (int step = 0; step < ahead(); ++step) f(step);
  }
  // The first steps: one warp asks for their left operands, another one for the right ones, so that what a step needs comes before what
  // the next one does; with two warps for each step 1024x3072x768 with GELU takes 10.3 us on an H200, and 10.1 as it is. While kernels
  // before this one still run, right operands come if they are constants, or else nearer at least. More of them would stand in the way of
  // the left ones: on an H200 BERT-base of 8 x 128 tokens takes 0.534 ms in a graph, 0.542 with four of them and 0.643 if those of eight
  // steps more come nearer meanwhile.
  __device__ __forceinline__ void bring_first() {
    if (warp == 0) {
      await_earlier();
      each_ahead([&](int step) { bring_left(step, step, mine.tile); });
    } else if (__builtin_expect(x.early, true)) {
      each_ahead([&](int step) { bring_right(step, step); });
      await_earlier();
    } else {
      each_ahead([&](int step) {
        each_box(step, [](int, const TensorMap& map, int column, int row) { prefetch_box(map, column, row); });
      });
      await_earlier();
      each_ahead([&](int step) { bring_right(step, step); });
    }
  }
  // Before the threads of a block have met. The two warps that ask meet in a branch of their own.
  __device__ __forceinline__ void begin() {
    if (warp == 0 && is_elected()) {
#pragma unroll
      for (int step = 0; step < kStepsAhead; ++step) full[step].init(1);
      publish_barriers();
    }
    at.keep();
    find_operands();
    if (warp > 1) {
      if (is_elected()) await_earlier();
    } else {
      sync_threads(3, 64);
      if (is_elected()) bring_first();
    }
  }
  // All others. Every other tile is multiplied from its end on: what all blocks have read last is still in the L2 cache. Measured on an
  // H100, 179 MB came from memory for 223 at 2048x16384x4096, and 158 where its results pass through the cache.
  __device__ __forceinline__ void go_on() {
    bool is_back = false;
    int n = warp;  // of all steps
    if (n < ahead()) n += (ahead() - warp + kCopiers - 1) / kCopiers * kCopiers;
    RingPlace<kSlots> place(n);
    int i = n;  // of a tile's
    for (int tile = mine.tile; tile < mine.tiles; tile += static_cast<int>(gridDim.x), is_back = !is_back, i -= mine.count) {
      if (tile != mine.tile) at = {x, tile}, find_operands();
#pragma unroll 1
      for (; i < mine.count; i += kCopiers, n += kCopiers, place.go_on(kCopiers)) {
        const int step = is_back ? mine.count - 1 - i : i, slot = place.slot;
        if (n >= kSlots) empty[slot].wait(place.parity ^ 1);
        bring_right(step, slot);
        bring_left(step, slot, tile);
      }
    }
  }
};

}  // namespace fusion::gpu
#endif
