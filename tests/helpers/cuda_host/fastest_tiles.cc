// Which tiles are compiled for products whose sizes are known, by their rows and columns; and whether each of the GPUs that are
// thought of takes the tiles that it would take of all, and one with few multiprocessors one that it can run.
#include <cstdio>

#include "cuda_runtime.h"
#include "include/linear_wgmma.cuh"
#include "include/wide_choice.cuh"

namespace gpu = fusion::gpu;

template <class Tiles, bool kRounds, int64_t kRows, int64_t kDepth, int64_t kColumns>
void print_tiles() {
  using Some = gpu::FastestTiles<Tiles, kRounds, kRows, kDepth, kColumns>;
  const int64_t columns[] = {kColumns};
  Some::each([&](auto tile) {
    using Tile = decltype(tile);
    std::printf("%dx%d%s%s ", Tile::kRows, Tile::kAcross, Tile::kApart ? "a" : "", Tile::kShares ? "s" : "");
  });
  bool same = true;
  for (const gpu::Chip& chip : gpu::kHoppers) {
    for (int rank = 0; rank < Tiles::kRanks; ++rank) {
      int taken = 0;
      gpu::with_fastest_tile<typename Tiles::Known>(chip, kRounds, kRows, columns, kDepth, [&](auto all) {
        ++taken;
        gpu::with_fastest_tile<Some>(chip, kRounds, kRows, columns, kDepth, [&](auto tile) {
          --taken;
          same = same && std::is_same_v<decltype(all), decltype(tile)>;
        }, rank);
      }, rank);
      same = same && taken == 0;
    }
  }
  bool runs = false;
  gpu::with_fastest_tile<Some>(gpu::Chip{2, 1 << 20}, kRounds, kRows, columns, kDepth, [&](auto tile) { runs = !decltype(tile)::kShares; });
  std::printf("%s%s\n", same ? "" : "another ", runs ? "" : "none ");
}

int main() {
  print_tiles<gpu::WideTiles<1>, false, 1024, 768, 3072>();
  print_tiles<gpu::WideTiles<1>, false, 128, 3072, 768>();
  print_tiles<gpu::TriedTiles, false, 128, 3072, 768>();
  print_tiles<gpu::TriedTiles, false, 1024, 768, 768>();
  print_tiles<gpu::TriedTiles, false, 2048, 1024, 1024>();
  print_tiles<gpu::TriedTiles, false, 512, 4096, 1024>();
  print_tiles<gpu::WideTiles<2>, false, 128, 2048, 5504>();
  print_tiles<gpu::WideTiles<1>, false, 2048, 16384, 4096>();
  print_tiles<gpu::FloatTiles<1>, true, 1024, 1536, 3072>();
}
