// Pointwise: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/vector.cuh"
#include "ort/op.h"

namespace Pointwise_kernels {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

// stage_0.
//   Add
//   Sigmoid
//   Mul
//   Where
//   Cast
struct stage_0_args {
  const fusion::half* in0;
  const fusion::half* in1;
  const fusion::half* in2;
  const bool* in3;
  fusion::half* out0;
  float* out1;
  gpu::Space<4> space;
};

// A thread has kVectors vectors, all of which are asked for before the first is used. Packed, each is whole and aligned.
// `threads`: of a block.
template <int V, int kVectors, bool kPacked>
__device__ __forceinline__ void stage_0_vectors(const stage_0_args& a, unsigned block, int threads) {
  int64_t at[kVectors][4];
  gpu::Vector<fusion::half, V> x0[kVectors];
  gpu::Vector<fusion::half, V> x1[kVectors];
  gpu::Vector<fusion::half, V> x2[kVectors];
  gpu::Vector<bool, V> x3[kVectors];
  const int64_t first = (static_cast<int64_t>(block) * kVectors * threads + threadIdx.x) * V;
#pragma unroll
  for (int u = 0; u < kVectors; ++u) a.space.template locate<kPacked>(first + u * threads * V, at[u]);
  gpu::await_earlier();
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int valid = gpu::valid<V, kPacked>(a.space.count - first - u * threads * V);
    gpu::load_vector<V, kPacked>(a.in0 + at[u][0], a.space.axis[0].stride[0], valid, x0[u]);
    gpu::load_vector<V, kPacked>(a.in1 + at[u][1], a.space.axis[0].stride[1], valid, x1[u]);
    gpu::load_vector<V, kPacked>(a.in2 + at[u][2], a.space.axis[0].stride[2], valid, x2[u]);
    gpu::load_vector<V, kPacked>(a.in3 + at[u][3], a.space.axis[0].stride[3], valid, x3[u]);
  }
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int64_t e = first + u * threads * V;
    const int valid = gpu::valid<V, kPacked>(a.space.count - e);
    gpu::Vector<fusion::half, V> y0{};
    gpu::Vector<float, V> y1{};
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = gpu::get(x0[u], i);
      const float v1 = gpu::get(x1[u], i);
      const float v2 = v0 + v1;
      const float v3 = fusion::logistic(v2);
      const float v4 = gpu::get(x2[u], i);
      const float v5 = v2 * v4;
      const bool v6 = gpu::get(x3[u], i);
      const float v7 = v6 ? v3 : v5;
      const float v8 = v5;
      gpu::put(y0, i, v7);
      gpu::put(y1, i, v8);
    }
    gpu::store_vector<V, kPacked>(a.out0 + e, 1, valid, y0);
    gpu::store_vector<V, kPacked>(a.out1 + e, 1, valid, y1);
  }
}

template <int V, int kVectors, bool kPacked>
__global__ void __launch_bounds__(gpu::kPassThreads) stage_0_kernel(const stage_0_args a) {
  gpu::let_next_begin();
  stage_0_vectors<V, kVectors, kPacked>(a, blockIdx.x, blockDim.x);
}

stage_0_args stage_0_of(const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Tensor& t4, const gpu::Tensor& t5) {
  const gpu::View views[] = {gpu::view(t0), gpu::view(t1), gpu::view(t2, {1, 2, 0}), gpu::view(t3)};
  return {
      static_cast<const fusion::half*>(t0.data),
      static_cast<const fusion::half*>(t1.data),
      static_cast<const fusion::half*>(t2.data),
      static_cast<const bool*>(t3.data),
      static_cast<fusion::half*>(t4.data),
      static_cast<float*>(t5.data),
      gpu::space<4>(dims, views)};
}

// Whether all vectors are whole and aligned.
bool stage_0_packs(const stage_0_args& a) {
  bool packed = gpu::vectorizable(a.space, 4) && a.space.small && a.space.count % 4 == 0;
  packed = packed && gpu::packs<4>(a.space, 0, a.in0);
  packed = packed && gpu::packs<4>(a.space, 1, a.in1);
  packed = packed && gpu::packs<4>(a.space, 2, a.in2);
  packed = packed && gpu::packs<4>(a.space, 3, a.in3);
  packed = packed && gpu::aligned<4>(a.out0);
  packed = packed && gpu::aligned<4>(a.out1);
  return packed;
}

void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Tensor& t4, const gpu::Tensor& t5) {
  const stage_0_args a = stage_0_of(dims, t0, t1, t2, t3, t4, t5);
  if (a.space.count == 0) return;
  const bool packed = stage_0_packs(a);
  if (packed && gpu::is_long(device, a.space.count / 4)) {
    gpu::launch_pass<4, 2>(stage_0_kernel<4, 2, true>, a.space.count, stream, "stage_0", a);
  } else if (gpu::vectorizable(a.space, 4)) {
    gpu::launch_pass<4, 1>(packed ? stage_0_kernel<4, 1, true> : stage_0_kernel<4, 1, false>, a.space.count, stream, "stage_0", a);
  } else {
    gpu::launch_pass<1, 1>(stage_0_kernel<1, 1, false>, a.space.count, stream, "stage_0", a);
  }
}


struct Kernel {
  gpu::Device device;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info) {
    (void)api, (void)info;
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0, Ints{8, -1, -1});
    const Ints h1 = run.dims(1, Ints{-1, -1, 8});
    const Ints h2 = run.dims(2, Ints{8});
    const Ints h3 = run.dims(3, Ints{-1, 1});

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h1);
    void* const output_1 = run.output(1, h1);
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h2};
    const gpu::Tensor t3{const_cast<void*>(run.input(3)), &h3};
    const gpu::Tensor t4{output_0, &h1};
    const gpu::Tensor t5{output_1, &h1};

    // Kernels.
    stage_0(device, stream, h1, t1, t2, t0, t3, t4, t5);
  }
};

const fusion::Port kInputs[] = {{10, false}, {10, false}, {10, false}, {9, false}};
const fusion::Port kOutputs[] = {{10, false}, {1, false}};

}  // namespace Pointwise_kernels
using namespace Pointwise_kernels;

FUSION_OP(Pointwise, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)
