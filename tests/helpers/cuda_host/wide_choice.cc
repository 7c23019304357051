// What an H200 would choose for rows, a depth and the columns of chains of one product: the tile and the blocks that share it, whether
// it pays, and whether right operands are read once and results fill the cache; and where tiles do not end with the first.
#include <cstdio>
#include <cstdlib>

#include "cuda_runtime.h"
#include "include/linear_wgmma.cuh"
#include "include/wide_choice.cuh"

namespace gpu = fusion::gpu;

using Tiles = gpu::WideTiles<1>::Known;

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
  const bool pays = kChains == 1 ? gpu::wide_pays<Tiles>(device, p) : gpu::wide_pays_together<Tiles>(device, x, vendor);
  alignas(16) static fusion::half left[1];  // nobody reads it
  gpu::with_wide_tile<Tiles>(device, false, x, left, depth, [&](auto tile, unsigned) {
    using Tile = decltype(tile);
    const gpu::WidePosition<Tile> last(x, gpu::wide_tiles<Tile>(rows, x.columns) - 1);
    std::printf("%dx%d", Tile::kRows, Tile::kColumns);
    if (x.parts > 1) std::printf("/%d", x.parts);
    std::printf("%s%s%s%s\n", pays ? " pays" : "",
                x.once ? " once" : "", x.fills ? " fills" : "", last.row + last.column > 0 ? " astray" : "");
  });
}

int main(int count, char** sizes) {
  gpu::have_driver();
  gpu::Device device;
  device.multiprocessors = 132, device.cache = 60 << 20;
  (count == 6 ? print_choice<3> : print_choice<1>)(device, std::atoi(sizes[1]), std::atoi(sizes[2]), sizes + 3);
}
