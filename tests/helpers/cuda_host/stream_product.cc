// Hopper's kernel for products of few rows, with epilogues as they are generated: how many results are wrong.
#include <cstdio>

#include "cuda_runtime.h"
#include "include/skinny_stream.cuh"

namespace gpu = fusion::gpu;
using fusion::half;

// Of a chain's first product a bias is added, of its second the first one's result.
struct Epilogue {
  const half *bias, *earlier;
  half* out;
  int64_t columns;
  void operator()(const int64_t (&)[1], int64_t, int64_t row, int64_t column, float acc) const {
    const int64_t e = row * columns + column;
    if (fusion::to_float(out[e]) != -2000) acc = -1000;  // more than once
    fusion::store(out + e, acc + fusion::load(bias + column) + (earlier ? fusion::load(earlier + e) : 0));
  }
};
struct Operands {
  gpu::Product p;
  gpu::Space<1> batches;
  Epilogue epilogue;
};

template <class Tile, int kChains>
int wrong(int rows, int depth, const int (&columns)[kChains], unsigned grid) {
  constexpr int kProducts = Tile::kProducts;
  const auto whole = [](int i, int from, int to) { return fusion::to_half(i * 7919 % 101 % (to - from + 1) + from); };
  std::vector<half> left(rows * depth), bias(1024), right[kChains][kProducts], out[kChains][kProducts];
  for (int i = 0; i < rows * depth; ++i) left[i] = whole(i, -2, 2);
  for (int i = 0; i < 1024; ++i) bias[i] = whole(i, 0, 16);
  gpu::WideOperands<kProducts, kChains> x;
  x.left = gpu::host_map(left.data(), rows, depth, depth, Tile::kRows);
  x.rows = rows, x.depth = depth, x.early = grid % 2 == 0;
  Operands operands[kChains * kProducts] = {};
  int strips = 0;
  for (int chain = 0; chain < kChains; ++chain) {
    const int n = x.columns[chain] = columns[chain];
    strips += (n + Tile::kColumns - 1) / Tile::kColumns;
    for (int p = 0; p < kProducts; ++p) {
      for (int i = 0; i < depth * n; ++i) right[chain][p].push_back(whole(i + chain * 13 + p * 29, -1, 2));
      out[chain][p].assign(rows * n, fusion::to_half(-2000));
      x.right[chain][p] = gpu::host_map(right[chain][p].data(), depth, n, n, gpu::kPanel);
      Operands& o = operands[chain * kProducts + p];
      o.p = {rows, n, depth, depth, 1, n, 1, 1.0f};
      o.batches.count = 1;
      o.epilogue = {bias.data(), p > 0 ? out[chain][p - 1].data() : nullptr, out[chain][p].data(), n};
    }
  }
  std::vector<float> parts(2 * grid * rows * Tile::kAcross, -1e9f);
  std::vector<unsigned> done(gpu::kCounters);
  const int steps = (depth + gpu::kPanel - 1) / gpu::kPanel;
  const gpu::StreamShares shares{parts.data(), done.data(), steps, steps * strips};
  cuda_host::launch(grid, Tile::kThreads, Tile::kBytes, nullptr, [&] {
    // Blocks end in any order; thread 0 is the first to run.
    if (grid % 3 == 0 && threadIdx.x == 0) blockIdx.x = grid - 1 - blockIdx.x;
    if constexpr (kChains * kProducts == 1) gpu::few_stream<half, Tile>(x, shares, operands[0]);
    else if constexpr (kChains * kProducts == 2) gpu::few_stream<half, Tile>(x, shares, operands[0], operands[1]);
    else gpu::few_stream<half, Tile>(x, shares, operands[0], operands[1], operands[2]);
  });
  int wrong = 0;
  for (const unsigned left : done) wrong += left != 0;
  for (int chain = 0; chain < kChains; ++chain)
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns[chain]; ++c) {
        float earlier = 0;
        for (int p = 0; p < kProducts; ++p) {
          float sum = 0;
          const int i = r * columns[chain] + c;
          for (int k = 0; k < depth; ++k) {
            sum += fusion::to_float(left[r * depth + k]) * fusion::to_float(right[chain][p][k * columns[chain] + c]);
          }
          earlier = fusion::to_float(fusion::to_half(sum + fusion::to_float(bias[c]) + earlier));
          wrong += fusion::to_float(out[chain][p][i]) != earlier;
        }
      }
  return wrong;
}

template <int kRows, int kPanels>
int all_of() {
  using One = gpu::StreamTile<kRows, kPanels, 1>;
  using Pair = gpu::StreamTile<kRows, (kPanels + 1) / 2, 2>;
  const int some[] = {328}, few[] = {8}, three[] = {136, 72, 8};
  int found = 0;
  for (const int rows : {1, kRows - 1, kRows}) {
    for (const unsigned grid : {1, 3, 4}) {
      found += wrong<One>(rows, 520, some, grid) + wrong<One>(rows, 264, three, grid) + wrong<Pair>(rows, 264, some, grid);
    }
    found += wrong<One>(rows, 2008, few, 7) + wrong<One>(rows, 8, some, 2) + wrong<Pair>(rows, 136, few, 2);
  }
  return found;
}

int main() { std::printf("%d\n", all_of<8, 1>() + all_of<8, 2>() + all_of<8, 4>() + all_of<16, 1>() + all_of<16, 2>()); }
