// Which products of batches are products of more rows: the rows of each, 0 where they stay batches.
#include <cstdio>

#include "cuda_runtime.h"
#include "include/linear.cuh"

namespace gpu = fusion::gpu;

// [batches, rows, 8] times [8, 16] and an operand of [batches, rows, 16], or of [1, rows, 16] where `spread`.
int64_t folded(int64_t batches, int64_t rows, bool spread) {
  const fusion::Ints dims{batches, rows, 16}, a_dims{batches, rows, 8}, b_dims{8, 16}, x_dims{spread ? 1 : batches, rows, 16};
  const gpu::View views[] = {gpu::view({nullptr, &a_dims}), gpu::view({nullptr, &b_dims}), gpu::view({nullptr, &x_dims})};
  gpu::Product p = gpu::product(views[0], views[1], 1.0f);
  gpu::Space<3> space = gpu::space<3>(dims, views, 2);
  int64_t row[] = {p.a_row, 0, views[2].step(2)};
  gpu::fold_batches(p, space, row);
  const bool apart = p.a_row == 8 && row[2] == (spread ? 0 : 16);
  return space.count == 1 && apart ? p.m : 0;
}

int main() {
  std::printf("%d %d %d %d\n", int(folded(3, 5, false)), int(folded(3, 1, false)), int(folded(3, 5, true)), int(folded(3, 1, true)));
}
