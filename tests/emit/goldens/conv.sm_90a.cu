// Conv: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/conv.cuh"
#include "include/vector.cuh"
#include "include/workspace.cuh"
#include "ort/op.h"

namespace Conv_kernels {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

// stage_0.
//   Conv
//   HardSwish
struct stage_0_pass_args {
  const float* in3;
  float* out0;
  gpu::Space<1> space;
};

// A thread has kVectors vectors, all of which are asked for before the first is used. Packed, each is whole and aligned.
// `threads`: of a block.
template <int V, int kVectors, bool kPacked>
__device__ __forceinline__ void stage_0_pass_vectors(const stage_0_pass_args& a, unsigned block, int threads) {
  int64_t at[kVectors][1];
  gpu::Vector<float, V> x3[kVectors];
  const int64_t first = (static_cast<int64_t>(block) * kVectors * threads + threadIdx.x) * V;
#pragma unroll
  for (int u = 0; u < kVectors; ++u) a.space.template locate<kPacked>(first + u * threads * V, at[u]);
  gpu::await_earlier();
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int valid = gpu::valid<V, kPacked>(a.space.count - first - u * threads * V);
    gpu::load_vector<V, kPacked>(a.in3 + at[u][0], a.space.axis[0].stride[0], valid, x3[u]);
  }
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int64_t e = first + u * threads * V;
    const int valid = gpu::valid<V, kPacked>(a.space.count - e);
    gpu::Vector<float, V> y0{};
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = gpu::get(x3[u], i);
      const float v2 = v0 * 0.166666667f;
      const float v4 = v2 + 0.5f;
      const float v6 = fusion::max(v4, 0.0f);
      const float v8 = fusion::min(v6, 1.0f);
      const float v9 = v0 * v8;
      gpu::put(y0, i, v9);
    }
    gpu::store_vector<V, kPacked>(a.out0 + e, 1, valid, y0);
  }
}

template <int V, int kVectors, bool kPacked>
__global__ void __launch_bounds__(gpu::kPassThreads) stage_0_pass_kernel(const stage_0_pass_args a) {
  gpu::let_next_begin();
  stage_0_pass_vectors<V, kVectors, kPacked>(a, blockIdx.x, blockDim.x);
}

stage_0_pass_args stage_0_pass_of(const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const gpu::View views[] = {gpu::view(product)};
  return {
      static_cast<const float*>(product.data),
      static_cast<float*>(t3.data),
      gpu::space<1>(dims, views)};
}

// Whether all vectors are whole and aligned.
bool stage_0_pass_packs(const stage_0_pass_args& a) {
  bool packed = gpu::vectorizable(a.space, 4) && a.space.small && a.space.count % 4 == 0;
  packed = packed && gpu::packs<4>(a.space, 0, a.in3);
  packed = packed && gpu::aligned<4>(a.out0);
  return packed;
}

void stage_0_pass(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const stage_0_pass_args a = stage_0_pass_of(dims, product, t0, t1, t2, t3);
  if (a.space.count == 0) return;
  const bool packed = stage_0_pass_packs(a);
  if (packed && gpu::is_long(device, a.space.count / 4)) {
    gpu::launch_pass<4, 2>(stage_0_pass_kernel<4, 2, true>, a.space.count, stream, "stage_0_pass", a);
  } else if (gpu::vectorizable(a.space, 4)) {
    gpu::launch_pass<4, 1>(packed ? stage_0_pass_kernel<4, 1, true> : stage_0_pass_kernel<4, 1, false>, a.space.count, stream, "stage_0_pass", a);
  } else {
    gpu::launch_pass<1, 1>(stage_0_pass_kernel<1, 1, false>, a.space.count, stream, "stage_0_pass", a);
  }
}

void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const fusion::Run& run, const gpu::Conv& convolve, void* accumulator) {
  if (fusion::count(dims) == 0) return;
  const gpu::Tensor product{accumulator, &dims};
  convolve(run, {t0, t1, t2, product}, sizeof(float));
  stage_0_pass(device, stream, dims, product, t0, t1, t2, t3);
}

// stage_1.
//   Conv
//   Add
struct stage_1_pass_args {
  const float* in2;
  const float* in3;
  float* out0;
  gpu::Space<2> space;
};

// A thread has kVectors vectors, all of which are asked for before the first is used. Packed, each is whole and aligned.
// `threads`: of a block.
template <int V, int kVectors, bool kPacked>
__device__ __forceinline__ void stage_1_pass_vectors(const stage_1_pass_args& a, unsigned block, int threads) {
  int64_t at[kVectors][2];
  gpu::Vector<float, V> x2[kVectors];
  gpu::Vector<float, V> x3[kVectors];
  const int64_t first = (static_cast<int64_t>(block) * kVectors * threads + threadIdx.x) * V;
#pragma unroll
  for (int u = 0; u < kVectors; ++u) a.space.template locate<kPacked>(first + u * threads * V, at[u]);
  gpu::await_earlier();
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int valid = gpu::valid<V, kPacked>(a.space.count - first - u * threads * V);
    gpu::load_vector<V, kPacked>(a.in2 + at[u][0], a.space.axis[0].stride[0], valid, x2[u]);
    gpu::load_vector<V, kPacked>(a.in3 + at[u][1], a.space.axis[0].stride[1], valid, x3[u]);
  }
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int64_t e = first + u * threads * V;
    const int valid = gpu::valid<V, kPacked>(a.space.count - e);
    gpu::Vector<float, V> y0{};
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = gpu::get(x3[u], i);
      const float v1 = gpu::get(x2[u], i);
      const float v2 = v0 + v1;
      gpu::put(y0, i, v2);
    }
    gpu::store_vector<V, kPacked>(a.out0 + e, 1, valid, y0);
  }
}

template <int V, int kVectors, bool kPacked>
__global__ void __launch_bounds__(gpu::kPassThreads) stage_1_pass_kernel(const stage_1_pass_args a) {
  gpu::let_next_begin();
  stage_1_pass_vectors<V, kVectors, kPacked>(a, blockIdx.x, blockDim.x);
}

stage_1_pass_args stage_1_pass_of(const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const gpu::View views[] = {gpu::view(t2), gpu::view(product)};
  return {
      static_cast<const float*>(t2.data),
      static_cast<const float*>(product.data),
      static_cast<float*>(t3.data),
      gpu::space<2>(dims, views)};
}

// Whether all vectors are whole and aligned.
bool stage_1_pass_packs(const stage_1_pass_args& a) {
  bool packed = gpu::vectorizable(a.space, 4) && a.space.small && a.space.count % 4 == 0;
  packed = packed && gpu::packs<4>(a.space, 0, a.in2);
  packed = packed && gpu::packs<4>(a.space, 1, a.in3);
  packed = packed && gpu::aligned<4>(a.out0);
  return packed;
}

void stage_1_pass(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const stage_1_pass_args a = stage_1_pass_of(dims, product, t0, t1, t2, t3);
  if (a.space.count == 0) return;
  const bool packed = stage_1_pass_packs(a);
  if (packed && gpu::is_long(device, a.space.count / 4)) {
    gpu::launch_pass<4, 2>(stage_1_pass_kernel<4, 2, true>, a.space.count, stream, "stage_1_pass", a);
  } else if (gpu::vectorizable(a.space, 4)) {
    gpu::launch_pass<4, 1>(packed ? stage_1_pass_kernel<4, 1, true> : stage_1_pass_kernel<4, 1, false>, a.space.count, stream, "stage_1_pass", a);
  } else {
    gpu::launch_pass<1, 1>(stage_1_pass_kernel<1, 1, false>, a.space.count, stream, "stage_1_pass", a);
  }
}

void stage_1(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const fusion::Run& run, const gpu::Conv& convolve, void* accumulator) {
  if (fusion::count(dims) == 0) return;
  const gpu::Tensor product{accumulator, &dims};
  convolve(run, {t0, t1, product}, sizeof(float));
  stage_1_pass(device, stream, dims, product, t0, t1, t2, t3);
}

struct Kernel {
  gpu::Device device;
  gpu::Workspace workspace;
  gpu::Conv convolution_0;
  gpu::Conv convolution_1;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info)
      : convolution_0(api, info, 1, 3, {fusion::Ints{1, 1}, fusion::Ints{}, fusion::Ints{1, 1}, 8, "SAME_UPPER"}),
        convolution_1(api, info, 1, 2, {fusion::Ints{1, 1}, fusion::Ints{0, 0, 0, 0}, fusion::Ints{1, 1}, 1, "NOTSET"}) {
    (void)api, (void)info;
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0, Ints{-1, 8, -1, -1});
    const Ints h1 = run.dims(1, Ints{8, 1, 3, 3});
    const Ints h2 = run.dims(2, Ints{8});
    const Ints h3 = host::conv(h0, h1, Ints{2, 1, 1, 0, 0, 0, 0, 1, 1, 2});
    const Ints h4 = run.dims(3, Ints{8, 8, 1, 1});
    const Ints h5 = host::conv(h3, h4, Ints{2, 1, 1, 0, 0, 0, 0, 1, 1, 0});

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h5);
    gpu::Layout layout;
    const size_t buffer_0 = layout.add(gpu::largest({gpu::bytes<float>(h3)}));
    char* const work = workspace.reserve(stream, layout.size());
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h2};
    const gpu::Tensor t3{const_cast<void*>(run.input(3)), &h4};
    const gpu::Tensor t4{output_0, &h5};
    const gpu::Tensor t5{work + buffer_0, &h3};

    // Kernels.
    stage_0(device, stream, h3, t0, t1, t2, t5, run, convolution_0, t5.data);
    stage_1(device, stream, h5, t5, t3, t0, t4, run, convolution_1, t4.data);
  }
};

const fusion::Port kInputs[] = {{1, false}, {1, false}, {1, false}, {1, false}};
const fusion::Port kOutputs[] = {{1, false}};

}  // namespace Conv_kernels
using namespace Conv_kernels;

FUSION_OP(Conv, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)
