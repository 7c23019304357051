// LayerNorm: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/rowwise.cuh"
#include "ort/op.h"

namespace LayerNorm_kernels {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

// stage_0.
//   LayerNormalization
struct stage_0_args {
  const float* in0;
  const float* in1;
  const float* in2;
  float* out0;
  int64_t length;
  gpu::Space<3> space;  // of the rows
  int64_t step[3];  // between neighbours of a row
};

// Rows that fit in the registers of their threads.
template <bool kFlat = false, int V, int C, int kThreads, bool kPacked, class Team>
__device__ __forceinline__ void stage_0_kept_row(const stage_0_args& a, gpu::Row<V, C, kThreads, kPacked, Team> row) {
  int64_t at[3];
  a.space.template locate<kPacked, kFlat>(row.index, at);
  gpu::resolve(a.out0, row.place(a.in0 + at[0]), row.place(a.in1 + at[1]), row.place(a.in2 + at[2]));
  gpu::await_earlier();
  gpu::Vector<float, V> x0[C];
  row.load(a.in0 + at[0], a.step[0], x0);
  gpu::Vector<float, V> x1[C];
  row.load(a.in1 + at[1], a.step[1], x1);
  gpu::Vector<float, V> x2[C];
  row.load(a.in2 + at[2], a.step[2], x2);
  float r1 = gpu::Sum::identity<float>();
#pragma unroll
  for (int c = 0; c < C; ++c) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = gpu::get(x0[c], i);
      if (row.valid(c, i)) r1 = gpu::Sum{}(r1, v0);
    }
  }
  const float v1 = fusion::share(row.reduce(r1, gpu::Sum{}), row.length);
  float r4 = gpu::Sum::identity<float>();
  float k2[C][V];
#pragma unroll
  for (int c = 0; c < C; ++c) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = gpu::get(x0[c], i);
      const float v2 = v0 - v1;
      const float v3 = v2 * v2;
      k2[c][i] = v2;
      if (row.valid(c, i)) r4 = gpu::Sum{}(r4, v3);
    }
  }
  const float v4 = fusion::share(row.reduce(r4, gpu::Sum{}), row.length);
  const float v6 = v4 + 1e-05f;
  const float v8 = fusion::inverse_root(v6);
#pragma unroll
  for (int c = 0; c < C; ++c) {
    gpu::Vector<float, V> yout0{};
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v9 = k2[c][i] * v8;
      const float v10 = gpu::get(x1[c], i);
      const float v11 = v9 * v10;
      const float v12 = gpu::get(x2[c], i);
      const float v13 = v11 + v12;
      gpu::put(yout0, i, v13);
    }
    row.store(a.out0 + row.index * row.length, c, yout0);
  }
}

template <int C, int kThreads, bool kPacked, bool kFlat = false>
__global__ void __launch_bounds__(kThreads <= 32 ? 32 * gpu::kShortWarps : kThreads) stage_0_kept(const stage_0_args a) {
  gpu::let_next_begin();
  gpu::Row<4, C, kThreads, kPacked> row(a.length);
  if (kThreads > 32 || row.index < a.space.count) stage_0_kept_row<kFlat>(a, row);
}

stage_0_args stage_0_of(const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const gpu::View views[] = {gpu::view(t0), gpu::view(t1), gpu::view(t2)};
  stage_0_args a{
      static_cast<const float*>(t0.data),
      static_cast<const float*>(t1.data),
      static_cast<const float*>(t2.data),
      static_cast<float*>(t3.data),
      dims.back(), gpu::space<3>(dims, views, 1), {}};
  a.step[0] = views[0].step(1);
  a.step[1] = views[1].step(1);
  a.step[2] = views[2].step(1);
  return a;
}

// Whether all vectors are whole and aligned.
bool stage_0_packs(const stage_0_args& a) {
  bool packed = a.space.small && a.length % 4 == 0;
  packed = packed && gpu::packs<4>(a.space, 0, a.step[0], a.in0);
  packed = packed && gpu::packs<4>(a.space, 1, a.step[1], a.in1);
  packed = packed && gpu::packs<4>(a.space, 2, a.step[2], a.in2);
  packed = packed && gpu::aligned<4>(a.out0);
  return packed;
}

void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const stage_0_args a = stage_0_of(dims, t0, t1, t2, t3);
  if (a.space.count == 0) return;
  const bool packed = stage_0_packs(a);
  gpu::launch_rows<4, 1, 8>(packed ? stage_0_kept<1, 8, true> : stage_0_kept<1, 8, false>, device, a.space.count, a.length, stream, "stage_0", a);
}

struct Kernel {
  gpu::Device device;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info) {
    (void)api, (void)info;
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0, Ints{-1, -1, 32});
    const Ints h1 = run.dims(1, Ints{32});
    const Ints h2 = run.dims(2, Ints{32});

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h0);
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h2};
    const gpu::Tensor t3{output_0, &h0};

    // Kernels.
    stage_0(device, stream, h0, t0, t1, t2, t3);
  }
};

const fusion::Port kInputs[] = {{1, false}, {1, false}, {1, false}};
const fusion::Port kOutputs[] = {{1, false}};

}  // namespace LayerNorm_kernels
using namespace LayerNorm_kernels;

FUSION_OP(LayerNorm, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)
