// Which products of many rows our own kernel takes, and by which tile.
#pragma once

#include <algorithm>

#include "include/wide_tile.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

constexpr int kWideRows = 64;  // fewer would leave most of a tile empty

// Describes what products are made of, each given as a stage's operands (a, b, p, batches), those of a chain one after the
// other: of one left operand, in one batch, equally wide in a chain. False where the copy engine or the epilogue's eights
// do not suit them.
template <bool kTransB, int kProducts, int kChains, class First, class... Others>
bool describe_wide(WideOperands<kProducts, kChains>& x, const First& first, const Others&... others) {
  static_assert(1 + sizeof...(Others) == kProducts * kChains);
  const Product& p = first.p;
  const auto one = [](const auto& y) { return y.batches.rank == 0 && y.batches.count == 1; };
  if (!(one(first) && ... && one(others)) || p.m < kWideRows || p.k == 0 || p.a_k != 1) return false;
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

// Whether the L2 cache keeps right operands of so many elements until they are read again.
inline bool keeps_right(const Device& device, double elements) { return elements * 2 <= device.cache / 2.0; }

// Cycles of products by this tile: some to start, and its epilogue every time; where workers are apart once, what the other
// does not hide, or twice if there is no other. Right operands from memory come at 14.5 bytes a cycle of each
// multiprocessor, and what all tiles read then at 40.
template <class Tile, class Columns>
double wide_cycles(const Device& device, int64_t rows, const Columns& columns, int64_t depth) {
  constexpr double kStart = 4400, kFromMemory = 14.5, kBeyondCache = 40;
  const int64_t tiles = int64_t{wide_down<Tile>(static_cast<int>(rows))} * wide_across<Tile>(columns);
  const double rounds = static_cast<double>(ceil_div(tiles, int64_t{device.multiprocessors} * Tile::kBlocks));
  const double steps = static_cast<double>(ceil_div(depth, kPanel));
  double right = 0;
  for (const auto n : columns) right += static_cast<double>(n) * static_cast<double>(depth) * Tile::kProducts;
  const double reads = static_cast<double>(tiles) * steps * Tile::kSlotBytes;
  const double comes = std::max(right * 2 / kFromMemory, reads / kBeyondCache) / device.multiprocessors;
  const double products = std::max(rounds * steps * Tile::kCycles, keeps_right(device, right) ? 0 : comes);
  return kStart + products + (!Tile::kApart ? rounds : rounds > 1 ? 1 : 2) * Tile::kEnding;
}
template <int kProducts, class Columns>
double least_wide_cycles(const Device& device, int64_t rows, const Columns& columns, int64_t depth) {
  double least = -1;
  for_wide_tiles<kProducts>([&](auto tile) {
    const double cycles = wide_cycles<decltype(tile)>(device, rows, columns, depth);
    if (least < 0 || cycles < least) least = cycles;
  });
  return least;
}

// Has f(tile, blocks) launch the kernel of the tile that is fastest, if the copy engine takes the left operand.
template <int kProducts, int kChains, class F>
bool with_wide_tile(const Device& device, WideOperands<kProducts, kChains>& x, const void* left, int64_t stride, const F& f) {
  const double least = least_wide_cycles<kProducts>(device, x.rows, x.columns, x.depth);
  bool done = false;
  for_wide_tiles<kProducts>([&](auto tile) {
    using Tile = decltype(tile);
    if (done || wide_cycles<Tile>(device, x.rows, x.columns, x.depth) > least) return;
    if (!describe(x.left, left, x.rows, x.depth, stride, Tile::kRows)) return;
    const int64_t tiles = int64_t{wide_down<Tile>(x.rows)} * wide_across<Tile>(x.columns);
    const int64_t most = int64_t{device.multiprocessors} * Tile::kBlocks;
    f(tile, static_cast<unsigned>(tiles < most ? tiles : most));
    done = true;
  });
  return done;
}

// Cycles of the vendor's kernel for a product; of a pass over its result, which sees 14 bytes a cycle of each
// multiprocessor.
inline double vendor_cycles(const Device& device, const Product& p, bool passes) {
  constexpr double kStart = 6500, kPassStart = 2000, kPerCycle = 2048 * 0.8, kFromMemory = 15.6;
  const double share = static_cast<double>(p.m) * static_cast<double>(p.n) / device.multiprocessors;
  const double right = static_cast<double>(p.n) * static_cast<double>(p.k);
  const double comes = keeps_right(device, right) ? 0 : right * 2 / kFromMemory / device.multiprocessors;
  return kStart + std::max(share * static_cast<double>(p.k) / kPerCycle, comes) + (passes ? kPassStart + share * 4 / 14 : 0);
}

// Whether our kernel is faster than the vendor's for a product that needs a pass after it. Of more multiplications the
// power that a GPU may take is the limit, and the vendor's needs no more of it. Measured on an H200, GELU after a bias, 3072
// columns and a depth of 768, ours and the vendor's with its pass: 5.7 us at 128 rows, 13.0 and 14.4 at 1024, 23.3 and 18.8
// at 1576, 44 and 46 at 4096; SiLU 44.3 and 44.5 at 128x16384x4096, 466 and 447 at 2048 rows, the clock at 1.45 GHz.
constexpr double kMostWide = 1.2e10;
inline bool wide_pays(const Device& device, const Product& p) {
  const int64_t columns[] = {p.n};
  return static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) <= kMostWide &&
         least_wide_cycles<1>(device, p.m, columns, p.k) < vendor_cycles(device, p, true);
}

// Whether one launch of it is faster than the vendor's for each of several chains of one product. Measured on an H200,
// three equal ones with a bias: 5.5 us for 11.9 at 128x768x768, 9.2 for 15.1 at 512x1024x1024, 12.2 for 16.2 at
// 1024x768x768, 14.6 for 19.8 at 1576x768x768, 26.1 for 29.9 at 512x1024x4096; 31.5 for 31.6 at 4096x768x768, 53 for 49 at
// 2048x768x3072.
template <int kChains>
bool wide_pays_together(const Device& device, const WideOperands<1, kChains>& x, double vendor_cycles) {
  double columns = 0;
  for (const int n : x.columns) columns += n;
  return static_cast<double>(x.rows) * columns * x.depth <= kMostWide &&
         least_wide_cycles<1>(device, x.rows, x.columns, x.depth) < vendor_cycles;
}

}  // namespace fusion::gpu
#endif
