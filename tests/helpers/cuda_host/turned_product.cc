// Hopper's kernel for products of float32 by constants that are turned: how many results are wrong.
#include <cstdio>

#include "added_matrix.h"
#include "cuda_runtime.h"
#include "include/linear_wgmma.cuh"
#include "include/turned.cuh"
#include "rounded_products.h"

namespace gpu = fusion::gpu;

template <class Tile, bool kTransB, int kProducts>
int wrong(int rows, int depth, const int (&columns)[kProducts], unsigned grid) {
  RoundedProducts<kTransB, kProducts> made(rows, depth, columns);
  std::vector<float> turned[kProducts];
  gpu::WideOperands<1, kProducts> x;
  x.rows = rows, x.depth = depth * 2, x.early = kTransB, x.once = x.fills = kTransB;
  if (!gpu::describe_left<Tile>(x, made.left.data(), x.depth)) return 1;
  AddedMatrix<float> epilogues[kProducts];
  for (int p = 0; p < kProducts; ++p) {
    const int n = x.columns[p] = columns[p];
    turned[p].assign(depth * n, -1e9f);
    const gpu::Product product{rows, n, depth, depth, 1, kTransB ? 1 : n, kTransB ? depth : 1, 1.0f};
    cuda_host::launch((n + 31) / 32 * ((depth + 31) / 32), gpu::kRoundingThreads, 0, nullptr,
                      [&] { gpu::turn_and_round<gpu::kRoundingThreads>(made.right[p].data(), turned[p].data(), product); });
    x.right[p][0] = gpu::host_map(turned[p].data(), n, depth * 2, depth * 2, gpu::kPanel);
    epilogues[p] = {made.bias.data(), made.matrix.data(), made.out[p].data(), n};
  }
  x.order = gpu::tile_order<Tile>(rows, x.columns);
  cuda_host::launch(grid, Tile::kThreads, Tile::kBytes, nullptr, [&] {
    if constexpr (kProducts == 1) gpu::linear_wgmma<float, Tile, true>(x, epilogues[0]);
    else gpu::linear_wgmma<float, Tile, true>(x, epilogues[0], epilogues[1]);
  });
  return made.wrong();
}

// Inputs of an operator that are constants or not.
int wrongly_kept() {
  static int says = 1;
  const auto cut = [](float x) { return cuda_host::cut(fusion::bit_cast<uint32_t>(x)); };  // as the product does
  OrtApi table{};
  const auto constant = [](const OrtKernelInfo*, size_t, int* is, const OrtValue**) { return *is = says, static_cast<OrtStatus*>(nullptr); };
  OrtStatus* (*const function)(const OrtKernelInfo*, size_t, int*, const OrtValue**) = constant;
  table.slot[249] = reinterpret_cast<void (*)()>(function);
  const fusion::Api api(&table);
  std::vector<float> data(64 * 40);
  for (int i = 0; i < 64 * 40; ++i) data[i] = (i % 7 + 1) * (1 - 1 / 1048576.0f);
  const gpu::Product p{64, 40, 64, 64, 1, 40, 1, 1.0f};
  gpu::Turned turned(api, nullptr, 0), short_of_memory(api, nullptr, 0);
  const float* const kept = turned.get(data.data(), p, nullptr);
  int wrong = kept == nullptr;
  for (int k = 0; k < 64; ++k)
    for (int c = 0; c < 40; ++c) wrong += cut(kept[c * 64 + k]) != (k * 40 + c) % 7 + 1;
  data[0] = 100;
  wrong += turned.get(data.data(), p, nullptr) != kept || cut(kept[0]) != 1;  // made once
  gpu::Product other = p;
  other.k = 32;
  wrong += turned.get(data.data(), other, nullptr) != nullptr || turned.get(data.data() + 8, p, nullptr) != nullptr;
  cuda_host_free /= 5;
  wrong += short_of_memory.get(data.data(), p, nullptr) != nullptr || turned.get(data.data(), p, nullptr) != kept;
  cuda_host_free *= 5;
  says = 0;
  gpu::Turned input(api, nullptr, 0);
  return wrong + (input.get(data.data(), p, nullptr) != nullptr);
}

int main() {
  gpu::have_driver();
  const int odd[] = {200}, wide[] = {328}, two[] = {72, 200};
  int all = wrongly_kept();
  gpu::FloatTiles<1>::each([&](auto tile) {
    using Tile = decltype(tile);
    if constexpr (Tile::kShares) return;  // see shared_product.cc
    all += wrong<Tile, false>(77, 100, odd, 1) + wrong<Tile, true>(77, 36, odd, 1);
    all += wrong<Tile, false>(260, 68, wide, 2) + wrong<Tile, true>(140, 200, odd, 2);
    all += wrong<Tile, false>(140, 68, two, 2);
  });
  std::printf("%d\n", all);
}
