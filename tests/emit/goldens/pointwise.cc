// Pointwise: rule Test, for the CPU.
#include "include/dims.h"
#include "include/scalar.h"
#include "cpu/loop.h"
#include "ort/op.h"

namespace {
using namespace fusion;
using namespace fusion::cpu;

// stage_0: Add, Sigmoid, Mul, Where, Cast
template <bool kUnit>
FUSION_FN void stage_0_body(const int64_t* at, const int64_t* step, int64_t n, const fusion::half* x0, const fusion::half* x1, const fusion::half* x2, const bool* x3, fusion::half* y0, float* y1) {
  x0 += at[0];
  x1 += at[1];
  x2 += at[2];
  x3 += at[3];
  y0 += at[4];
  y1 += at[5];
  const int64_t step_x3 = kUnit ? 0 : step[3];
  const bool x3_first = *x3;
  float x0_wide[kBlock];
  widen(x0, step[0], n, x0_wide);
  float x1_wide[kBlock];
  widen(x1, step[1], n, x1_wide);
  float x2_wide[kBlock];
  widen(x2, step[2], n, x2_wide);
  float y0_wide[kBlock];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float v0 = x0_wide[i];
    const float v1 = x1_wide[i];
    const float v2 = v0 + v1;
    const float v3 = fusion::sigmoid(v2);
    const float v4 = x2_wide[i];
    const float v5 = v2 * v4;
    const bool v6 = kUnit ? x3_first : x3[i * step_x3];
    const float v7 = v6 ? v3 : v5;
    const float v8 = v5;
    store(y0_wide + i, v7);
    store(y1 + i, v8);
  }
  narrow(y0_wide, n, y0);
}
void stage_0_unit(const int64_t* at, const int64_t* step, int64_t n, const fusion::half* x0, const fusion::half* x1, const fusion::half* x2, const bool* x3, fusion::half* y0, float* y1) {
  stage_0_body<true>(at, step, n, x0, x1, x2, x3, y0, y1);
}
FUSION_WIDE void stage_0_wide(const int64_t* at, const int64_t* step, int64_t n, const fusion::half* x0, const fusion::half* x1, const fusion::half* x2, const bool* x3, fusion::half* y0, float* y1) {
  stage_0_body<true>(at, step, n, x0, x1, x2, x3, y0, y1);
}
void stage_0_any(const int64_t* at, const int64_t* step, int64_t n, const fusion::half* x0, const fusion::half* x1, const fusion::half* x2, const bool* x3, fusion::half* y0, float* y1) {
  stage_0_body<false>(at, step, n, x0, x1, x2, x3, y0, y1);
}
void stage_0(const Run& run, const Ints& space, const Array<fusion::half>& x0, const Array<fusion::half>& x1, const Array<fusion::half>& x2, const Array<bool>& x3, const Array<fusion::half>& y0, const Array<float>& y1) {
  const Loop<6> loop(space, {strides_over(space, x0), strides_over(space, x1), strides_over(space, x2, Ints{1, 2, 0}), strides_over(space, x3), contiguous(space), contiguous(space)}, false);
  const bool unit = loop.fits({1, 1, -1, 0, 1, 1});
  const auto walk = !unit ? stage_0_any : has_wide_vectors() ? stage_0_wide : stage_0_unit;
  const int64_t block = kBlock;
  parallel(run, loop.total(), 1638, [&](int64_t begin, int64_t end) {
    loop.spans(begin, end, block, [&](const int64_t* at, int64_t n) {
      walk(at, loop.inner(), n, x0.data, x1.data, x2.data, x3.data, y0.data, y1.data);
    });
  });
}


constexpr Port kInputs[] = {{10, false}, {10, false}, {10, false}, {9, false}};
constexpr Port kOutputs[] = {{10, false}, {1, false}};

struct Kernel {
  Kernel(const Api& api, const OrtKernelInfo* info) {}

  void compute(Run& run) {
    const Ints h0 = run.dims(0, Ints{8, -1, -1});
    const Ints h1 = run.dims(1, Ints{-1, -1, 8});
    const Ints h2 = run.dims(2, Ints{8});
    const Ints h3 = run.dims(3, Ints{-1, 1});
    const auto t0 = array<fusion::half>(run.input(0), h0);
    const auto t1 = array<fusion::half>(run.input(1), h1);
    const auto t2 = array<fusion::half>(run.input(2), h2);
    const auto t3 = array<bool>(run.input(3), h3);
    const auto t4 = array<fusion::half>(run.output(0, h1), h1);
    const auto t5 = array<float>(run.output(1, h1), h1);
    stage_0(run, h1, t1, t2, t0, t3, t4, t5);
  }
};
}  // namespace

FUSION_OP(Pointwise, "CPUExecutionProvider", kInputs, kOutputs, Kernel)
