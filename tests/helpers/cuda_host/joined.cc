// Parts of rows put together: the largest error of rows of which so many blocks had keys, for every number given.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "include/attention_split.cuh"

namespace gpu = fusion::gpu;

constexpr int kRows = 3, kDepth = 40, kMost = 64;  // the rows' depth is less than what the kernel is compiled for

struct Program {
  static constexpr bool kBare = false;
};

double error(int count) {
  std::mt19937 random(count);
  std::normal_distribution<float> normal;
  std::vector<float> parts((kDepth + 2) * kRows * count), out(kRows * kDepth);
  gpu::AttentionShape s{};
  s.keys = 128 * count, s.value_depth = kDepth, s.out_column = 1;
  gpu::KeySplit split{parts.data(), nullptr, count, 128};
  cuda_host::launch(1, 32 * kRows, 0, nullptr, [&] {
    const int row = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x == 0) {
      for (float& x : parts) x = normal(random);
      // Of some, all keys are hidden; the highest score may be anywhere.
      for (int i = 0; i < count; ++i) {
        for (int r = 0; r < kRows; ++r) {
          const bool hidden = i != r % count && i % 3 == 2;
          *split.mark(i, r, kRows) = {hidden ? -INFINITY : 4 * normal(random), hidden ? 0.0f : 1 + std::fabs(normal(random))};
          for (int c = 0; hidden && c < kDepth; ++c) split.values(i, r, kRows, s)[c] = 0.0f;
        }
      }
    }
    __syncthreads();
    gpu::join_row<gpu::Prob::kIdentity, Program, kMost>(split, row, kRows, s,
                                                        [&](int r) { return out.data() + r * kDepth; });
  });
  double worst = 0;
  cuda_host::launch(1, 1, 0, nullptr, [&] {
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kDepth; ++c) {
        double sum = 0, value = 0;
        for (int i = 0; i < count; ++i) {
          const double weight = std::exp(double{split.mark(i, r, kRows)->top});
          sum += weight * split.mark(i, r, kRows)->sum, value += weight * split.values(i, r, kRows, s)[c];
        }
        worst = std::fmax(worst, std::fabs(out[r * kDepth + c] - value / sum));
      }
    }
  });
  return worst;
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) std::printf("%.3g\n", error(std::atoi(argv[i])));
}
