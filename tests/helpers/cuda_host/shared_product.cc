// Products whose depth the blocks of a cluster share, with an epilogue as they are generated: how many results are wrong, of blocks
// that a choice for an H200 would not take too.
#include <cstdio>

#include "cuda_runtime.h"
#include "include/linear_wgmma.cuh"

namespace gpu = fusion::gpu;
using fusion::half;
using Tile = gpu::SharedTile;

// A bias and a residual.
struct Epilogue {
  const half *bias, *residual;
  half* out;
  int64_t columns;
  struct Operands {
    gpu::Vector<half, 8> bias, residual;
  };
  void fetch(Operands& x, uint32_t row, uint32_t column) const {
    gpu::fetch_eight(x.bias, bias, 0, 1, row, column);
    gpu::fetch_eight(x.residual, residual, columns, 1, row, column);
  }
  void spread(Operands& x) const { gpu::spread(x.bias, 1), gpu::spread(x.residual, 1); }
  void store(uint32_t row, uint32_t column, bool inside, const float (&sums)[1][8], const Operands& x, bool passes = false) const {
    float y[8];
    for (int i = 0; i < 8; ++i) y[i] = sums[0][i] + gpu::get(x.bias, i) + gpu::get(x.residual, i);
    if (inside) gpu::store_eight(out + row * columns + column, y, passes);
  }
};

// Twos and smaller whole numbers: sums are exact in any order.
template <bool kTransB>
int wrong(int rows, int columns, int depth, int parts) {
  cuda_host::Arena arena;
  const auto whole = [](int i, int from, int to) { return fusion::to_half(i * 7919 % 101 % (to - from + 1) + from); };
  std::vector<half> left(rows * depth), right(depth * columns), bias(columns), residual(rows * columns);
  for (int i = 0; i < rows * depth; ++i) left[i] = whole(i, -2, 2);
  for (int i = 0; i < depth * columns; ++i) right[i] = whole(i, -1, 2);
  for (int i = 0; i < columns; ++i) bias[i] = whole(i, 0, 16);
  for (int i = 0; i < rows * columns; ++i) residual[i] = whole(i, 0, 28);
  half* const out = arena.take<half>(rows * columns);
  gpu::WideOperands<1, 1> x;
  x.left = gpu::host_map(left.data(), rows, depth, depth, Tile::kRows);
  x.right[0][0] = kTransB ? gpu::host_map(right.data(), columns, depth, depth, gpu::kPanel)
                          : gpu::host_map(right.data(), depth, columns, columns, gpu::kPanel);
  x.rows = rows, x.depth = depth, x.columns[0] = columns, x.parts = parts, x.early = kTransB, x.once = x.fills = false;
  const unsigned blocks = gpu::wide_tiles<Tile>(rows, x.columns) * parts;
  cuda_host::mail = arena.take<cuda_host::Mail>(blocks), cuda_host::cluster_size = parts;
  const Epilogue epilogue{bias.data(), residual.data(), out, columns};
  cuda_host::launch_at_once(blocks, Tile::kThreads, Tile::kBytes, [&] { gpu::linear_wgmma<half, Tile, kTransB>(x, epilogue); });
  int wrong = 0;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      float sum = fusion::to_float(bias[c]) + fusion::to_float(residual[r * columns + c]);
      for (int k = 0; k < depth; ++k)
        sum += fusion::to_float(left[r * depth + k]) * fusion::to_float(right[kTransB ? c * depth + k : k * columns + c]);
      wrong += fusion::to_float(out[r * columns + c]) != fusion::to_float(fusion::to_half(sum));
    }
  return wrong;
}

int main() {
  int all = 0;
  for (const int parts : {2, 4, 8}) {
    all += wrong<false>(77, 72, 64 * parts, parts) + wrong<true>(17, 136, 64 * parts * 2 + 40, parts);
    all += wrong<true>(64, 64, 64 * parts + 8, parts) + wrong<false>(130, 8, 64 * parts * 5 - 8, parts);
  }
  std::printf("%d\n", all);
}
