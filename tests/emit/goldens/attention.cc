// Attention: rule Test, for the CPU.
#include "include/dims.h"
#include "include/scalar.h"
#include "cpu/loop.h"
#include "cpu/attention.h"
#include "ort/op.h"

namespace {
using namespace fusion;
using namespace fusion::cpu;

// stage_0: MatMul, Mul, Where, Softmax, IsNaN
template <bool kUnit>
FUSION_FN void stage_0_body(const int64_t* at, const int64_t* step, int64_t n, float* acc, const bool* x3) {
  x3 += at[1];
  const int64_t step_x3 = kUnit ? 1 : step[1];
  float* k3 = thread_row<float>(0, n);
  float* k6 = thread_row<float>(1, n);
  int bad4 = 0; float r4 = lowest<float>();
#pragma omp simd reduction(max : r4) reduction(| : bad4)
  for (int64_t i = 0; i < n; ++i) {
    const float v0 = acc[i] * 0.25f;
    const bool v1 = x3[i * step_x3];
    const float v3 = v1 ? v0 : (-fusion::inf<float>());
    k3[i] = v3;
    r4 = v3 > r4 ? v3 : r4; bad4 |= is_nan(v3);
  }
  const float v4 = bad4 ? nan<float>() : r4;
  float r7 = 0;
#pragma omp simd reduction(+ : r7)
  for (int64_t i = 0; i < n; ++i) {
    const float v5 = k3[i] - v4;
    const float v6 = fusion::exp(v5);
    k6[i] = v6;
    r7 += v6;
  }
  const float v7 = r7;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float v8 = fusion::div(k6[i], v7);
    const bool v9 = fusion::is_nan(v8);
    const float v11 = v9 ? 0.0f : v8;
    store(acc + i, v11);
  }
}
void stage_0_unit(const int64_t* at, const int64_t* step, int64_t n, float* acc, const bool* x3) {
  stage_0_body<true>(at, step, n, acc, x3);
}
FUSION_WIDE void stage_0_wide(const int64_t* at, const int64_t* step, int64_t n, float* acc, const bool* x3) {
  stage_0_body<true>(at, step, n, acc, x3);
}
void stage_0_any(const int64_t* at, const int64_t* step, int64_t n, float* acc, const bool* x3) {
  stage_0_body<false>(at, step, n, acc, x3);
}
void stage_0_rows(const Run& run, const Ints& space, float* scores, int64_t first, int64_t last, const Array<bool>& x3) {
  const Loop<2> loop(space, {contiguous(space), strides_over(space, x3)}, true);
  const bool unit = loop.fits({1, 1});
  const auto walk = !unit ? stage_0_any : has_wide_vectors() ? stage_0_wide : stage_0_unit;
  const int64_t n = loop.length();
  parallel(run, last - first, 1365 / std::max(n, int64_t(1)), [&](int64_t begin, int64_t end) {
    float* acc = scores + begin * n;
    loop.each_row(first + begin, first + end, [&](const int64_t* at) {
      walk(at, loop.inner(), n, acc, x3.data);
      acc += n;
    });
  });
}

constexpr Port kInputs[] = {{1, false}, {1, false}, {9, false}, {1, false}};
constexpr Port kOutputs[] = {{1, false}};

struct Kernel {
  Kernel(const Api& api, const OrtKernelInfo* info) : product_0(api, info, 1, false, true), values_0(api, info, 1, false, false) {}

  void compute(Run& run) {
    const Ints h0 = run.dims(0, Ints{-1, 4, -1, 16});
    const Ints h1 = host::permute(h0, Ints{0, 1, 3, 2});
    const Ints h2 = run.dims(1, Ints{-1, 4, -1, 16});
    const Ints h3 = host::matmul(h2, h1);
    const Ints h4 = run.dims(2, Ints{-1, 1, -1, -1});
    const Ints h5 = run.dims(3, Ints{-1, 4, -1, 16});
    const Ints h6 = host::matmul(h3, h5);
    const auto t0 = array<float>(run.input(0), h0);
    const auto t1 = array<float>(run.input(1), h2);
    const auto t2 = array<bool>(run.input(2), h4);
    const auto t3 = array<float>(run.input(3), h5);
    const auto t4 = array<float>(run.output(0, h6), h6);
    attention(run, product_0, values_0, h6, t1, Ints{}, t0, Ints{}, t3, Ints{}, t4, Ints{},
              [&](float* scores, int64_t first, int64_t last) {
                Ints space = h6;
                space[space.size() - 1] = t3.dims.at(-2);
                stage_0_rows(run, space, scores, first, last, t2);
              });
  }
  MatMul product_0;
  MatMul values_0;
};
}  // namespace

FUSION_OP(Attention, "CPUExecutionProvider", kInputs, kOutputs, Kernel)
