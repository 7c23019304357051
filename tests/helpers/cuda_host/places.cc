// How many positions of a space of 3 x 5 x 4 blocks, no axes of which are merged, are located wrongly: where what operands have lies
// near, and where it lies farther away than 31 bits count.
#include <cstdio>

#include "cuda_runtime.h"
#include "include/gpu.cuh"

namespace gpu = fusion::gpu;

int wrong(int64_t far) {
  const fusion::Ints dims{3, 5, 4};
  gpu::View x, y;
  x.rank = y.rank = 3;
  const int64_t strides[] = {-far, 7 * far, 2};
  for (int d = 0; d < 3; ++d) x.size[d] = y.size[d] = dims[d], x.stride[d] = strides[d], y.stride[d] = d == 1 ? 0 : strides[d];
  const gpu::View views[] = {x, y};
  const gpu::Space<2> space = gpu::space<2>(dims, views);
  int found = 0;
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 5; ++j) {
      for (int64_t k = 0; k < 4; ++k) {
        int64_t at[2];
        space.locate_block((i * 5 + j) * 4 + k, at);
        const int64_t first = i * strides[0] + k * strides[2];
        found += at[0] != first + j * strides[1] || at[1] != first;
      }
    }
  }
  return found;
}

int main() { std::printf("%d %d\n", wrong(1000), wrong(int64_t{1} << 40)); }
