// Rotary: rule Test, for the CPU.
#include "include/dims.h"
#include "include/scalar.h"
#include "cpu/loop.h"
#include "ort/op.h"

namespace {
using namespace fusion;
using namespace fusion::cpu;

// stage_0: RotaryEmbedding
template <bool kUnit>
FUSION_FN void stage_0_body(const int64_t* at, const int64_t* step, int64_t n, const float* x0, const float* x1, const float* x2, const float* x3, float* y0, float* y1) {
  x0 += at[0];
  x1 += at[1];
  x2 += at[2];
  x3 += at[3];
  y0 += at[4];
  y1 += at[5];
  const int64_t step_x0 = kUnit ? 1 : step[0];
  const int64_t step_x1 = kUnit ? 1 : step[1];
  const int64_t step_x2 = kUnit ? 1 : step[2];
  const int64_t step_x3 = kUnit ? 1 : step[3];
  const int64_t step_y0 = kUnit ? 1 : step[4];
  const int64_t step_y1 = kUnit ? 1 : step[5];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float v0 = x0[i * step_x0];
    const float v1 = x1[i * step_x1];
    const float v2 = v0 * v1;
    const float v3 = x2[i * step_x2];
    const float v4 = x3[i * step_x3];
    const float v5 = v3 * v4;
    const float v6 = v2 - v5;
    const float v7 = v3 * v1;
    const float v8 = v0 * v4;
    const float v9 = v7 + v8;
    store(y0 + i * step_y0, v6);
    store(y1 + i * step_y1, v9);
  }
}
void stage_0_unit(const int64_t* at, const int64_t* step, int64_t n, const float* x0, const float* x1, const float* x2, const float* x3, float* y0, float* y1) {
  stage_0_body<true>(at, step, n, x0, x1, x2, x3, y0, y1);
}
void stage_0_any(const int64_t* at, const int64_t* step, int64_t n, const float* x0, const float* x1, const float* x2, const float* x3, float* y0, float* y1) {
  stage_0_body<false>(at, step, n, x0, x1, x2, x3, y0, y1);
}
void stage_0(const Run& run, const Ints& space, const Array<float>& x0, const Array<float>& x1, const Array<float>& x2, const Array<float>& x3, const Array<float>& y0, const Array<float>& y1) {
  const Loop<6> loop(space, {strides_over(space, x0), strides_over(space, x1), strides_over(space, x2), strides_over(space, x3), strides_over(space, y0), strides_over(space, y1)}, false);
  const bool unit = loop.fits({1, 1, 1, 1, 1, 1});
  const auto walk = !unit ? stage_0_any : stage_0_unit;
  const int64_t block = loop.length();
  parallel(run, loop.total(), 3276, [&](int64_t begin, int64_t end) {
    loop.spans(begin, end, block, [&](const int64_t* at, int64_t n) {
      walk(at, loop.inner(), n, x0.data, x1.data, x2.data, x3.data, y0.data, y1.data);
    });
  });
}


constexpr Port kInputs[] = {{1, false}, {1, false}, {1, false}};
constexpr Port kOutputs[] = {{1, false}};

struct Kernel {
  Kernel(const Api& api, const OrtKernelInfo* info) {}

  void compute(Run& run) {
    const Ints h0 = run.dims(0, Ints{-1, 3, -1, 8});
    const Ints h1 = run.dims(1, Ints{-1, -1, 4});
    const Ints h2 = run.dims(2, Ints{-1, -1, 4});
    const Ints h3 = host::unsqueeze(h1, Ints{1});
    const Ints h4 = host::unsqueeze(h2, Ints{1});
    const Ints h5 = Ints{4};
    const Ints h6 = host::put(h0, h5, Ints{3});
    const Ints h7 = Ints{0, 0, 0, 0};
    const Ints h8 = Ints{1, 1, 1, 1};
    const Ints h9 = Ints{0, 0, 0, 4};
    const Ints h10 = Ints{8};
    const Ints h11 = host::put(h0, h10, Ints{3});
    const auto t0 = array<float>(run.input(0), h0);
    const auto t1 = array<float>(run.input(1), h1);
    const auto t2 = array<float>(run.input(2), h2);
    const auto t3 = array<float>(run.output(0, h11), h11);
    const auto t4 = part(t0, h6, h7, h8);
    const auto t5 = reshaped(t1, h3);
    const auto t6 = part(t0, h6, h9, h8);
    const auto t7 = reshaped(t2, h4);
    const auto t8 = part(t3, h6, h7, h8);
    const auto t9 = part(t3, h6, h9, h8);
    stage_0(run, h6, t4, t5, t6, t7, t8, t9);
  }
};
}  // namespace

FUSION_OP(Rotary, "CPUExecutionProvider", kInputs, kOutputs, Kernel)
