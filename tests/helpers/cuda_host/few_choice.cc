// Whether an H200 would stream one product of few rows by itself, of so many rows, columns and so deep.
#include <cstdio>
#include <cstdlib>

#include "cuda_runtime.h"
#include "include/skinny_phases.cuh"

namespace gpu = fusion::gpu;

int main(int count, char** sizes) {
  if (count != 4) return 1;
  gpu::Device device;
  device.multiprocessors = 132;
  gpu::Product p{};
  p.m = std::atoi(sizes[1]), p.n = std::atoi(sizes[2]), p.k = std::atoi(sizes[3]);
  std::printf("%d", gpu::streams_alone(device, p));
}
