// Which products of many rows our own kernel takes, and by which tile.
#pragma once

#include <algorithm>

#include "include/wide_tile.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

constexpr int kWideRows = 64;  // fewer would leave most of a tile empty

// Describes what products are made of, each given as a stage's operands (a, b, p, batches), those of a chain one after the
// other: of one left operand, in one batch, equally wide in a chain. False where the copy engine or the epilogue's eights
// do not suit them, or there are fewer than `least` rows.
template <bool kTransB, int kProducts, int kChains, class First, class... Others>
bool describe_wide(WideOperands<kProducts, kChains>& x, int least, const First& first, const Others&... others) {
  static_assert(1 + sizeof...(Others) == kProducts * kChains);
  const Product& p = first.p;
  const auto one = [](const auto& y) { return y.batches.rank == 0 && y.batches.count == 1; };
  if (!(one(first) && ... && one(others)) || p.m < least || p.k == 0 || p.a_k != 1) return false;
  if (p.m > INT32_MAX / 2 || p.k > INT32_MAX / 2) return false;
  x.rows = static_cast<int>(p.m), x.depth = static_cast<int>(p.k);
  int n = 0;
  const auto right = [&](const auto& y) {
    const Product& q = y.p;
    const int chain = n / kProducts, product = n++ % kProducts;
    if (q.n == 0 || q.n % 8 != 0 || q.n > INT32_MAX / 4 / kChains) return false;
    if (product == 0) x.columns[chain] = static_cast<int>(q.n);
    TensorMap& map = x.right[chain][product];
    return kTransB ? q.b_k == 1 && describe(map, y.b, q.n, q.k, q.b_column, kPanel)
                   : q.b_column == 1 && describe(map, y.b, q.k, q.n, q.b_k, kPanel);
  };
  return (right(first) && ... && right(others));
}

// Whether the L2 cache keeps so many elements until they are read again.
constexpr bool cache_keeps(const Chip& device, double elements) { return elements * 2 <= device.cache / 2.0; }

template <class Columns>
constexpr double all_columns(const Columns& columns) {
  double sum = 0;
  for (const auto n : columns) sum += static_cast<double>(n);
  return sum;
}
// Of all right operands.
template <int kProducts, class Columns>
constexpr double right_elements(const Columns& columns, int64_t depth) {
  return all_columns(columns) * static_cast<double>(depth) * kProducts;
}

// How many blocks of a cluster share a tile's steps: as many as each have two steps and a multiprocessor, of which clusters of more than
// two leave some empty (an H200 has places for 66 of two blocks, 30 of four, 15 of eight); 1 where none do.
template <class Tile, class Columns>
constexpr int shared_parts(const Chip& device, int64_t rows, const Columns& columns, int64_t depth) {
  const int64_t tiles = wide_tiles<Tile>(static_cast<int>(rows), columns), all = device.multiprocessors;
  int parts = Tile::kMost;
  while (parts > 1 && (tiles * parts > (parts > 2 ? all * 10 / 11 : all) || depth < 2 * kPanel * parts)) parts /= 2;
  return parts;
}

// Tiles that run at the same time.
template <class Tile>
constexpr int64_t wide_at_once(const Chip& device) {
  return int64_t{device.multiprocessors} * Tile::kBlocks;
}

// From so many multiplications on the power that a GPU may take is the limit.
constexpr double kPowerBound = 3e10;

// Cycles of products by this tile: some to start, and its steps and epilogue for every tile of a multiprocessor; where workers
// are apart, of epilogues what the other one's products do not hide, and the last; where blocks share a tile, to send sums. Right
// operands from memory come at 31 bytes a cycle of each multiprocessor that has tiles, at 18.2 of all, and what all tiles read at 72.
// Where power is the limit, tiles for which operands are read more often take longer than their cycles: those of 64 rows, of workers that
// are apart, and whose operands change places (an H200 at 2048x16384x4096: the last by 6 of 100 with 192 rows, by 20 with 120).
// `rounds`: the left operand is rounded on its way, as float32 is.
template <class Tile, class Columns>
constexpr double wide_cycles(const Chip& device, bool rounds, int64_t rows, const Columns& columns, int64_t depth) {
  constexpr double kStart = 2500, kExchange = 1500, kFromMemory = 18.2, kToOne = 31, kFromCache = 72;
  constexpr double kLast = Tile::kApart ? 35 * Tile::kSums : 0;
  constexpr bool kAlone = Tile::kWorkers == 1;
  constexpr double kTogether = Tile::kAcross > 192 ? 1.04 : Tile::kAcross > 128 ? 1.19 : Tile::kAcross > 64 ? 1.3 : 1.6;
  constexpr double kRounds = Tile::kApart ? 1.42 : kAlone ? 1.6 : kTogether;
  constexpr double kHot = Tile::kSwaps ? 1.2 : Tile::kRows > 64 ? (Tile::kApart ? 1.1 : 1) : Tile::kApart ? 1.5 : 1.2;
  constexpr double kFrom = Tile::kSwaps ? kPowerBound / 3 : kPowerBound;
  const int parts = shared_parts<Tile>(device, rows, columns, depth);
  if (Tile::kShares && parts == 1) return inf<double>();
  const int64_t tiles = int64_t{wide_tiles<Tile>(static_cast<int>(rows), columns)} * parts, at_once = wide_at_once<Tile>(device);
  const double turns = static_cast<double>(tiles / at_once * Tile::kBlocks + ceil_div(tiles % at_once, int64_t{device.multiprocessors}));
  const double steps = static_cast<double>(ceil_div(depth, int64_t{kPanel} * parts));
  const double right = right_elements<Tile::kProducts>(columns, depth);
  const double hot = static_cast<double>(rows) * right > kFrom ? kHot : 1;
  const double reads = static_cast<double>(tiles) * steps * Tile::kSlotBytes / kFromCache / device.multiprocessors;
  const double speed = std::min(kToOne * static_cast<double>(tiles) / turns, kFromMemory * device.multiprocessors);
  const double comes = cache_keeps(device, right) ? 0 : right * 2 / speed;
  const double products = std::max({turns * steps * Tile::kCycles * hot * (rounds ? kRounds : 1), reads, comes});
  return kStart + products + turns * Tile::kEnding + kLast + (Tile::kShares ? kExchange : 0);
}

// The tile that is fastest, by its number, and its cycles; of those that are not `but`, nor like it another number of rows.
struct FastestTile {
  int number;
  double cycles;
  bool swaps;
};
template <class Tiles, class Columns>
constexpr FastestTile fastest_tile(const Chip& device, bool rounds, int64_t rows, const Columns& columns, int64_t depth,
                                   const FastestTile& but = {-1, 0, false}) {
  FastestTile fastest{0, inf<double>(), false};
  int number = 0;
  Tiles::each([&](auto tile) {
    using Tile = decltype(tile);
    const bool counts = number != but.number && !(Tile::kSwaps && but.swaps);
    const double cycles = counts ? wide_cycles<Tile>(device, rounds, rows, columns, depth) : inf<double>();
    if (cycles < fastest.cycles) fastest = {number, cycles, Tile::kSwaps};
    ++number;
  });
  return fastest;
}
// By rank 0 that one's number, by rank 1 that of the fastest of the others, or -1 where it is not close.
template <class Tiles, class Columns>
constexpr int ranked_tile(const Chip& device, bool rounds, int64_t rows, const Columns& columns, int64_t depth, int rank) {
  constexpr double kClose = 1.2;
  const FastestTile first = fastest_tile<Tiles>(device, rounds, rows, columns, depth);
  if (rank == 0) return first.number;
  const FastestTile second = fastest_tile<Tiles>(device, rounds, rows, columns, depth, first);
  return second.cycles < kClose * first.cycles ? second.number : -1;
}
// Calls f with the tile of a rank, if there is one.
template <class Tiles, class Columns, class F>
void with_fastest_tile(const Chip& device, bool rounds, int64_t rows, const Columns& columns, int64_t depth, const F& f, int rank = 0) {
  const int wanted = ranked_tile<Tiles>(device, rounds, rows, columns, depth, rank);
  int number = 0;
  Tiles::each([&](auto tile) {
    if (number++ == wanted) f(tile);
  });
}

// Tiles whose steps blocks do not share: every size has one of them.
template <class Tiles>
struct UnsharedTiles {
  static constexpr int kRanks = 1;
  template <class F>
  static constexpr void each(const F& f) {
    Tiles::each([&](auto tile) {
      if constexpr (!decltype(tile)::kShares) f(tile);
    });
  }
};

// Of a kernel's tiles, where rows, depth and columns are known before it runs, those of its ranks on one of these GPUs; and
// those that are where none is shared, for GPUs with fewer multiprocessors. No others are compiled.
template <class SomeTiles, bool kRounds, int64_t kRows, int64_t kDepth, int64_t... kColumns>
struct FastestTiles {
  using Tiles = typename SomeTiles::Known;
  static constexpr int kRanks = Tiles::kRanks;
  // The numbers of those of some tiles, as bits.
  template <class Some>
  static constexpr uint64_t fastest() {
    constexpr int64_t columns[] = {kColumns...};
    uint64_t found = 0;
    for (const Chip& chip : kHoppers) {
      for (int rank = 0; rank < Some::kRanks; ++rank) {
        const int number = ranked_tile<Some>(chip, kRounds, kRows, columns, kDepth, rank);
        if (number >= 0) found |= uint64_t{1} << number;
      }
    }
    return found;
  }
  template <class Some, class Tile>
  static constexpr bool has(uint64_t numbers) {
    bool found = false;
    int number = 0;
    Some::each([&](auto tile) {
      if (std::is_same_v<decltype(tile), Tile>) found = found || (numbers >> number & 1) != 0;
      ++number;
    });
    return found;
  }
  static constexpr uint64_t kAll = fastest<Tiles>(), kUnshared = fastest<UnsharedTiles<Tiles>>();
  template <class F>
  static constexpr void each(const F& f) {
    Tiles::each([&](auto tile) {
      using Tile = decltype(tile);
      if constexpr (has<Tiles, Tile>(kAll) || has<UnsharedTiles<Tiles>, Tile>(kUnshared)) f(tile);
    });
  }
};

// What the L2 cache is to keep. Right operands that it cannot keep would push the left one out of it, which tiles of other columns
// read again; but where it cannot keep that one either, those that multiply the same rows meet in the right one. Measured on
// an H100, 223 MB came from memory for 268 at 2048x16384x4096, but 370 for 291 at 2048x4096x16384.
template <int kProducts, int kChains>
void share_cache(const Device& device, WideOperands<kProducts, kChains>& x) {
  const double rows = x.rows;
  x.once = !cache_keeps(device, right_elements<kProducts>(x.columns, x.depth)) && cache_keeps(device, rows * x.depth);
  x.fills = !cache_keeps(device, rows * all_columns(x.columns));
}

// Blocks of a launch: those that share tiles are one's each, others go from tile to tile.
template <class Tile, class Operands>
unsigned wide_blocks(const Device& device, const Operands& x) {
  const int64_t blocks = int64_t{x.order.across} * x.order.down * x.parts;
  return static_cast<unsigned>(Tile::kShares ? blocks : std::min(blocks, wide_at_once<Tile>(device)));
}

// Describes the left operand for a tile. Rows that are not there take the copy engine longer than others do: what the last tiles lack is
// not asked for. On an H200 tiles of 128x64 took 54 us for 64x12288x4096 and 34 for 128 rows.
template <class Tile, int kProducts, int kChains>
bool describe_left(WideOperands<kProducts, kChains>& x, const void* left, int64_t stride) {
  const int last = (x.rows - 1) % Tile::kRows + 1;
  if (!describe(x.last, left, x.rows, x.depth, stride, last)) return false;
  x.left = x.last;
  const bool alike = last == Tile::kRows || last == x.rows;  // all tiles
  return alike || describe(x.left, left, x.rows, x.depth, stride, Tile::kRows);
}

// Has f(tile, blocks) launch the kernel of the tile of a rank, if there is one and the copy engine takes the left operand.
template <class Tiles, int kProducts, int kChains, class F>
bool with_wide_tile(const Device& device, bool rounds, WideOperands<kProducts, kChains>& x, const void* left, int64_t stride,
                    const F& f, int rank = 0) {
  bool described = false;
  share_cache(device, x);
  with_fastest_tile<Tiles>(device, rounds, x.rows, x.columns, x.depth, [&](auto tile) {
    using Tile = decltype(tile);
    described = describe_left<Tile>(x, left, stride);
    x.order = tile_order<Tile>(x.rows, x.columns);
    x.parts = shared_parts<Tile>(device, x.rows, x.columns, x.depth);
    if (described) f(tile, wide_blocks<Tile>(device, x));
  }, rank);
  return described;
}

// Cycles of the vendor's kernel for a product, which has a latency for every step of the depth; of a pass over its result, which sees 14
// bytes a cycle of each multiprocessor, or of a bias that the kernel adds.
inline double vendor_cycles(const Device& device, const Product& p, bool passes) {
  constexpr double kStart = 6200, kPassStart = 1400, kPerCycle = 1890, kDepth = 2.8;
  constexpr double kMemoryStart = 3000, kFromMemory = 19.5, kBias = 0.07;
  const double share = static_cast<double>(p.m) * static_cast<double>(p.n) / device.multiprocessors;
  const double right = static_cast<double>(p.n) * static_cast<double>(p.k);
  const double comes = cache_keeps(device, right) ? 0 : kMemoryStart + right * 2 / kFromMemory / device.multiprocessors;
  return kStart + std::max({share * static_cast<double>(p.k) / kPerCycle, static_cast<double>(p.k) * kDepth, comes}) +
         (passes ? kPassStart + share * 4 / 14 : share * kBias);
}

// Whether our kernel is faster than the vendor's for a product that needs a pass after it. Measured on an H200, GELU after a bias, 3072
// columns and a depth of 768, ours and the vendor's with its pass: 4.2 us and 6.3 at 128 rows, 5.2 and 6.9 at 256, 6.9 and 9.1 at 512,
// 10.3 and 13.9 at 1024, 14.8 and 18.7 at 1576, 35.3 and 42.0 at 4096; 4096 columns and a depth of 4096: 25.4 and 27.4 at 512, 47.9 and
// 50.4 at 1024; 16384 columns: 36.2 and 37.2 at 128, 48.6 and 50.7 at 256, 367 and 386 at 2048. Where power is the limit, nothing of this
// made it more than a hundredth faster: copies of right operands that two blocks share, operands that change places, transposed right
// operands, sums that an epilogue takes in pairs and the copy engine writes while the next tile is multiplied. On an H100 a step of 128 by
// 256 takes 1,075 cycles, of which the tensor cores need 1,024, and sums rounded to 16 bits and handed on while the next tile is
// multiplied are worth one to two and a half hundredths with GELU and nothing with a gate, for a rounding more.
// Tiles of a last turn that are too few for all multiprocessors, shared out among them by steps, with sums left in memory: on an H100
// 417 to 435 us for the vendor's 413 to 438 at 2048x18944x3584, but 347 for our 323 at 2048x4096x12288, 45 for 42 at 128x4096x12288 and 56
// for the vendor's 55 at 128x16384x4096, which half or a quarter of the left operand's copies make no faster either. Nor do weights that
// the norm before brings to the L2 cache: it and 128x4096x4096 take 19.6 us, and 20.7 with 4 MB ahead, 25.5 with all.
template <class Tiles>
bool wide_pays(const Device& device, const Product& p) {
  const int64_t columns[] = {p.n};
  const double multiplications = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  if (multiplications > kPowerBound) return true;
  return fastest_tile<Tiles>(device, false, p.m, columns, p.k).cycles < vendor_cycles(device, p, true);
}

// Whether one launch of it is faster than the vendor's for each of several chains of one product. Measured on an H200, three
// of 768 columns with a bias and a depth of 768: 4.5 us for 12.4 at 128 rows, 5.4 for 12.8 at 256, 5.2 for 13.5 at 512, 7.5 for
// 16.1 at 1024, 11.2 for 17.6 at 1576, 29.7 for 30.1 at 4096; 30.5 for 40.8 at 128 rows, three of 4096 columns and a depth of as much.
// Where power is the limit, one whose tiles are enough for all multiprocessors in every turn: 93.4 us for 103.9 at 2048 rows, 3584, 512 and
// 512 columns and a depth of 3584; on an H100, in a layer, 280 us for 287 with three of 4096 columns at 2048x4096, and 167 MB from memory
// for 251.
template <class Tiles, int kChains>
bool wide_pays_together(const Device& device, const WideOperands<1, kChains>& x, double vendor_cycles) {
  constexpr double kBusy = 0.95;
  const double multiplications = static_cast<double>(x.rows) * all_columns(x.columns) * x.depth;
  if (multiplications <= kPowerBound) return fastest_tile<Tiles>(device, false, x.rows, x.columns, x.depth).cycles < vendor_cycles;
  bool busy = false;
  with_fastest_tile<Tiles>(device, false, x.rows, x.columns, x.depth, [&](auto tile) {
    using Tile = decltype(tile);
    const int64_t tiles = wide_tiles<Tile>(x.rows, x.columns), at_once = wide_at_once<Tile>(device);
    busy = !Tile::kSwaps && static_cast<double>(tiles) >= kBusy * static_cast<double>(ceil_div(tiles, at_once) * at_once);
  });
  return busy;
}

}  // namespace fusion::gpu
#endif
