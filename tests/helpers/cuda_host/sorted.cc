// How many blocks look at masks and keys before Hopper's attention: of every case "by_key firm keys", for 2 batches of 3 heads
// of 300 queries that share a mask.
#include <cstdio>
#include <cstdlib>

#include "include/attention_walk.cuh"

namespace gpu = fusion::gpu;

int main(int argc, char** argv) {
  for (int i = 1; i + 2 < argc; i += 3) {
    const bool by_key = std::atoi(argv[i]) != 0, firm = std::atoi(argv[i + 1]) != 0;
    const int64_t keys = std::atoll(argv[i + 2]);
    gpu::View views[5];
    for (gpu::View& x : views) {
      x.rank = 4;
      const int64_t size[] = {2, 3, 300, 64}, stride[] = {57600, 19200, 64, 1};
      for (int d = 0; d < 4; ++d) x.size[d] = size[d], x.stride[d] = stride[d];
    }
    views[4].size[1] = 1, views[4].size[3] = keys, views[4].stride[0] = keys, views[4].stride[2] = by_key ? 0 : keys;
    gpu::AttentionShape s{};
    s.queries = 300, s.keys = keys;
    const auto found = gpu::sorted_spaces({2, 3, 300, 64}, views, s, by_key, firm, nullptr);
    std::printf("%lld\n", static_cast<long long>(found.blocks));
  }
}
