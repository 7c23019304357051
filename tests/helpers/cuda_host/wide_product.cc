// Hopper's kernel for products of many rows, with an epilogue as they are generated: how many results are wrong.
#include <cstdio>

#include "cuda_runtime.h"
#include "include/linear_wgmma.cuh"

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
  void spread(Operands& x) const {
    gpu::spread(x.bias, 1);
    gpu::spread(x.matrix, 1);
    gpu::spread(x.line, 0);
  }
  template <int kProducts>
  void store(uint32_t row, uint32_t column, bool inside, const float (&sums)[kProducts][8], const Operands& x) const {
    const int64_t e = row * columns + column;
    float first[8], second[8];
    for (int i = 0; i < 8; ++i) {
      first[i] = sums[0][i] + gpu::get(x.bias, i);
      second[i] = sums[kProducts - 1][i] * gpu::get(x.line, i) + gpu::get(x.matrix, i) + (row * 3 + column + i) % 5;
    }
    if (inside) gpu::store_eight(out0 + e, first);
    if (inside) gpu::store_eight(out1 + e, second);
  }
};

struct Made {
  std::vector<half> right[2], out0;
  std::vector<float> out1;
  int columns;
};

template <class Tile, bool kTransB, int kChains>
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
  Epilogue epilogues[4];
  gpu::WideOperands<kProducts, kChains> x;
  x.left = gpu::host_map(left.data(), rows, depth, depth, Tile::kRows);
  x.rows = rows, x.depth = depth, x.early = columns[0] == 328 || kTransB, x.once = kTransB;
  for (int chain = 0; chain < kChains; ++chain) {
    Made& m = made[chain];
    const int n = x.columns[chain] = m.columns = columns[chain];
    m.out0.assign(rows * n, fusion::to_half(-2000)), m.out1.assign(rows * n, -1e9f);
    for (int p = 0; p < kProducts; ++p) {
      for (int i = 0; i < depth * n; ++i) m.right[p].push_back(whole(i + chain * 13 + p * 29, -1, 2));
      x.right[chain][p] = kTransB ? gpu::host_map(m.right[p].data(), n, depth, depth, gpu::kPanel)
                                  : gpu::host_map(m.right[p].data(), depth, n, n, gpu::kPanel);
    }
    epilogues[chain] = {bias.data(), matrix.data(), line.data(), m.out0.data(), m.out1.data(), n};
  }
  cuda_host::launch(grid, Tile::kThreads, Tile::kBytes, nullptr, [&] {
    if constexpr (kChains == 1) gpu::linear_wgmma<half, Tile, kTransB>(x, epilogues[0]);
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
        wrong += m.out1[i] != sums[kProducts - 1] * (r % 7) + fusion::to_float(matrix[i]) + (r * 3 + c) % 5;
      }
  return wrong;
}

int main() {
  const int odd[] = {200}, wide[] = {328}, two[] = {72, 200};
  int all = 0;
  const auto each = [&](auto tile) {
    using Tile = decltype(tile);
    all += wrong<Tile, false>(77, 200, odd, 1) + wrong<Tile, true>(77, 72, odd, 1);
    all += wrong<Tile, false>(300, 264, wide, 2) + wrong<Tile, true>(200, 520, odd, 2);
    all += wrong<Tile, false>(140, 136, two, 2);
  };
  gpu::for_wide_tiles<1>(each);
  gpu::for_wide_tiles<2>(each);
  std::printf("%d\n", all);
}
