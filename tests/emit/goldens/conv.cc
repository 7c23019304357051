// Conv: rule Test, for the CPU.
#include "include/dims.h"
#include "include/scalar.h"
#include "cpu/loop.h"
#include "cpu/vendor.h"
#include "ort/op.h"

namespace {
using namespace fusion;
using namespace fusion::cpu;

// stage_0: Conv, HardSwish
template <bool kUnit>
FUSION_FN void stage_0_body(const int64_t* at, const int64_t* step, int64_t n, float* acc, float* y0) {
  acc += at[0];
  y0 += at[1];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float v0 = acc[i];
    const float v2 = v0 * 0.166666667f;
    const float v4 = v2 + 0.5f;
    const float v6 = fusion::max(v4, 0.0f);
    const float v8 = fusion::min(v6, 1.0f);
    const float v9 = v0 * v8;
    store(y0 + i, v9);
  }
}
void stage_0_unit(const int64_t* at, const int64_t* step, int64_t n, float* acc, float* y0) {
  stage_0_body<true>(at, step, n, acc, y0);
}
void stage_0_any(const int64_t* at, const int64_t* step, int64_t n, float* acc, float* y0) {
  stage_0_body<false>(at, step, n, acc, y0);
}
void stage_0(const Run& run, const Ints& space, float* acc, const Array<float>& y0) {
  const Loop<2> loop(space, {contiguous(space), contiguous(space)}, false);
  const bool unit = loop.fits({1, 1});
  const auto walk = !unit ? stage_0_any : stage_0_unit;
  const int64_t block = loop.length();
  parallel(run, loop.total(), 3276, [&](int64_t begin, int64_t end) {
    loop.spans(begin, end, block, [&](const int64_t* at, int64_t n) {
      walk(at, loop.inner(), n, acc, y0.data);
    });
  });
}


// stage_1: Conv, Add
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


constexpr Port kInputs[] = {{1, false}, {1, false}, {1, false}, {1, false}};
constexpr Port kOutputs[] = {{1, false}};

struct Kernel {
  Kernel(const Api& api, const OrtKernelInfo* info) : product_0(api, info, 1, true, false, fusion::Ints{1, 1}, fusion::Ints{}, fusion::Ints{1, 1}, 8, "SAME_UPPER"), product_1(api, info, 1, false, false, fusion::Ints{1, 1}, fusion::Ints{0, 0, 0, 0}, fusion::Ints{1, 1}, 1, "NOTSET") {}

  void compute(Run& run) {
    const Ints h0 = run.dims(0, Ints{-1, 8, -1, -1});
    const Ints h1 = run.dims(1, Ints{8, 1, 3, 3});
    const Ints h2 = run.dims(2, Ints{8});
    const Ints h3 = host::conv(h0, h1, Ints{2, 1, 1, 0, 0, 0, 0, 1, 1, 2});
    const Ints h4 = run.dims(3, Ints{8, 8, 1, 1});
    const Ints h5 = host::conv(h3, h4, Ints{2, 1, 1, 0, 0, 0, 0, 1, 1, 0});
    void* const buffer0 = run.scratch(std::max<size_t>({bytes<float>(h3)}));
    const auto t0 = array<float>(run.input(0), h0);
    const auto t1 = array<float>(run.input(1), h1);
    const auto t2 = array<float>(run.input(2), h2);
    const auto t3 = array<float>(run.input(3), h4);
    const auto t4 = array<float>(run.output(0, h5), h5);
    const auto t5 = array<float>(buffer0, h3);
    {
      const Array<float> acc{t5.data, h3};
      product_0(run, std::vector<Array<float>>{dense<float>(run, t0), dense<float>(run, t1), dense<float>(run, t2)}, acc);
      stage_0(run, h3, acc.data, t5);
    }
    {
      const Array<float> acc{t4.data, h5};
      product_1(run, std::vector<Array<float>>{dense<float>(run, t5), dense<float>(run, t3)}, acc);
      stage_1(run, h5, acc.data, t0, t4);
    }
  }
  Conv product_0;
  Conv product_1;
};
}  // namespace

FUSION_OP(Conv, "CPUExecutionProvider", kInputs, kOutputs, Kernel)
