// Which products of float32 our own kernel takes in TF32, by which tile and with the depth in how many parts.
#pragma once

#include "include/linear_tf32_wgmma.cuh"

namespace fusion::gpu {

// Describes what products are made of, each given as a stage's operands (a, b, p, batches): of one left operand, in one
// batch. False where 16 bytes are not what the operands and the epilogue's eights are made of.
template <bool kTransB, class First, class... Others>
bool describe_tf32(Tf32Operands<1 + sizeof...(Others)>& x, const First& first, const Others&... others) {
  constexpr int kFewest = 3;  // fewer are the business of another kernel
  const Product& p = first.p;
  const auto one = [](const auto& y) { return y.batches.rank == 0 && y.batches.count == 1; };
  const auto fits = [](const float* data, int64_t lines, int64_t stride) {
    return stride % 4 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0 && lines * stride <= INT32_MAX;
  };
  if (!(one(first) && ... && one(others)) || p.m < kFewest || p.k == 0 || p.k % 4 != 0 || p.a_k != 1) return false;
  if (p.m > INT32_MAX / 2 || !fits(first.a, p.m, p.a_row)) return false;
  x.left = first.a, x.left_stride = static_cast<int>(p.a_row);
  x.rows = static_cast<int>(p.m), x.depth = static_cast<int>(p.k), x.parts = 1;
  int n = 0;
  const auto right = [&](const auto& y) {
    const Product& q = y.p;
    const int64_t stride = kTransB ? q.b_column : q.b_k;
    if (q.n == 0 || q.n % 8 != 0 || (kTransB ? q.b_k : q.b_column) != 1 || !fits(y.b, kTransB ? q.n : q.k, stride)) return false;
    x.right[n] = y.b, x.columns[n] = static_cast<int>(q.n), x.right_stride[n++] = static_cast<int>(stride);
    return true;
  };
  return (right(first) && ... && right(others));
}

// Calls f with the tiles that are compiled in. Their cycles were measured on an H200 (of 1.75 a nanosecond) at depths of
// 768 and 3072, with the depth in one to eight parts.
template <class F>
void for_tf32_tiles(const F& f) {
  f(Tf32Tile<32, 32, 1, 2, 2, 6, 3500, 525>{});
  f(Tf32Tile<32, 32, 2, 2, 1, 4, 3500, 750>{});
#if FUSION_HOPPER
  f(Tf32Groups<64, 8, 2, 6500, 740>{});
  f(Tf32Groups<128, 6, 2, 9500, 1210>{});
  f(Tf32Groups<192, 5, 1, 12000, 1700>{});
#else
  f(Tf32Tile<32, 32, 4, 2, 1, 3, 7400, 1120>{});
  f(Tf32Tile<64, 32, 2, 4, 1, 3, 12000, 1930>{});
#endif
}

// The kernel of a tile.
template <class Tile, bool kTransB, int kProducts, class... Epilogues>
__device__ __forceinline__ void products_in_tf32(const Tf32Operands<kProducts>& x, const Epilogues&... epilogues) {
#if FUSION_HOPPER
  if constexpr (Tile::kHopper) return linear_tf32_wgmma<Tile, kTransB>(x, epilogues...);
#endif
  if constexpr (!Tile::kHopper) linear_tf32<Tile, kTransB>(x, epilogues...);
}

// Whether a tile's kernel takes the left operand.
template <class Tile, int kProducts>
bool takes_left(Tf32Operands<kProducts>& x) {
  if constexpr (Tile::kHopper) return describe(x.map, x.left, x.rows, int64_t{x.depth} * 2, int64_t{x.left_stride} * 2, Tile::kRows);
  return true;
}

// Cycles of products by this tile, its depth in so many parts; more than anything else takes where the blocks would not
// all run at once, which costs as much again, and clusters leave some multiprocessors out.
template <class Tile, int kProducts>
double tf32_cycles(const Device& device, const Tf32Operands<kProducts>& x, int parts) {
  constexpr double kPart = 260;
  const int64_t blocks = int64_t{tf32_tiles<Tile>(x)} * parts;
  if (blocks > (parts > 1 ? device.multiprocessors * 9 / 10 : device.multiprocessors)) return inf<double>();
  double columns = 0;
  for (const int n : x.columns) columns += n;
  const double steps = static_cast<double>(ceil_div(ceil_div(x.depth, Tile::kDepth), parts)) * Tile::kStep;
  const double memory = columns * x.depth * 4 / device.multiprocessors / Tile::kBytes;
  return Tile::kStart + parts * kPart + (steps > memory ? steps : memory);
}

// Calls f with each tile that fits, each number of parts of the depth, and the cycles of both.
template <bool kTransB, int kProducts, class F>
void each_tf32_tile(const Device& device, const Tf32Operands<kProducts>& x, const F& f) {
  for_tf32_tiles([&](auto tile) {
    using Tile = decltype(tile);
    for (const int parts : {1, 2, 3, 4, 8}) {
      if (parts > kMostParts) break;
      if (Tile::template bytes<kTransB>(parts) <= device.shared_memory) f(tile, parts, tf32_cycles<Tile>(device, x, parts));
    }
  });
}
template <bool kTransB, int kProducts>
double least_tf32_cycles(const Device& device, const Tf32Operands<kProducts>& x) {
  double least = inf<double>();
  each_tf32_tile<kTransB>(device, x, [&](auto, int, double cycles) { least = cycles < least ? cycles : least; });
  return least;
}

// Has f(tile, blocks) launch the kernel of the tile that is fastest, with the depth in as many parts as x then says; false
// where it would take more than `most` cycles. Measured on an H200 with weights from memory, us for what cuBLASLt and a
// pass take: 8.5 for 21.4 at three of 128x768x768 (rows, columns, depth) together, 5.2 for 7.3 at one, 12.4 for 25.1 at
// three of 197x768x768, 4.4 for 6.4 at 16x768x768; with GELU 10.3 for 11.8 at 128x3072x768 and 33.6 for 34.3 at
// 1024x3072x768. The vendor's is faster at 128x768x3072 (10.7, 11.4 by ours), with GELU at 512x3072x768 (18.3, 22.1), and
// mostly from 1024 rows on: 24.0 at 1024x768x3072, 39 by ours, and 11.0, 14.3 at 1024x768x768.
template <bool kTransB, int kProducts, class F>
bool with_tf32_tile(const Device& device, Tf32Operands<kProducts>& x, double most, const F& f) {
  const double least = least_tf32_cycles<kTransB>(device, x);
  constexpr double kSure = 1.1;
  if (least * kSure > most) return false;
  bool done = false;
  each_tf32_tile<kTransB>(device, x, [&](auto tile, int parts, double cycles) {
    using Tile = decltype(tile);
    if (done || cycles > least || !takes_left<Tile>(x)) return;
    x.parts = parts;
    f(tile, static_cast<unsigned>(tf32_tiles<Tile>(x) * parts));
    done = true;
  });
  return done;
}

// Cycles of the vendor's kernel for a product, of a splitting of its depth where it has few rows, and of a pass after it.
inline double vendor_tf32_cycles(const Device& device, const Product& p, bool passes) {
  constexpr double kStart = 11000, kPerCycle = 615, kBytes = 12, kPassStart = 2300;
  const double columns = static_cast<double>(p.n) / device.multiprocessors;
  const double product = columns * static_cast<double>(p.m) * static_cast<double>(p.k) / kPerCycle;
  const double weights = columns * static_cast<double>(p.k) * 4 / kBytes;
  const double pass = passes ? kPassStart + columns * static_cast<double>(p.m) * 8 / kBytes : 0;
  return kStart + (product > weights ? product : weights) + pass;
}

}  // namespace fusion::gpu
