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

// Calls f with the tiles of a kernel. Their cycles were measured on an H200 (of 1.75 a nanosecond) at depths of 768 and 3072, with the
// depth in one to eight parts.
struct Tf32Tiles {
  template <class F>
  static constexpr void each(const F& f) {
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
};

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
template <class Tile, class Columns>
constexpr double tf32_cycles(const Chip& chip, int rows, int depth, const Columns& columns, int parts) {
  constexpr double kPart = 260;
  const int64_t blocks = int64_t{tf32_tiles<Tile>(rows, columns)} * parts;
  if (blocks > (parts > 1 ? chip.multiprocessors * 9 / 10 : chip.multiprocessors)) return inf<double>();
  double across = 0;
  for (const auto n : columns) across += static_cast<double>(n);
  const double steps = static_cast<double>(ceil_div(ceil_div(depth, Tile::kDepth), parts)) * Tile::kStep;
  const double memory = across * depth * 4 / chip.multiprocessors / Tile::kBytes;
  return Tile::kStart + parts * kPart + (steps > memory ? steps : memory);
}

// Calls f with each tile that fits, each number of parts of the depth, and the cycles of both.
template <class Tiles, bool kTransB, class Columns, class F>
constexpr void each_tf32_tile(const Chip& chip, int rows, int depth, const Columns& columns, const F& f) {
  Tiles::each([&](auto tile) {
    using Tile = decltype(tile);
    for (const int parts : {1, 2, 3, 4, 8}) {
      if (parts > kMostParts) break;
      if (Tile::template bytes<kTransB>(parts) <= chip.shared_memory) {
        f(tile, parts, tf32_cycles<Tile>(chip, rows, depth, columns, parts));
      }
    }
  });
}
template <class Tiles, bool kTransB, class Columns>
constexpr double least_tf32_cycles(const Chip& chip, int rows, int depth, const Columns& columns) {
  double least = inf<double>();
  each_tf32_tile<Tiles, kTransB>(chip, rows, depth, columns, [&](auto, int, double cycles) { least = cycles < least ? cycles : least; });
  return least;
}

#if FUSION_HOPPER
// Of a kernel's tiles, where rows, depth and columns are known before it runs, those that are the fastest on a GPU of this kind; no others
// are compiled. All, where on one of them every tile would take longer than its blocks run at once.
template <class Tiles, bool kTransB, int kRows, int kDepth, int... kColumns>
struct FastestTf32Tiles {
  template <class Tile>
  static constexpr bool is_fastest() {
    constexpr int columns[] = {kColumns...};
    bool found = false;
    for (const Chip& chip : kHoppers) {
      const double least = least_tf32_cycles<Tiles, kTransB>(chip, kRows, kDepth, columns);
      each_tf32_tile<Tiles, kTransB>(chip, kRows, kDepth, columns, [&](auto tile, int, double cycles) {
        if constexpr (std::is_same_v<decltype(tile), Tile>) found = found || cycles <= least;
      });
    }
    return found;
  }
  template <class F>
  static constexpr void each(const F& f) {
    Tiles::each([&](auto tile) {
      if constexpr (is_fastest<decltype(tile)>()) f(tile);
    });
  }
};
#else
template <class Tiles, bool, int, int, int...>
using FastestTf32Tiles = Tiles;
#endif

// Has f(tile, blocks) launch the kernel of the tile that is fastest, with the depth in as many parts as x then says; false
// where it would take more than `most` cycles. Measured on an H200 with weights from memory, us for what cuBLASLt and a
// pass take: 8.5 for 21.4 at three of 128x768x768 (rows, columns, depth) together, 5.2 for 7.3 at one, 12.4 for 25.1 at
// three of 197x768x768, 4.4 for 6.4 at 16x768x768; with GELU 10.3 for 11.8 at 128x3072x768 and 33.6 for 34.3 at
// 1024x3072x768. The vendor's is faster at 128x768x3072 (10.7, 11.4 by ours), with GELU at 512x3072x768 (18.3, 22.1), and
// mostly from 1024 rows on: 24.0 at 1024x768x3072, 39 by ours, and 11.0, 14.3 at 1024x768x768.
template <class Tiles, bool kTransB, int kProducts, class F>
bool with_tf32_tile(const Device& device, Tf32Operands<kProducts>& x, double most, const F& f) {
  const double least = least_tf32_cycles<Tiles, kTransB>(device, x.rows, x.depth, x.columns);
  constexpr double kSure = 1.1;
  if (least * kSure > most) return false;
  bool done = false;
  each_tf32_tile<Tiles, kTransB>(device, x.rows, x.depth, x.columns, [&](auto tile, int parts, double cycles) {
    using Tile = decltype(tile);
    if (done || cycles > least || !takes_left<Tile>(x)) return;
    x.parts = parts;
    f(tile, static_cast<unsigned>(tf32_tiles<Tile>(x.rows, x.columns) * parts));
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
