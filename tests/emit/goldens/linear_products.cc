// LinearProducts: rule Test, for the CPU.
#include "include/dims.h"
#include "include/scalar.h"
#include "cpu/loop.h"
#include "cpu/vendor.h"
#include "ort/op.h"

namespace {
using namespace fusion;
using namespace fusion::cpu;

// stage_0: MatMul, Sigmoid, Mul
template <bool kUnit>
FUSION_FN void stage_0_body(const int64_t* at, const int64_t* step, int64_t n, float* acc, float* y0) {
  acc += at[0];
  y0 += at[1];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float v0 = acc[i];
    const float v1 = fusion::sigmoid(v0);
    const float v2 = v0 * v1;
    store(y0 + i, v2);
  }
}
void stage_0_unit(const int64_t* at, const int64_t* step, int64_t n, float* acc, float* y0) {
  stage_0_body<true>(at, step, n, acc, y0);
}
FUSION_WIDE void stage_0_wide(const int64_t* at, const int64_t* step, int64_t n, float* acc, float* y0) {
  stage_0_body<true>(at, step, n, acc, y0);
}
void stage_0_any(const int64_t* at, const int64_t* step, int64_t n, float* acc, float* y0) {
  stage_0_body<false>(at, step, n, acc, y0);
}
void stage_0(const Run& run, const Ints& space, float* acc, const Array<float>& y0) {
  const Loop<2> loop(space, {contiguous(space), contiguous(space)}, false);
  const bool unit = loop.fits({1, 1});
  const auto walk = !unit ? stage_0_any : has_wide_vectors() ? stage_0_wide : stage_0_unit;
  const int64_t block = loop.length();
  parallel(run, loop.total(), 2340, [&](int64_t begin, int64_t end) {
    loop.spans(begin, end, block, [&](const int64_t* at, int64_t n) {
      walk(at, loop.inner(), n, acc, y0.data);
    });
  });
}


// stage_1: MatMul, Mul
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
    const float v2 = v1 * v0;
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


constexpr Port kInputs[] = {{1, false}, {1, false}, {1, false}, {1, false}};
constexpr Port kOutputs[] = {{1, false}};

struct Kernel {
  Kernel(const Api& api, const OrtKernelInfo* info) : product_0(api, info, 1, false, false), product_1(api, info, 1, false, false), product_2(api, info, 1, false, false) {}

  void compute(Run& run) {
    const Ints h0 = run.dims(0, Ints{-1, -1, 32});
    const Ints h1 = run.dims(1, Ints{32, 64});
    const Ints h2 = host::matmul(h0, h1);
    const Ints h3 = run.dims(2, Ints{32, 64});
    const Ints h4 = host::matmul(h0, h3);
    const Ints h5 = run.dims(3, Ints{64, 32});
    const Ints h6 = host::matmul(h2, h5);
    void* const buffer0 = run.scratch(std::max<size_t>({bytes<float>(h2)}));
    void* const buffer1 = run.scratch(std::max<size_t>({bytes<float>(h2)}));
    const auto t0 = array<float>(run.input(0), h0);
    const auto t1 = array<float>(run.input(1), h1);
    const auto t2 = array<float>(run.input(2), h3);
    const auto t3 = array<float>(run.input(3), h5);
    const auto t4 = array<float>(run.output(0, h6), h6);
    const auto t5 = array<float>(buffer0, h2);
    const auto t6 = array<float>(buffer1, h2);
    {
      const Array<float> acc{t5.data, h2};
      product_0(run, dense<float>(run, t0), dense<float>(run, t1), acc);
      stage_0(run, h2, acc.data, t5);
    }
    {
      const Array<float> acc{t6.data, h4};
      product_1(run, dense<float>(run, t0), dense<float>(run, t2), acc);
      stage_1(run, h4, acc.data, t5, t6);
    }
    {
      const Array<float> acc{t4.data, h6};
      product_2(run, dense<float>(run, t6), dense<float>(run, t3), acc);
    }
  }
  MatMul product_0;
  MatMul product_1;
  MatMul product_2;
};
}  // namespace

FUSION_OP(LinearProducts, "CPUExecutionProvider", kInputs, kOutputs, Kernel)
