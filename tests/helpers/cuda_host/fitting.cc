// Which kernels take so many queries and keys, a line for each: those numbers, and whether that does which has one tile of keys at once,
// two, the rings of operands that are alike for all queries or not, the tiles that are walked, and that of few queries. With arguments:
// whether rows of so many columns that lie so far apart are read in pieces.
#include <cstdio>
#include <cstdlib>

#include "cuda_runtime.h"
#include "include/attention_decode.cuh"
#include "include/attention_ring.cuh"
#include "include/attention_short.cuh"
#include "include/attention_wgmma.cuh"

namespace gpu = fusion::gpu;

template <class... Kernels>
void tell(const gpu::AttentionShape& s) {
  const gpu::View x{2, {4, 64}, {64, 1}};
  std::printf("%d %d", static_cast<int>(s.queries), static_cast<int>(s.keys));
  (std::printf(" %d", Kernels::takes(s, x, x, x, {})), ...);
  std::printf(" %d\n", gpu::DecodeTile<64, 64>::takes(gpu::Device(), s, x, x, x, {}));
}

int main(int count, char** sizes) {
  if (count == 3) {
    std::printf("%d", gpu::in_pieces({2, {4, std::atoi(sizes[1])}, {std::atoi(sizes[2]), 1}}));
    return 0;
  }
  for (const int queries : {1, 16, 17, 64, 65, 128, 500, 4096})
    for (const int keys : {0, 1, 128, 129, 256, 257, 512, 513, 1024, 1025, 4096}) {
      gpu::AttentionShape shape{};
      shape.queries = queries, shape.keys = keys;
      tell<gpu::ShortAttention<64, 64, true, 1>, gpu::ShortAttention<64, 64, true, 2>, gpu::RingAttention<64, 64, true, true>,
           gpu::RingAttention<64, 64, true, false>, gpu::WarpgroupAttention<64, 64, true>>(shape);
    }
}
