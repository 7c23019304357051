// How evenly blocks of Hopper's attention are loaded where masks leave batches keys of their own number: of every case "heads
// queries keys", and as many keys as each mask leaves, all in one argument: the steps of the busiest block over those of all
// blocks' mean, with tiles of queries as they come, and in the order of masks.
#include <cstdio>
#include <memory>
#include <sstream>
#include <vector>

#include "include/attention_walk.cuh"

namespace gpu = fusion::gpu;

// Keys that a mask of bool hides score -inf.
struct Program {
  static constexpr bool kCausal = false, kBare = false, kLowers = false, kByKey = true, kSorted = true, kFirm = true;
  const bool* mask;

  template <int V>
  struct Strip {
    gpu::Strip<bool, V> shown;
    bool operator[](int i) const { return shown[i]; }
    template <bool kRows>
    void read(const Program& p, const int64_t (&at)[5], int, int column, int valid) {
      if (!kRows) shown.read(p.mask + at[4] + column, 1, valid);
    }
    void read_whole(const Program& p, const int64_t (&at)[5], int, int column) { shown.read(p.mask + at[4] + column); }
  };
  bool is_whole(const int64_t (&)[5]) const { return true; }
  float score(float product, bool shown, int64_t, int, int) const { return shown ? product : -INFINITY; }
};

using Tile = gpu::WarpgroupAttention<64, 64, Program::kBare>;
using Keys = gpu::Walk<Tile, gpu::Prob::kIdentity, 5, Program>;

struct Case {
  int64_t heads, queries, keys;
  std::vector<int64_t> left;

  double busiest(bool deals) const {
    const int64_t masks = static_cast<int64_t>(left.size());
    const fusion::Ints dims{masks, heads, queries, 64};
    gpu::View views[5];
    for (gpu::View& x : views) {
      x.rank = 4;
      const int64_t stride[] = {heads * queries * 64, queries * 64, 64, 1};
      for (int d = 0; d < 4; ++d) x.size[d] = dims[d], x.stride[d] = stride[d];
    }
    views[4].size[1] = 1, views[4].stride[0] = keys, views[4].stride[2] = 0;
    const auto mask = std::make_unique<bool[]>(masks * keys);
    for (int64_t m = 0; m < masks; ++m) std::fill_n(&mask[m * keys], left[m], true);

    gpu::Device device;
    device.multiprocessors = 132;
    gpu::AttentionShape s{};
    s.queries = queries, s.keys = keys, s.together = 1;
    const auto batches = gpu::space<5>(dims, views, 2);
    gpu::TileMap map = gpu::sorted_spaces(device, batches, dims, views, s, true, true, nullptr).map;
    if (!deals) map.masks = 0;
    const unsigned blocks = Tile::grid(device, s, batches.count);
    std::vector<double> steps(blocks);
    const Program program{mask.get()};
    static gpu::TileSorts<Tile::kKeys> sorts[Tile::kPlaces + 1];
    static gpu::LongestFirst<Tile::kKeys> dealt;
    bool again[Tile::kMostRounds] = {};
    cuda_host::launch(blocks, Tile::kThreads, 0, nullptr, [&] {
      Keys walk{s, batches, program, map, sorts, again, dealt};
      walk.begin();
      while (walk.find(1)) {  // one step for its beginning and end
        if (threadIdx.x == 0) steps[blockIdx.x] += 1 + gpu::ceil_div(left[walk.batch / heads], Tile::kKeys);
      }
    });
    double all = 0;
    for (double x : steps) all += x;
    return *std::max_element(steps.begin(), steps.end()) * blocks / all;
  }
};

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::istringstream text(argv[i]);
    Case each;
    text >> each.heads >> each.queries >> each.keys;
    for (int64_t x; text >> x;) each.left.push_back(x);
    std::printf("%.4f %.4f\n", each.busiest(false), each.busiest(true));
  }
}
