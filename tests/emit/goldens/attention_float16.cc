// AttentionFloat16: rule Test, for the CPU.
#include "include/dims.h"
#include "include/scalar.h"
#include "cpu/loop.h"
#include "cpu/attention.h"
#include "ort/op.h"

namespace {
using namespace fusion;
using namespace fusion::cpu;

// stage_0: Attention
template <bool kUnit>
FUSION_FN void stage_0_body(const int64_t* at, const int64_t* step, int64_t n, float* acc) {
  const int64_t at_p1 = at[1], step_p1 = step[1];
  const int64_t at_p2 = at[2], step_p2 = step[2];
  float* k5 = thread_row<float>(0, n);
  float* k8 = thread_row<float>(1, n);
  const int64_t v2 = at_p2;
  int bad6 = 0; float r6 = lowest<float>();
#pragma omp simd reduction(max : r6) reduction(| : bad6)
  for (int64_t i = 0; i < n; ++i) {
    const float v0 = acc[i] * 0.125f;
    const int64_t v1 = at_p1 + i * step_p1;
    const bool v3 = v1 > v2;
    const float v5 = v3 ? (-fusion::inf<float>()) : v0;
    k5[i] = v5;
    r6 = v5 > r6 ? v5 : r6; bad6 |= is_nan(v5);
  }
  const float v6 = bad6 ? nan<float>() : r6;
  float r9 = 0;
#pragma omp simd reduction(+ : r9)
  for (int64_t i = 0; i < n; ++i) {
    const float v7 = k5[i] - v6;
    const float v8 = fusion::exp(v7);
    k8[i] = v8;
    r9 += v8;
  }
  const float v9 = r9;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float v10 = fusion::div(k8[i], v9);
    store(acc + i, v10);
  }
}
void stage_0_unit(const int64_t* at, const int64_t* step, int64_t n, float* acc) {
  stage_0_body<true>(at, step, n, acc);
}
FUSION_WIDE void stage_0_wide(const int64_t* at, const int64_t* step, int64_t n, float* acc) {
  stage_0_body<true>(at, step, n, acc);
}
void stage_0_any(const int64_t* at, const int64_t* step, int64_t n, float* acc) {
  stage_0_body<false>(at, step, n, acc);
}
void stage_0_rows(const Run& run, const Ints& space, float* scores, int64_t first, int64_t last) {
  const Loop<3> loop(space, {contiguous(space), strides_of_index(space, -1), strides_of_index(space, -2)}, true);
  const bool unit = loop.fits({1, -1, -1});
  const auto walk = !unit ? stage_0_any : has_wide_vectors() ? stage_0_wide : stage_0_unit;
  const int64_t n = loop.length();
  parallel(run, last - first, 1424 / std::max(n, int64_t(1)), [&](int64_t begin, int64_t end) {
    float* acc = scores + begin * n;
    loop.each_row(first + begin, first + end, [&](const int64_t* at) {
      walk(at, loop.inner(), n, acc);
      acc += n;
    });
  });
}

constexpr Port kInputs[] = {{10, false}, {10, false}, {10, false}};
constexpr Port kOutputs[] = {{10, false}};

struct Kernel {
  Kernel(const Api& api, const OrtKernelInfo* info) : product_0(api, info, 1, false, true), values_0(api, info, 1, false, false) {}

  void compute(Run& run) {
    const Ints h0 = run.dims(0, Ints{-1, 4, -1, 64});
    const Ints h1 = run.dims(1, Ints{-1, 4, -1, 64});
    const Ints h2 = run.dims(2, Ints{-1, 4, -1, 64});
    const Ints h3 = host::permute(h1, Ints{0, 1, 3, 2});
    const Ints h4 = host::matmul(h0, h3);
    const Ints h5 = host::matmul(h4, h2);
    const auto t0 = array<fusion::half>(run.input(0), h0);
    const auto t1 = array<fusion::half>(run.input(1), h1);
    const auto t2 = array<fusion::half>(run.input(2), h2);
    const auto t3 = array<fusion::half>(run.output(0, h5), h5);
    attention(run, product_0, values_0, h5, t0, Ints{}, t1, Ints{}, t2, Ints{}, t3, Ints{},
              [&](float* scores, int64_t first, int64_t last) {
                Ints space = h5;
                space[space.size() - 1] = t2.dims.at(-2);
                stage_0_rows(run, space, scores, first, last);
              });
  }
  MatMul product_0;
  MatMul values_0;
};
}  // namespace

FUSION_OP(AttentionFloat16, "CPUExecutionProvider", kInputs, kOutputs, Kernel)
