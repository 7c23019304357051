// Hopper's kernel for products of float32 in TF32: how many results are wrong.
#include <cstdio>

#include "cuda_runtime.h"
#include "include/tf32_choice.cuh"
#include "rounded_products.h"

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
  RoundedProducts<kTransB, kProducts> made(rows, depth, columns);
  gpu::Tf32Operands<kProducts> x;
  x.map = gpu::host_map(made.left.data(), rows, depth * 2, depth * 2, Tile::kRows);
  x.rows = rows, x.depth = depth, x.parts = 1;
  Epilogue epilogues[kProducts];
  for (int p = 0; p < kProducts; ++p) {
    const int n = x.columns[p] = columns[p];
    x.right[p] = made.right[p].data(), x.right_stride[p] = kTransB ? depth : n;
    epilogues[p] = {made.bias.data(), made.matrix.data(), made.out[p].data(), n};
  }
  cuda_host::launch(gpu::tf32_tiles<Tile>(x.rows, x.columns), Tile::kThreads, Tile::template bytes<kTransB>(1), nullptr, [&] {
    if constexpr (kProducts == 1) gpu::linear_tf32_wgmma<Tile, kTransB>(x, epilogues[0]);
    else gpu::linear_tf32_wgmma<Tile, kTransB>(x, epilogues[0], epilogues[1]);
  });
  return made.wrong();
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
  gpu::Tf32Tiles::each(each);
  std::printf("%d\n", all);
}
