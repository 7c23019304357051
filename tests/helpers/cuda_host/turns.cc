// How evenly blocks of Hopper's attention are loaded: of every case "heads queries keys most", most being the heads that have
// their keys in the cache, the steps of the busiest block over those of all blocks' mean.
#include <cstdio>
#include <cstdlib>

#include "include/attention_walk.cuh"

using Tile = fusion::gpu::WarpgroupAttention<128, 128, true>;

int main(int argc, char** argv) {
  fusion::gpu::Device device;
  device.multiprocessors = 132;
  for (int i = 1; i + 3 < argc; i += 4) {
    fusion::gpu::AttentionShape s{};
    const int64_t heads = std::atoll(argv[i]);
    s.queries = std::atoll(argv[i + 1]), s.keys = std::atoll(argv[i + 2]);
    s.turns.together = static_cast<unsigned>(std::atoll(argv[i + 3]));
    s.turns.together = Tile::balanced(device, s, heads);
    s.lay_out(heads, Tile::kRows);
    const unsigned blocks = Tile::grid(device, s, heads);
    const int64_t tiles = heads * fusion::gpu::ceil_div(s.queries, Tile::kRows);
    double all = 0, most = 0;
    for (unsigned block = 0; block < blocks; ++block) {
      double steps = 0;
      for (unsigned round = 0; Tile::tile_of(round, block, blocks) < tiles; ++round) {
        const int64_t end = (fusion::gpu::place_of(Tile::tile_of(round, block, blocks), s.turns).tile + 1) * Tile::kRows;
        steps += 1 + fusion::gpu::ceil_div(end < s.keys ? end : s.keys, Tile::kKeys);
      }
      all += steps, most = steps > most ? steps : most;
    }
    std::printf("%u %.4f\n", s.turns.together, most * blocks / all);
  }
}
