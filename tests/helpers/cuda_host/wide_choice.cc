// What an H200 would choose for rows, a depth and the columns of chains of one product: the tile, and whether it pays.
#include <cstdio>
#include <cstdlib>

#include "cuda_runtime.h"
#include "include/linear_wgmma.cuh"
#include "include/wide_choice.cuh"

namespace gpu = fusion::gpu;

template <int kChains>
void print_choice(const gpu::Device& device, int rows, int depth, char** columns) {
  gpu::WideOperands<1, kChains> x;
  x.rows = rows, x.depth = depth;
  double vendor = 0;
  gpu::Product p{};
  for (int c = 0; c < kChains; ++c) {
    x.columns[c] = std::atoi(columns[c]);
    p.m = rows, p.n = x.columns[c], p.k = depth;
    vendor += gpu::vendor_cycles(device, p, false);
  }
  const gpu::WideKind kind{false, kChains > 1};
  const bool pays = kChains == 1 ? gpu::wide_pays(device, kind, p) : gpu::wide_pays_together(device, kind, x, vendor);
  const double least = gpu::least_wide_cycles<1>(device, kind, rows, x.columns, depth);
  gpu::for_wide_tiles<1>([&](auto tile) {
    using Tile = decltype(tile);
    if (gpu::wide_cycles<Tile>(device, kind, rows, x.columns, depth) > least) return;
    std::printf("%dx%d%s%s\n", Tile::kTogether * Tile::kHeight * 64, Tile::kColumns, Tile::kApart ? " apart" : "", pays ? " pays" : "");
  });
}

int main(int count, char** sizes) {
  gpu::Device device;
  device.multiprocessors = 132, device.cache = 60 << 20;
  (count == 6 ? print_choice<3> : print_choice<1>)(device, std::atoi(sizes[1]), std::atoi(sizes[2]), sizes + 3);
}
