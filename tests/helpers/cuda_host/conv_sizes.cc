// Whether convolutions of a batch, the width of an image with one row, channels, the width of a filter, and padding before it are
// small enough for the tiles of either kernel.
#include <cstdio>
#include <cstdlib>

#include "cuda_runtime.h"
#include "include/conv_floats.cuh"
#include "include/conv_tiles.cuh"

namespace gpu = fusion::gpu;

int main(int, char** sizes) {
  gpu::Convolution c{2, std::atoll(sizes[1]), std::atoll(sizes[3]), 8, 1, {1, 1, std::atoll(sizes[2])}, {1, 1, 1}, {1, 1, 1},
                     {1, 1, 1}, {}, {}, {1, 1, 1}};
  c.kernel[2] = std::atoll(sizes[4]), c.before[2] = std::atoll(sizes[5]);
  c.out[2] = c.in[2] + c.before[2] - c.kernel[2] + 1;
  std::puts(gpu::fits_float_tiles(c) ? "both" : gpu::fits_tiles(c) ? "16 bits" : "neither");
}
