// As fastest_tiles.cc, of float32 in TF32; the depth of a tile in one part.
#include <cstdio>

#include "cuda_runtime.h"
#include "include/tf32_choice.cuh"

namespace gpu = fusion::gpu;

template <int kRows, int kDepth, int kColumns>
void print_tf32_tiles() {
  using Some = gpu::FastestTf32Tiles<gpu::Tf32Tiles, false, kRows, kDepth, kColumns>;
  const int columns[] = {kColumns};
  Some::each([&](auto tile) {
    using Tile = decltype(tile);
    std::printf("%dx%d%s ", Tile::kRows, Tile::kColumns, Tile::kHopper ? "h" : "");
  });
  bool same = true;
  for (const gpu::Chip& chip : gpu::kHoppers) {
    const double least = gpu::least_tf32_cycles<gpu::Tf32Tiles, false>(chip, kRows, kDepth, columns);
    same = same && gpu::least_tf32_cycles<Some, false>(chip, kRows, kDepth, columns) == least;
  }
  std::printf("%s\n", same ? "" : "another ");
}

int main() {
  print_tf32_tiles<16, 768, 768>();
  print_tf32_tiles<128, 768, 768>();
  print_tf32_tiles<128, 768, 3072>();
  print_tf32_tiles<4096, 768, 3072>();
}
