// Products whose depth the blocks of a cluster share, with an epilogue as they are generated: how many results are wrong, of blocks
// that a choice for an H200 would not take too.
#include <cstdio>

#include "added_matrix.h"
#include "cuda_runtime.h"
#include "include/linear_wgmma.cuh"
#include "include/wide_choice.cuh"

namespace gpu = fusion::gpu;
using fusion::half;

template <class T>
T whole(int i, int from, int to) {
  T x;
  fusion::store(&x, i * 7919 % 101 % (to - from + 1) + from);
  return x;
}

// Twos and smaller whole numbers: sums are exact in any order, and floats in TF32. A float is two of the depth.
template <class Tile, class T, bool kTransB>
int wrong(int rows, int columns, int depth, int parts) {
  cuda_host::Arena arena;
  constexpr int kHalves = sizeof(T) / sizeof(half);
  std::vector<T> left(rows * depth), right(depth * columns), bias(columns), residual(rows * columns);
  for (int i = 0; i < rows * depth; ++i) left[i] = whole<T>(i, -2, 2);
  for (int i = 0; i < depth * columns; ++i) right[i] = whole<T>(i, -1, 2);
  for (int i = 0; i < columns; ++i) bias[i] = whole<T>(i, 0, 16);
  for (int i = 0; i < rows * columns; ++i) residual[i] = whole<T>(i, 0, 28);
  T* const out = arena.take<T>(rows * columns);
  gpu::WideOperands<1, 1> x;
  x.right[0][0] = kTransB ? gpu::host_map(right.data(), columns, depth * kHalves, depth * kHalves, gpu::kPanel)
                          : gpu::host_map(right.data(), depth, columns, columns, gpu::kPanel);
  x.rows = rows, x.depth = depth * kHalves, x.columns[0] = columns, x.parts = parts, x.early = kTransB, x.once = x.fills = false;
  if (!gpu::describe_left<Tile>(x, left.data(), x.depth)) return 1;
  x.order = gpu::tile_order<Tile>(rows, x.columns);
  const unsigned blocks = x.order.across * x.order.down * parts;
  cuda_host::mail = arena.take<cuda_host::Mail>(blocks), cuda_host::cluster_size = parts;
  const AddedMatrix<T> epilogue{bias.data(), residual.data(), out, columns};
  cuda_host::launch_at_once(blocks, Tile::kThreads, Tile::kBytes, [&] { gpu::linear_wgmma<T, Tile, kTransB>(x, epilogue); });
  int wrong = 0;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      float sum = fusion::load(&bias[c]) + fusion::load(&residual[r * columns + c]);
      for (int k = 0; k < depth; ++k)
        sum += fusion::load(&left[r * depth + k]) * fusion::load(&right[kTransB ? c * depth + k : k * columns + c]);
      T rounded;
      fusion::store(&rounded, sum);
      wrong += fusion::load(&out[r * columns + c]) != fusion::load(&rounded);
    }
  return wrong;
}

template <class Tile>
int wrong_by(int parts) {
  int all = wrong<Tile, half, false>(77, 72, 64 * parts, parts) + wrong<Tile, half, true>(17, 136, 64 * parts * 2 + 40, parts);
  all += wrong<Tile, half, true>(64, 64, 64 * parts + 8, parts) + wrong<Tile, half, false>(130, 8, 64 * parts * 5 - 8, parts);
  return all + wrong<Tile, float, true>(77, 72, 32 * parts, parts) + wrong<Tile, float, true>(17, 136, 32 * parts * 5 - 4, parts);
}

int main() {
  gpu::have_driver();
  int all = wrong_by<gpu::PairedTile>(2);
  for (const int parts : {2, 4, 8}) all += wrong_by<gpu::SharedTile>(parts);
  std::printf("%d\n", all);
}
