// What products of many rows on Hopper are cut into: tiles of the results, and the operands as the copy engine knows them.
#pragma once

#include "include/cluster.cuh"
#include "include/divisor.h"
#include "include/linear.cuh"
#include "include/wide_epilogue.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

// What tiles have in common. Tiles of the operands, 64 deep, go through a ring of kSlots. kBlocks blocks share a multiprocessor, each of
// which adds kCycles to a step and kEnding to an epilogue. kSums: of a thread.
template <int kWorkers_, int kRows_, int kAcross_, int kSlots_, int kBlocks_, bool kApart_, int kCycles_, int kEnding_, int kSums_>
struct RingTile {
  static constexpr int kWorkers = kWorkers_, kRows = kRows_, kAcross = kAcross_, kSlots = kSlots_, kBlocks = kBlocks_;
  static constexpr int kCycles = kCycles_, kEnding = kEnding_, kSums = kSums_;
  static constexpr bool kApart = kApart_;
  static constexpr int kTogether = kApart ? 1 : kWorkers;  // workers of a tile
  // The copy engine brings boxes of 64 by 64; those of the left operand come at once.
  static constexpr int kBoxBytes = kPanel * kPanel * 2, kLeftBytes = kRows * kPanel * 2, kBoxes = kAcross / kPanel;
  static constexpr int kSlotBytes = kLeftBytes + kBoxes * kBoxBytes;
  // Threads that copy, in turns: to ask for a step takes one longer than a small tile does to multiply it.
  static constexpr int kCopiers = kSlotBytes > 24576 ? 1 : kSlotBytes > 16384 ? 2 : 4;
  static constexpr int kThreads = kWarpgroup * (1 + kWorkers);
  // Registers of a thread: of all at first, of the copying warpgroup, of the others; where a tile is small they stay.
  static constexpr int kEven = 65536 / (kThreads * kBlocks) / 8 * 8, kFew = 40;
  static constexpr int kMany = (kEven * (1 + kWorkers) - kFew) / kWorkers / 8 * 8;
  static constexpr bool kMoves = kSums > 32 && kEven < 240;
  // Beside the ring every warp has a place for sums.
  static constexpr int kSumsAt = kSlots * kSlotBytes, kPlacesAt = kSumsAt + kWorkers * 4 * kSumsBytes, kBarrierBytes = (2 * kSlots + 1) * 8;
  static_assert(kAcross % kPanel == 0 && kLeftBytes % 1024 == 0 && kSums <= 144 && (!kMoves || kMany <= 240));
};

// What a block computes at a time: kWorkers warpgroups with kHeight * 64 rows each, and kColumns columns of each of
// kProducts products of one left operand. They have a tile together, or where they are apart each its own, so that one
// ends its tile while the other multiplies. kMost: where it is more than one, the steps of a tile are shared out among the blocks of a
// cluster, two to so many, and of the sums each ends some.
template <int kWorkers_, int kHeight_, int kColumns_, int kProducts_, int kSlots_, int kBlocks_, bool kApart_, int kCycles_,
          int kEnding_, int kMost_ = 1>
struct WideTile : RingTile<kWorkers_, (kApart_ ? 1 : kWorkers_) * kHeight_ * 64, kColumns_ * kProducts_, kSlots_, kBlocks_, kApart_,
                           kCycles_, kEnding_, kHeight_ * kColumns_ * kProducts_ / 2> {
  static constexpr int kHeight = kHeight_, kColumns = kColumns_, kProducts = kProducts_, kMost = kMost_, kBand = 16;
  static constexpr bool kSwaps = false, kShares = kMost > 1;
  using Sums = float[kHeight][WideTile::kAcross / 8][4];  // of a worker's tile, as the tensor cores leave them to its threads
  static constexpr int kPanels = kColumns / kPanel;       // of a worker
  // Where sums are shared, a place of a warp for each of its turns from every block.
  static constexpr int kTurns = kHeight * kColumns / kPanel * 4, kPlaces = kShares ? std::max(kTurns, kMost) : 0;
  static constexpr int kBytes = 1024 + WideTile::kPlacesAt + kPlaces * WideTile::kWorkers * 4 * kTurnBytes;
  static_assert(kBytes + WideTile::kBarrierBytes <= kHopperShared);
};

// The same where operands change places: the tensor cores' 64 rows are columns of a result, and its rows any number of eights. Two workers
// have 64 columns of them each. On an H200, us by such a tile, by the fastest other one, and of cuBLASLt's bare product: 7.5, 9.4 and 8.0
// for three of 1024x768x768 with a bias each, 5.2, 6.4 and 6.1 of 512 rows, 10.9, 11.8 and 10.8 of 1576; with GELU 6.5, 7.1 and 6.3 at
// 512x3072x768, 13.8, 15.2 and 13.3 at 1576 rows; with a residual 5.6, 6.6 and 5.7 at 1576x768x768, 16.3, 15.7 and 15.1 at 2048x768x3072. One
// worker, two that are apart, and workers with 128 columns were slower at all of these. Nor are these faster: two blocks of a cluster that
// bring half of the right operand each for both (11.2 us for 10.5 with a residual at 1024x768x3072); warps that end a tile while its workers
// multiply the next one (13.9 for 14.0 with GELU at 1576 rows); a worker that stays some steps behind the other one, with as many slots
// fewer on their way (18.3 for 14.2).
template <int kRows>
struct SwappedShape {
  static constexpr int kSums = kRows / 2, kSlotBytes = (kRows + 2 * kPanel) * kPanel * 2;
  static constexpr int kSlots = (kHopperShared - 1024 - 2 * kWorkerSumsBytes - 256) / kSlotBytes;  // as many as fit beside sums and barriers
  // The tensor cores take four cycles for a row; what is copied for few rows takes longer.
  static constexpr int kCycles = std::max(kRows * 418 / 100, 186 + kRows * 242 / 100), kEnding = 700 + kRows * 286 / 10;
};
template <int kRows_>
struct SwappedTile : RingTile<2, kRows_, 2 * kPanel, SwappedShape<kRows_>::kSlots, 1, false, SwappedShape<kRows_>::kCycles,
                              SwappedShape<kRows_>::kEnding, SwappedShape<kRows_>::kSums> {
  static constexpr int kPanels = 1, kColumns = SwappedTile::kAcross, kProducts = 1, kMost = 1, kBand = 8;
  static constexpr bool kSwaps = true, kShares = false;
  using Sums = float[1][kRows_ / 8][4];
  static constexpr int kBytes = 1024 + SwappedTile::kSumsAt + 2 * kWorkerSumsBytes;
  static_assert(kBytes + SwappedTile::kBarrierBytes <= kHopperShared);
};

// The smaller tiles; for few of them, whose steps are shared. No two of their blocks fit on a multiprocessor: those of a kernel that begins
// while another one ends would lie there in pairs, and leave others empty. On an H200 BERT-base of 128 tokens takes 0.257 ms in a graph,
// and 0.276 with two blocks of SharedTile. PairedTile reads weights from memory once where 64 rows would twice: in a layer of 128 tokens
// 16384 by 4096 take 39 us by it and 46 by SmallTile, though alone they take 37.7 and 38.5.
using SquareTile = WideTile<2, 1, 128, 1, 6, 1, false, 572, 4660>;
using NarrowTile = WideTile<2, 1, 64, 1, 8, 1, false, 307, 2980>;
using SmallTile = WideTile<1, 1, 64, 1, 12, 1, false, 244, 2180>;
using SharedTile = WideTile<1, 1, 64, 1, 8, 1, false, 244, 2180, kMostParts>;
using PairedTile = WideTile<2, 1, 64, 1, 7, 1, false, 307, 2980, 2>;

// Those of some numbers of rows, so that a product is cut evenly for all multiprocessors.
template <int... kRows>
struct SwappedTiles {
  template <class F>
  static constexpr void each(const F& f) {
    (f(SwappedTile<kRows>{}), ...);
  }
};
// For sizes that are known, of which only the fastest is compiled, and for others.
using ManySwapped = SwappedTiles<48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176, 184, 192, 200>;
using FewSwapped = SwappedTiles<72, 96, 120, 152>;

// Those tiles that a trial may find faster than the vendor's kernel. Measured on an H200 with a residual, us for what cuBLASLt takes: 3.5 for
// 4.4 at 128x768x768 (rows, columns, depth), 5.0 for 8.1 at 128x768x3072, 6.5 for 7.9 at 256x768x3072, 7.4 for 8.7 at 128x1024x4096, 4.5 for
// 5.0 at 512x768x768, 5.4 for 6.2 at 1024x768x768, 11.6 for 13.9 at 128x4096x4096, 25.4 for 29.8 at 128x4096x11008, 37.7 for 40.4 at
// 128x4096x16384, 47.5 for 54.1 at 256x4096x16384, 9.7 for 10.3 at 2048x1024x1024, 25.4 for 26.2 at 512x4096x4096; the same at 1024x768x3072.
// Larger tiles are hardly ever faster than the vendor's: 29.1 for 29.6 at 4096x768x3072, 95.9 for 95.0 at 2048x4096x4096.
// Nor are larger ones whose steps two blocks share, though they read less: 11.9 by 128x128 and 10.6 by NarrowTile at 1024x768x3072,
// 17.3 by 128x192 and 19.0 by SquareTile at 2048x768x3072, where the vendor's takes 15.1 without the residual; nor those of changed places
// whose sums go from one block's registers to the other's memory: 12.1 by 96x128 for 10.1 by 48x128, as fewer blocks read the same.
template <class Swapped>
struct TriedTilesWith {
  using Known = TriedTilesWith<ManySwapped>;  // those there are where sizes are known
  static constexpr int kRanks = kOwnTried;    // those that are said to be fastest
  template <class F>
  static constexpr void each(const F& f) {
    f(SquareTile{}), f(NarrowTile{}), f(SmallTile{}), f(SharedTile{}), f(PairedTile{}), Swapped::each(f);
  }
};
using TriedTiles = TriedTilesWith<FewSwapped>;

// Calls f with the tiles of a kernel, the best of large products first. Cycles are of 1.755 GHz, fitted to what each tile takes on an
// H200 by itself (`python -m benchmarks.wide_tiles`) at 24 sizes of 128 to 4096 rows, 768 to 16384 columns and depths of 768 to 16384,
// with GELU, SiLU or a residual, of which nothing is in the cache: by them the fastest is chosen at all. More than 256 columns do not fit
// in registers. Columns that are no multiple of 64 have boxes begin within a line of memory, and others are no faster for fewer of them:
// with a residual 1024x768x3072 takes 16.0 us by tiles of 128x48, 11.1 if all boxes begin with a line, and 10.9 by 128x64; with a bias
// for each of three 1024x768x768 take 9.4 by 128x160, and 9.6 by 128x192.
template <int kProducts, class Swapped = FewSwapped>
struct WideTiles {
  using Known = WideTiles<kProducts, ManySwapped>;
  static constexpr int kRanks = 1;
  template <class F>
  static constexpr void each(const F& f) {
    f(WideTile<2, 1, 256 / kProducts, kProducts, 4, 1, false, 1126, 7730>{});
    f(WideTile<2, 2, 128 / kProducts, kProducts, 6, 1, true, 576, 2850>{});
    if constexpr (kProducts == 1) {
      f(WideTile<2, 1, 192, 1, 5, 1, false, 838, 6520>{}), f(WideTile<1, 1, 192, 1, 6, 1, false, 424, 4900>{});
      f(WideTile<2, 1, 128, 1, 8, 1, true, 306, 1340>{});
      TriedTilesWith<Swapped>::each(f);
    } else {
      f(WideTile<2, 1, 64, 2, 6, 1, false, 572, 4660>{}), f(WideTile<1, 1, 64, 2, 4, 2, false, 350, 2250>{});
    }
  }
};

// Those of floats, which are rounded on their way through registers, as no operand is that changes places.
template <int kProducts>
struct FloatTiles {
  using Known = FloatTiles;
  static constexpr int kRanks = 1;
  template <class F>
  static constexpr void each(const F& f) {
    WideTiles<kProducts>::each([&](auto tile) {
      if constexpr (!decltype(tile)::kSwaps) f(tile);
    });
  }
};

// In which order tiles are computed: those that run at once have rows and columns in common, as they lie in bands of so many tiles, which a
// kind of tile says, below one another. A GPU fills one group of 16 multiprocessors after the other, and what several of a group read at
// the same time comes once: on an H200 1024x768x3072 with a residual takes 10.1 us by tiles of 48x128 in bands of 8, 10.5 of 16 or 1.
struct TileOrder {
  int across, down;    // tiles
  Divisor band, last;  // by a whole band's tiles, and by how many of the last one lie below one another
  TileOrder() = default;
  TileOrder(int across, int down, int high)
      : across(across), down(down), band(Divisor::of(static_cast<uint64_t>(high) * across)), last(Divisor::of((down - 1) % high + 1)) {}
};

// Products of one left operand [rows, depth]: kChains times kProducts right ones [depth, columns], those of a chain
// equally wide. A float is two of the depth, as the copy engine and the tensor cores take as long as for two of 16 bits.
template <int kProducts, int kChains>
struct WideOperands {
  TensorMap left, last;  // of a tile's rows, and of those that the last tiles have
  TensorMap right[kChains][kProducts];
  int rows, depth, columns[kChains];
  TileOrder order;
  int parts;   // blocks that share a tile's steps, where its kind is to be shared
  bool early;  // the right operands are there before any kernel runs
  bool once;   // nobody finds them in the L2 cache again, where left ones are to stay
  bool fills;  // the results are more than the cache keeps: those of the last turns are what the next kernel can find there
};

// A chain's columns begin with a panel.
__host__ __device__ __forceinline__ constexpr int in_panels(int columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

template <class Tile, class Columns>
constexpr int wide_across(const Columns& columns) {
  int across = 0;
  for (const int n : columns) across += in_panels(n);
  return (across + Tile::kColumns - 1) / Tile::kColumns;
}
template <class Tile>
constexpr int wide_down(int rows) {
  return (rows + Tile::kRows - 1) / Tile::kRows;
}
template <class Tile, class Columns>
constexpr int wide_tiles(int rows, const Columns& columns) {
  return wide_across<Tile>(columns) * wide_down<Tile>(rows);
}
template <class Tile, class Columns>
TileOrder tile_order(int rows, const Columns& columns) {
  return {wide_across<Tile>(columns), wide_down<Tile>(rows), Tile::kBand};
}

// Where a panel begins: the chain that it is of, and that one's column.
struct ChainPlace {
  int chain, column;
};

// Where a tile begins; columns of all chains lie side by side, and a tile may have some of several. The first columns come last, of all
// chains together if they are as many whole tiles wide: they are still in the L2 cache when a next kernel begins with them.
template <class Tile>
struct WidePosition {
  int row, column;
  template <int kChains>
  __device__ __forceinline__ WidePosition(const WideOperands<Tile::kProducts, kChains>& x, int tile) {
    constexpr int kBand = Tile::kBand;
    const unsigned from_end = x.order.across * x.order.down - 1 - tile, bands = x.order.band.quotient(from_end);
    const int first = static_cast<int>(bands) * kBand, below = x.order.down - first;
    const unsigned n = from_end - first * x.order.across;
    const int right = static_cast<int>(below < kBand ? x.order.last.quotient(n) : n / kBand);  // so many tiles
    row = (first + static_cast<int>(n) - right * min(below, kBand)) * Tile::kRows;
    column = right * Tile::kColumns;
    if constexpr (kChains > 1) {
      bool abreast = x.columns[0] % Tile::kColumns == 0;
#pragma unroll
      for (int c = 1; c < kChains; ++c) abreast = abreast && x.columns[c] == x.columns[0];
      if (abreast) column = right % kChains * x.columns[0] + right / kChains * Tile::kColumns;
    }
  }
  template <int kChains>
  __device__ __forceinline__ ChainPlace of_panel(const WideOperands<Tile::kProducts, kChains>& x, int panel) const {
    ChainPlace at{0, column + panel * kPanel};
#pragma unroll
    for (int c = 0; c + 1 < kChains; ++c) {
      if (at.chain < c || at.column < in_panels(x.columns[c])) continue;
      at.column -= in_panels(x.columns[c]);
      ++at.chain;
    }
    return at;
  }
  // Has it worked out here.
  __device__ __forceinline__ void keep() {
    gpu::keep(row), gpu::keep(column);
  }
};

}  // namespace fusion::gpu
#endif
