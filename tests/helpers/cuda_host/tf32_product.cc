// Hopper's kernel for products of float32 in TF32: how many results are wrong.
#include <cstdio>

#include "cuda_runtime.h"
#include "include/tf32_choice.cuh"

namespace gpu = fusion::gpu;

// A bias and a matrix are added.
struct Epilogue {
  const float *bias, *matrix;
  float* out;
  int columns;
  struct Operands {
    gpu::Chunk<float, 8> bias, matrix;
  };
  Operands fetch(int64_t row, int64_t column) const {
    return {*reinterpret_cast<const gpu::Chunk<float, 8>*>(bias + column),
            *reinterpret_cast<const gpu::Chunk<float, 8>*>(matrix + row * columns + column)};
  }
  void store(int64_t row, int64_t column, const float (&sums)[8], const Operands& x) const {
    for (int i = 0; i < 8; ++i) out[row * columns + column + i] = sums[i] + x.bias.element[i] + x.matrix.element[i];
  }
};

template <class Tile, bool kTransB, int kProducts>
int wrong(int rows, int depth, const int (&columns)[kProducts]) {
  // Whole numbers once they are rounded; with bits cut off they would be less.
  const auto whole = [](int i) { return static_cast<float>(i * 7919 % 101 % 5 - 2) * (1 - 1 / 1048576.0f); };
  std::vector<float> left(rows * depth), right[kProducts], out[kProducts], bias(1024), matrix(rows * 1024);
  for (int i = 0; i < rows * depth; ++i) left[i] = whole(i);
  for (int i = 0; i < 1024; ++i) bias[i] = i % 17;
  for (int i = 0; i < rows * 1024; ++i) matrix[i] = i % 29;
  gpu::Tf32Operands<kProducts> x;
  x.map = gpu::host_map(left.data(), rows, depth * 2, depth * 2, Tile::kRows);
  x.rows = rows, x.depth = depth, x.parts = 1;
  Epilogue epilogues[kProducts];
  for (int p = 0; p < kProducts; ++p) {
    const int n = x.columns[p] = columns[p];
    for (int i = 0; i < depth * n; ++i) right[p].push_back(whole(i + p * 13));
    out[p].assign(rows * n, -1e9f);
    x.right[p] = right[p].data(), x.right_stride[p] = kTransB ? depth : n;
    epilogues[p] = {bias.data(), matrix.data(), out[p].data(), n};
  }
  cuda_host::launch(gpu::tf32_tiles<Tile>(x), Tile::kThreads, Tile::template bytes<kTransB>(1), nullptr, [&] {
    if constexpr (kProducts == 1) gpu::linear_tf32_wgmma<Tile, kTransB>(x, epilogues[0]);
    else gpu::linear_tf32_wgmma<Tile, kTransB>(x, epilogues[0], epilogues[1]);
  });
  int wrong = 0;
  for (int p = 0; p < kProducts; ++p)
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns[p]; ++c) {
        float sum = bias[c] + matrix[r * columns[p] + c];
        for (int k = 0; k < depth; ++k) {
          sum += std::round(left[r * depth + k]) * std::round(right[p][kTransB ? c * depth + k : k * columns[p] + c]);
        }
        wrong += out[p][r * columns[p] + c] != sum;
      }
  return wrong;
}

int main() {
  const int odd[] = {200}, wide[] = {328}, two[] = {72, 200};
  int all = 0;
  const auto each = [&](auto tile) {
    using Tile = decltype(tile);
    if constexpr (Tile::kHopper) {
      all += wrong<Tile, false>(77, 200, odd) + wrong<Tile, true>(77, 76, odd) + wrong<Tile, false>(300, 36, wide);
      all += wrong<Tile, true>(200, 520, odd) + wrong<Tile, false>(140, 136, two);
    }
  };
  gpu::for_tf32_tiles(each);
  std::printf("%d\n", all);
}
