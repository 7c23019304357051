// Hopper's kernel for products of many rows, with an epilogue as they are generated: how many results are wrong.
#include <cstdio>

#include "cuda_runtime.h"
#include "include/linear_wgmma.cuh"
#include "include/wide_choice.cuh"

namespace gpu = fusion::gpu;
using fusion::half;

// A bias, a matrix, a column of another type; results of 16 and of 32 bits.
struct Epilogue {
  const half *bias, *matrix;
  const float* line;
  half* out0;
  float* out1;
  int64_t columns;
  struct Operands {
    gpu::Vector<half, 8> bias, matrix;
    gpu::Vector<float, 8> line;
  };
  void fetch(Operands& x, uint32_t row, uint32_t column) const {
    gpu::fetch_eight(x.bias, bias, 0, 1, row, column);
    gpu::fetch_eight(x.matrix, matrix, columns, 1, row, column);
    gpu::fetch_eight(x.line, line, 1, 0, row, column);
  }
  void fetch(Operands& x, uint32_t row, uint32_t column, const Operands& near) const {
    fetch(x, row, column);
    x.bias = near.bias;
  }
  static constexpr bool kReadsRows = true, kByColumn = false;
  void prefetch(uint32_t row, uint32_t column) const {
    gpu::prefetch_eight(bias, 0, 1, row, column);
    gpu::prefetch_eight(matrix, columns, 1, row, column);
    gpu::prefetch_eight(line, 1, 0, row, column);
  }
  void spread(Operands& x) const {
    gpu::spread(x.bias, 1);
    gpu::spread(x.matrix, 1);
    gpu::spread(x.line, 0);
  }
  template <int kProducts>
  void store(uint32_t row, uint32_t column, bool inside, const float (&sums)[kProducts][8], const Operands& x, bool passes) const {
    const int64_t e = row * columns + column;
    float first[8], second[8];
    for (int i = 0; i < 8; ++i) {
      first[i] = sums[0][i] + gpu::get(x.bias, i);
      second[i] = sums[kProducts - 1][i] * gpu::get(x.line, i) + gpu::get(x.matrix, i) + (row * 3 + column + i) % 5;
    }
    gpu::store_eight(inside, out0 + e, first, passes);
    gpu::store_eight(inside, out1 + e, second, passes);
  }
};

// Said to read nothing else in every row: a tile's first step is multiplied before it is worked out where the tile lies.
struct LateEpilogue : Epilogue {
  static constexpr bool kReadsRows = false;
};

// Of which what is read is alike in all rows, and one result is made.
struct ColumnEpilogue : LateEpilogue {
  using Out = half;
  static constexpr bool kByColumn = true;
  void fetch_column(Operands& x, uint32_t column) const { gpu::fetch_eight(x.bias, bias, 1, 0, column, 0); }
  void spread(Operands& x, bool one = false) const { gpu::spread(x.bias, one ? 0 : 1); }
  Out* out(uint32_t row, uint32_t column) const { return gpu::eight_at(out0, columns, 1, row, column); }
  void compute(float (&y)[8], const float (&sums)[1][8], const Operands& x) const {
    for (int i = 0; i < 8; ++i) y[i] = sums[0][i] + gpu::get(x.bias, i);
  }
};

struct Made {
  std::vector<half> right[2], out0;
  std::vector<float> out1;
  int columns;
};

template <class Tile, bool kTransB, class End = Epilogue, int kChains>
int wrong(int rows, int depth, const int (&columns)[kChains], unsigned grid) {
  constexpr int kProducts = Tile::kProducts;
  const auto whole = [](int i, int from, int to) { return fusion::to_half(i * 7919 % 101 % (to - from + 1) + from); };
  std::vector<half> left(rows * depth), bias(1024), matrix(rows * 1024);
  std::vector<float> line(rows);
  for (int i = 0; i < rows * depth; ++i) left[i] = whole(i, -2, 2);
  for (int i = 0; i < 1024; ++i) bias[i] = whole(i, 0, 16);
  for (int i = 0; i < rows * 1024; ++i) matrix[i] = whole(i, 0, 28);
  for (int r = 0; r < rows; ++r) line[r] = r % 7;
  Made made[kChains];
  End epilogues[4];
  gpu::WideOperands<kProducts, kChains> x;
  x.rows = rows, x.depth = depth, x.early = columns[0] == 328 || kTransB, x.once = x.fills = kTransB;
  if (!gpu::describe_left<Tile>(x, left.data(), depth)) return 1;
  for (int chain = 0; chain < kChains; ++chain) {
    Made& m = made[chain];
    const int n = x.columns[chain] = m.columns = columns[chain];
    m.out0.assign(rows * n, fusion::to_half(-2000)), m.out1.assign(rows * n, -1e9f);
    for (int p = 0; p < kProducts; ++p) {
      for (int i = 0; i < depth * n; ++i) m.right[p].push_back(whole(i + chain * 13 + p * 29, -1, 2));
      x.right[chain][p] = kTransB ? gpu::host_map(m.right[p].data(), n, depth, depth, gpu::kPanel)
                                  : gpu::host_map(m.right[p].data(), depth, n, n, gpu::kPanel);
    }
    static_cast<Epilogue&>(epilogues[chain]) = {bias.data(), matrix.data(), line.data(), m.out0.data(), m.out1.data(), n};
  }
  x.order = gpu::tile_order<Tile>(rows, x.columns);
  cuda_host::launch(grid, Tile::kThreads, Tile::kBytes, nullptr, [&] {
    if constexpr (kChains == 1) gpu::linear_wgmma<half, Tile, kTransB>(x, epilogues[0]);
    else if constexpr (kTransB) gpu::linear_wgmma<half, Tile, kTransB>(x, gpu::Alike<End, 2>{epilogues[0], epilogues[1]});
    else gpu::linear_wgmma<half, Tile, kTransB>(x, epilogues[0], epilogues[1]);
  });
  int wrong = 0;
  for (const Made& m : made)
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < m.columns; ++c) {
        float sums[kProducts] = {};
        for (int p = 0; p < kProducts; ++p)
          for (int k = 0; k < depth; ++k)
            sums[p] += fusion::to_float(left[r * depth + k]) * fusion::to_float(m.right[p][kTransB ? c * depth + k : k * m.columns + c]);
        const int i = r * m.columns + c;
        const float first = fusion::to_float(fusion::to_half(sums[0] + fusion::to_float(bias[c])));
        wrong += fusion::to_float(m.out0[i]) != first;
        const float second = sums[kProducts - 1] * (r % 7) + fusion::to_float(matrix[i]) + (r * 3 + c) % 5;
        wrong += m.out1[i] != (End::kByColumn ? -1e9f : second);
      }
  return wrong;
}

// Of one block's tiles those after the first begin with the step that the one before ended with; left operands leave the L2 cache
// with the last tile, results with all but the last two, where results fill it.
template <class Tile, class End>
int misplaced(bool fills) {
  constexpr int kRows = Tile::kRows, kTiles = 4, kColumns = kTiles * Tile::kColumns, kDepth = 160, kSteps = 3;
  const std::vector<half> left(kRows * kDepth), right(kDepth * kColumns), matrix(kRows * kColumns);
  const std::vector<float> line(kRows);
  std::vector<half> out0(kRows * kColumns);
  std::vector<float> out1(kRows * kColumns);
  End epilogue;
  static_cast<Epilogue&>(epilogue) = {matrix.data(), matrix.data(), line.data(), out0.data(), out1.data(), kColumns};
  gpu::WideOperands<1, 1> x;
  x.right[0][0] = gpu::host_map(right.data(), kDepth, kColumns, kColumns, gpu::kPanel);
  x.rows = kRows, x.depth = kDepth, x.columns[0] = kColumns, x.early = x.once = false, x.fills = fills;
  if (!gpu::describe_left<Tile>(x, left.data(), kDepth)) return 1;
  x.order = gpu::tile_order<Tile>(kRows, x.columns);
  std::vector<gpu::Copied> copied;
  std::vector<const void*> passing;
  gpu::copied = &copied, cuda_host::passing = &passing;
  cuda_host::launch(1, Tile::kThreads, Tile::kBytes, nullptr, [&] { gpu::linear_wgmma<half, Tile, false>(x, epilogue); });
  gpu::copied = nullptr, cuda_host::passing = nullptr;
  int misplaced = 0, n = 0, next[] = {0, 1, 2, 3};
  for (int& step : next)
    while (step < gpu::kStepsAhead) step += Tile::kCopiers;
  for (const gpu::Copied& box : copied) {
    if (box.matrix != left.data()) continue;
    int turn = n++;
    if (turn >= gpu::kStepsAhead) turn = next[box.warp], next[box.warp] += Tile::kCopiers;
    const int tile = turn / kSteps, step = turn % kSteps;
    misplaced += box.column != (tile % 2 == 0 ? step : kSteps - 1 - step) * gpu::kPanel;
    misplaced += box.once != (fills && tile == kTiles - 1);
  }
  std::vector<int> passed(kTiles);  // the first columns come last
  for (const void* p : passing)
    for (int i = 0; i < kRows * kColumns; ++i) passed[kTiles - 1 - i % kColumns / Tile::kColumns] += p == &out0[i];
  for (int tile = 0; tile < kTiles; ++tile) misplaced += passed[tile] != (fills && tile < kTiles - 2 ? kRows * Tile::kColumns / 8 : 0);
  return misplaced + (n != kTiles * kSteps);
}

// Tiles that are not computed once, or not with those beside which they lie in a band.
template <class Tile>
int misordered(int across, int down) {
  gpu::WideOperands<1, 1> x;
  x.rows = down * Tile::kRows - 3, x.columns[0] = across * Tile::kColumns - 8, x.order = gpu::tile_order<Tile>(x.rows, x.columns);
  std::vector<int> times(across * down);
  int misordered = x.order.across != across || x.order.down != down, band = (down - 1) / Tile::kBand;
  for (int tile = 0; tile < across * down; ++tile) {
    const gpu::WidePosition<Tile> at(x, tile);
    const int row = at.row / Tile::kRows, column = at.column / Tile::kColumns;
    if (row < 0 || row >= down || column < 0 || column >= across) return 1;
    ++times[row * across + column];
    misordered += row / Tile::kBand > band;
    band = row / Tile::kBand;
  }
  for (const int n : times) misordered += n != 1;
  return misordered;
}

int main() {
  gpu::have_driver();
  const int odd[] = {200}, wide[] = {328}, two[] = {72, 200}, alike[] = {200, 200};
  int all = 0;
  for (const bool fills : {false, true}) {
    all += misplaced<gpu::SmallTile, Epilogue>(fills) + misplaced<gpu::SwappedTile<48>, ColumnEpilogue>(fills);
  }
  for (const int across : {1, 3, 48, 257})
    for (const int down : {1, 2, 7, 8, 15, 16, 17, 32, 33, 50}) {
      all += misordered<gpu::SmallTile>(across, down) + misordered<gpu::SwappedTile<48>>(across, down);
    }
  const auto each = [&](auto tile) {
    using Tile = decltype(tile);
    if constexpr (Tile::kShares) return;  // see shared_product.cc
    all += wrong<Tile, false>(77, 200, odd, 1) + wrong<Tile, true>(77, 72, odd, 1);
    all += wrong<Tile, false>(300, 264, wide, 2) + wrong<Tile, true>(200, 520, odd, 2);
    all += wrong<Tile, true>(200, 40, odd, 1) + wrong<Tile, false, LateEpilogue>(200, 136, odd, 2);
    if constexpr (Tile::kSwaps) {
      all += wrong<Tile, false, ColumnEpilogue>(77, 200, odd, 1) + wrong<Tile, true, ColumnEpilogue>(300, 136, odd, 2);
      all += wrong<Tile, false, ColumnEpilogue>(205, 136, two, 2) + wrong<Tile, true, ColumnEpilogue>(205, 136, alike, 2);
    }
    all += wrong<Tile, false>(140, 136, two, 2) + wrong<Tile, true>(140, 136, alike, 2);
  };
  // Of tiles whose operands change places some: the last of their parts of 32 rows have 16, 24, 8 and all.
  gpu::WideTiles<1, gpu::SwappedTiles<48, 88, 104, 192>>::each(each);
  gpu::WideTiles<2>::each(each);
  std::printf("%d\n", all);
}
