// LinearHorizontal: rule Test, for the CPU.
#include "include/dims.h"
#include "include/scalar.h"
#include "cpu/loop.h"
#include "cpu/vendor.h"
#include "ort/op.h"

namespace {
using namespace fusion;
using namespace fusion::cpu;

// stage_0: LayerNormalization
template <bool kUnit>
FUSION_FN void stage_0_body(const int64_t* at, const int64_t* step, int64_t n, const float* x0, const float* x1, float* y0) {
  x0 += at[0];
  x1 += at[1];
  y0 += at[2];
  const int64_t step_x0 = kUnit ? 1 : step[0];
  const int64_t step_x1 = kUnit ? 1 : step[1];
  float* k2 = thread_row<float>(0, n);
  float r1 = 0;
#pragma omp simd reduction(+ : r1)
  for (int64_t i = 0; i < n; ++i) {
    const float v0 = x0[i * step_x0];
    r1 += v0;
  }
  const float v1 = r1 / float(n);
  float r4 = 0;
#pragma omp simd reduction(+ : r4)
  for (int64_t i = 0; i < n; ++i) {
    const float v0 = x0[i * step_x0];
    const float v2 = v0 - v1;
    const float v3 = v2 * v2;
    k2[i] = v2;
    r4 += v3;
  }
  const float v4 = r4 / float(n);
  const float v6 = v4 + 1e-05f;
  const float v7 = fusion::sqrt(v6);
  const float v8 = fusion::reciprocal(v7);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float v9 = k2[i] * v8;
    const float v10 = x1[i * step_x1];
    const float v11 = v9 * v10;
    store(y0 + i, v11);
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
  parallel(run, loop.rows(), 2730 / std::max(n, int64_t(1)), [&](int64_t begin, int64_t end) {
    loop.each_row(begin, end, [&](const int64_t* at) {
      walk(at, loop.inner(), n, x0.data, x1.data, y0.data);
    });
  });
}

// stage_1: MatMul, Add
template <bool kUnit>
FUSION_FN void stage_1_body(const int64_t* at, const int64_t* step, int64_t n, float* acc, const float* x2, float* y0) {
  acc += at[0];
  x2 += at[1];
  y0 += at[2];
  const int64_t step_x2 = kUnit ? 1 : step[1];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float v0 = acc[i];
    const float v1 = x2[i * step_x2];
    const float v2 = v0 + v1;
    store(y0 + i, v2);
  }
}
void stage_1_unit(const int64_t* at, const int64_t* step, int64_t n, float* acc, const float* x2, float* y0) {
  stage_1_body<true>(at, step, n, acc, x2, y0);
}
void stage_1_any(const int64_t* at, const int64_t* step, int64_t n, float* acc, const float* x2, float* y0) {
  stage_1_body<false>(at, step, n, acc, x2, y0);
}
void stage_1(const Run& run, const Ints& space, float* acc, const Array<float>& x2, const Array<float>& y0) {
  const Loop<3> loop(space, {contiguous(space), strides_over(space, x2), contiguous(space)}, false);
  const bool unit = loop.fits({1, 1, 1});
  const auto walk = !unit ? stage_1_any : stage_1_unit;
  const int64_t block = loop.length();
  parallel(run, loop.total(), 10922, [&](int64_t begin, int64_t end) {
    loop.spans(begin, end, block, [&](const int64_t* at, int64_t n) {
      walk(at, loop.inner(), n, acc, x2.data, y0.data);
    });
  });
}


// stage_2: MatMul


constexpr Port kInputs[] = {{1, false}, {1, false}, {1, false}, {1, false}, {1, false}, {1, false}};
constexpr Port kOutputs[] = {{1, false}, {1, false}, {1, false}};

struct Kernel {
  Kernel(const Api& api, const OrtKernelInfo* info) : product_1(api, info, 1, false, false), product_2(api, info, 1, false, false), product_3(api, info, 1, false, false) {}

  void compute(Run& run) {
    const Ints h0 = run.dims(0);
    const Ints h1 = run.dims(1);
    const Ints h2 = run.dims(2);
    const Ints h3 = host::matmul(h0, h2);
    const Ints h4 = run.dims(4);
    const Ints h5 = host::matmul(h0, h4);
    const Ints h6 = run.dims(5);
    const Ints h7 = host::matmul(h0, h6);
    const Ints h8 = run.dims(3);
    void* const buffer0 = run.scratch(std::max<size_t>({bytes<float>(h0)}));
    const auto t0 = array<float>(run.input(0), h0);
    const auto t1 = array<float>(run.input(1), h1);
    const auto t2 = array<float>(run.input(2), h2);
    const auto t3 = array<float>(run.input(3), h8);
    const auto t4 = array<float>(run.input(4), h4);
    const auto t5 = array<float>(run.input(5), h6);
    const auto t6 = array<float>(run.output(0, h3), h3);
    const auto t7 = array<float>(run.output(1, h5), h5);
    const auto t8 = array<float>(run.output(2, h7), h7);
    const auto t9 = array<float>(buffer0, h0);
    stage_0(run, h0, t0, t1, t9);
    {
      const Array<float> acc{t6.data, h3};
      product_1(run, dense<float>(run, t9), dense<float>(run, t2), acc);
      stage_1(run, h3, acc.data, t3, t6);
    }
    {
      const Array<float> acc{t7.data, h5};
      product_2(run, dense<float>(run, t9), dense<float>(run, t4), acc);
    }
    {
      const Array<float> acc{t8.data, h7};
      product_3(run, dense<float>(run, t9), dense<float>(run, t5), acc);
      stage_1(run, h7, acc.data, t3, t8);
    }
  }
  MatMul product_1;
  MatMul product_2;
  MatMul product_3;
};
}  // namespace

FUSION_OP(LinearHorizontal, "CPUExecutionProvider", kInputs, kOutputs, Kernel)
