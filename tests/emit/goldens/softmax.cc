// Softmax: rule Test, for the CPU.
#include "include/dims.h"
#include "include/scalar.h"
#include "cpu/loop.h"
#include "ort/op.h"

namespace {
using namespace fusion;
using namespace fusion::cpu;

// stage_0: Add, Softmax
template <bool kUnit>
FUSION_FN void stage_0_body(const int64_t* at, const int64_t* step, int64_t n, const float* x0, const float* x1, float* y0) {
  x0 += at[0];
  x1 += at[1];
  y0 += at[2];
  const int64_t step_x0 = kUnit ? 1 : step[0];
  const int64_t step_x1 = kUnit ? 1 : step[1];
  float* k2 = thread_row<float>(0, n);
  float* k5 = thread_row<float>(1, n);
  int bad3 = 0; float r3 = lowest<float>();
#pragma omp simd reduction(max : r3) reduction(| : bad3)
  for (int64_t i = 0; i < n; ++i) {
    const float v0 = x0[i * step_x0];
    const float v1 = x1[i * step_x1];
    const float v2 = v0 + v1;
    k2[i] = v2;
    r3 = v2 > r3 ? v2 : r3; bad3 |= is_nan(v2);
  }
  const float v3 = bad3 ? nan<float>() : r3;
  float r6 = 0;
#pragma omp simd reduction(+ : r6)
  for (int64_t i = 0; i < n; ++i) {
    const float v4 = k2[i] - v3;
    const float v5 = fusion::exp(v4);
    k5[i] = v5;
    r6 += v5;
  }
  const float v6 = r6;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float v7 = fusion::div(k5[i], v6);
    store(y0 + i, v7);
  }
}
void stage_0_unit(const int64_t* at, const int64_t* step, int64_t n, const float* x0, const float* x1, float* y0) {
  stage_0_body<true>(at, step, n, x0, x1, y0);
}
FUSION_WIDE void stage_0_wide(const int64_t* at, const int64_t* step, int64_t n, const float* x0, const float* x1, float* y0) {
  stage_0_body<true>(at, step, n, x0, x1, y0);
}
void stage_0_any(const int64_t* at, const int64_t* step, int64_t n, const float* x0, const float* x1, float* y0) {
  stage_0_body<false>(at, step, n, x0, x1, y0);
}
void stage_0(const Run& run, const Ints& space, const Array<float>& x0, const Array<float>& x1, const Array<float>& y0) {
  const Loop<3> loop(space, {strides_over(space, x0), strides_over(space, x1), contiguous(space)}, true);
  const bool unit = loop.fits({1, 1, 1});
  const auto walk = !unit ? stage_0_any : has_wide_vectors() ? stage_0_wide : stage_0_unit;
  const int64_t n = loop.length();
  parallel(run, loop.rows(), 1638 / std::max(n, int64_t(1)), [&](int64_t begin, int64_t end) {
    loop.each_row(begin, end, [&](const int64_t* at) {
      walk(at, loop.inner(), n, x0.data, x1.data, y0.data);
    });
  });
}

constexpr Port kInputs[] = {{1, false}, {1, false}};
constexpr Port kOutputs[] = {{1, false}};

struct Kernel {
  Kernel(const Api& api, const OrtKernelInfo* info) {}

  void compute(Run& run) {
    const Ints h0 = run.dims(0, Ints{-1, -1, -1, -1});
    const Ints h1 = run.dims(1, Ints{-1, 1, 1, -1});
    const auto t0 = array<float>(run.input(0), h0);
    const auto t1 = array<float>(run.input(1), h1);
    const auto t2 = array<float>(run.output(0, h0), h0);
    stage_0(run, h0, t0, t1, t2);
  }
};
}  // namespace

FUSION_OP(Softmax, "CPUExecutionProvider", kInputs, kOutputs, Kernel)
