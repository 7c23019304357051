// Constant right operands of products of float32 as Hopper's tensor cores take them: contiguous along the depth, and rounded
// to TF32 already. They are kept beside the weights, which stay as they are.
#pragma once

#include "include/kept.cuh"
#include "include/wide_choice.cuh"
#include "ort/op.h"

namespace fusion::gpu {

constexpr int kRoundingThreads = 256;
constexpr double kFree = 0.25;  // of the GPU's memory stays so, or there are other kernels

// to[column, k] = from[k, column], rounded, 32 by 32 by each block.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) turn_and_round(const float* from, float* to, const Product p) {
  await_earlier();
  constexpr int kSide = 32;
  __shared__ float tile[kSide][kSide + 1];
  const int64_t across = (p.n + kSide - 1) / kSide;
  const int64_t column = blockIdx.x % across * kSide, depth = blockIdx.x / across * kSide;
  const int lane = threadIdx.x % kSide;
  const bool is_deep = p.b_k == 1;  // lanes read neighbours
  for (int i = threadIdx.x / kSide; i < kSide; i += kThreads / kSide) {
    const int c = is_deep ? i : lane, k = is_deep ? lane : i;
    if (column + c < p.n && depth + k < p.k) tile[c][k] = from[(depth + k) * p.b_k + (column + c) * p.b_column];
  }
  __syncthreads();
  for (int i = threadIdx.x / kSide; i < kSide; i += kThreads / kSide) {
    uint32_t one[] = {bit_cast<uint32_t>(tile[i][lane])};
    round_all(one);
    if (column + i < p.n && depth + lane < p.k) to[(column + i) * p.k + depth + lane] = bit_cast<float>(one[0]);
  }
}

// One input of an operator, turned on its first use if it is a constant.
class Turned {
 public:
  Turned(const Api& api, const OrtKernelInfo* info, int slot) : is_constant_(is_constant(api, info, slot)) {}

  // The right operand `b` of a product as [columns, depth]; none where it is no constant, or another part of one than the
  // first was, where memory is short, and while a CUDA graph is captured.
  const float* get(const float* b, const Product& p, cudaStream_t stream) {
    if (!is_constant_) return nullptr;
    const Part part{b, p.n, p.k, p.b_k, p.b_column};
    const size_t bytes = static_cast<size_t>(p.n) * static_cast<size_t>(p.k) * sizeof(float);
    const unsigned grid = grid_size(ceil_div(p.n, 32) * ceil_div(p.k, 32), "turn_and_round");
    const void* const kept = kept_.get(stream, bytes, kFree, [&](void* to) {
      part_ = part;
      launch(turn_and_round<kRoundingThreads>, grid, kRoundingThreads, 0, stream, "turn_and_round", b, static_cast<float*>(to), p);
    });
    return kept != nullptr && part == part_ ? static_cast<const float*>(kept) : nullptr;
  }

 private:
  // Inputs that are constants may be read in part.
  struct Part {
    const float* data;
    int64_t n, k, b_k, b_column;
    bool operator==(const Part& x) const {
      return data == x.data && n == x.n && k == x.k && b_k == x.b_k && b_column == x.b_column;
    }
  };

  const bool is_constant_;
  Part part_{};  // of what is kept, after which nobody changes it
  Kept kept_;
};

#if FUSION_HOPPER
// Describes products of one left operand by constants, each given as a stage's operands (a, b, p). False where they would
// take more than `most` cycles, or are not to be had.
template <int kChains, class... Operands>
bool describe_turned(const Device& device, cudaStream_t stream, double most, WideOperands<1, kChains>& x,
                     Turned* const (&right)[kChains], const Operands&... operands) {
  const Product products[] = {operands.p...};
  const float* const data[] = {operands.b...};
  if (products[0].m < kWideRows || products[0].k > INT32_MAX / 4) return false;
  x.rows = static_cast<int>(products[0].m), x.depth = static_cast<int>(products[0].k) * 2, x.early = true;
  for (int c = 0; c < kChains; ++c) x.columns[c] = static_cast<int>(products[c].n);
  if (fastest_tile<FloatTiles<1>>(device, true, x.rows, x.columns, x.depth).cycles > most) return false;
  for (int c = 0; c < kChains; ++c) {
    const float* const turned = right[c]->get(data[c], products[c], stream);
    if (turned == nullptr || !describe(x.right[c][0], turned, x.columns[c], x.depth, x.depth, kPanel)) return false;
  }
  return true;
}
#endif

}  // namespace fusion::gpu
