// Attention: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/attention_decode.cuh"
#include "include/attention_scalar.cuh"
#include "include/provider.h"
#include "include/workspace.cuh"
#include "ort/op.h"

namespace Attention_kernels {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

// stage_0.
//   MatMul
//   Mul
//   Where
//   Softmax
//   IsNaN
struct stage_0_program {
  const bool* in3;
  int row3, column3;
  static constexpr int at3 = 4;
  static constexpr bool kCausal = false;  // keys later than the query score -inf
  static constexpr bool kBare = false;    // all others score the scaled product itself
  static constexpr bool kLowers = false;  // and later ones that lowered by, or if firm:
  static constexpr float kLater = -INFINITY;
  static constexpr bool kSink = false;    // a row has one score more, without a key
  static constexpr bool kByKey = true;   // what is hidden depends on the operands and the key
  static constexpr bool kSorted = false;  // on the query besides: tiles are sorted beforehand
  static constexpr bool kSmall = true;   // scores are far from the largest float
  static constexpr bool kFirm = true;    // what is hidden scores the same whatever the product

  // What the operands hold for a query and a key.
  struct Element {
    const stage_0_program& of;
    const int64_t (&at)[5];
    int row, column;
    __device__ __forceinline__ bool in3() const {
      return fusion::load(of.in3 + at[at3] + int64_t{row} * of.row3 + int64_t{column} * of.column3);
    }
  };

  // What those of the scores hold for a query and V neighbouring keys.
  template <int V>
  struct Strip {
    struct Element {
      const Strip& of;
      int i;
      __device__ __forceinline__ bool in3() const {
        const bool element = of.in3[i];
        return fusion::load(&element);
      }
    };
    gpu::Strip<bool, V> in3;

    __device__ __forceinline__ Element operator[](int i) const { return {*this, i}; }

    __device__ __forceinline__ bool same(const Strip& other) const {
      return in3.same(other.in3);
    }

    // As gpu::Strip does.
    __device__ __forceinline__ void read(const stage_0_program& p, const int64_t (&at)[5], int row, int column, int valid) {
      in3.read(p.in3 + at[at3] + int64_t{row} * p.row3 + int64_t{column} * p.column3, p.column3, valid);
    }

    // The same where `is_whole`.
    __device__ __forceinline__ void read_whole(const stage_0_program& p, const int64_t (&at)[5], int row, int column) {
      in3.read(p.in3 + at[at3] + int64_t{row} * p.row3 + column);
    }
  };
  __device__ __forceinline__ bool is_whole(const int64_t (&at)[5]) const {
    return gpu::Strip<bool, 8>::is_whole(in3 + at[at3], row3, column3);
  }
  __host__ __device__ __forceinline__ bool by_key() const { return row3 == 0; }

  template <class X>
  __device__ __forceinline__ float score(float acc, const X& x, int64_t batch, int row, int column) const {
    const float v0 = acc;
    const bool v1 = x.in3();
    const float v3 = v1 ? v0 : (-fusion::inf<float>());
    return v3;
  }
  template <class X>
  __device__ __forceinline__ float prob(float acc, const X& x, int64_t batch, int row, int column) const {
    return acc;
  }
  template <class X>
  __device__ __forceinline__ float sink(float acc, const X& x, int64_t batch, int row, int column) const {
    return acc;
  }
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kLeastBlocks)
    stage_0_kernel(const float* q, const float* k, const float* v, float* out,
                   const gpu::AttentionShape shape, const gpu::Space<5> batches,
                   const gpu::KeySplit split, const stage_0_program program) {
  gpu::await_earlier();
  gpu::attention_tensor<float, Tile, gpu::Prob::kZeroNaN>(q, k, v, out, shape, batches, split, program);
}

template <int kDepth, int kValueDepth>
__global__ void __launch_bounds__(gpu::kScalarAttentionThreads)
    stage_0_exact(const float* q, const float* k, const float* v, float* out, const gpu::AttentionShape shape,
                  const gpu::Space<5> batches, const stage_0_program program) {
  gpu::await_earlier();
  gpu::attention_scalar<kDepth, kValueDepth, gpu::Prob::kZeroNaN>(q, k, v, out, shape, batches, program);
}

// Once per kernel instance: a block's tiles may need more shared memory than is given without asking.
void stage_0_prepare(const gpu::Device& device) {
  gpu::allow_shared_memory(device, stage_0_exact<16, 16>, gpu::ScalarAttentionTile<16, 16>::kBytes);
  if (gpu::fits<gpu::AttentionTile<float, 16, 16, stage_0_program::kBare, false>>(device)) gpu::allow_shared_memory(device, stage_0_kernel<gpu::AttentionTile<float, 16, 16, stage_0_program::kBare, false>>, gpu::AttentionTile<float, 16, 16, stage_0_program::kBare, false>::kBytes);
  if (gpu::fits<gpu::AttentionTile<float, 16, 16, stage_0_program::kBare, true>>(device)) gpu::allow_shared_memory(device, stage_0_kernel<gpu::AttentionTile<float, 16, 16, stage_0_program::kBare, true>>, gpu::AttentionTile<float, 16, 16, stage_0_program::kBare, true>::kBytes);
}

struct stage_0_args {
  const float *q, *k, *v;
  float* out;
  gpu::AttentionShape shape;
  gpu::Space<5> batches;
  stage_0_program program;
};

stage_0_args stage_0_of(const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Tensor& t4) {
  const gpu::View q = gpu::view(t0), k = gpu::view(t1), v = gpu::view(t2), out = gpu::view(t4);
  const gpu::View views[] = {q, k, v, out, gpu::view(t3)};
  const stage_0_program program{
      static_cast<const bool*>(t3.data), gpu::narrow(views[4].step(2)), gpu::narrow(views[4].step(1))};
  return {static_cast<const float*>(t0.data), static_cast<const float*>(t1.data),
          static_cast<const float*>(t2.data), static_cast<float*>(t4.data),
          gpu::attention_shape(q, k, v, out, 0.25f), gpu::space<5>(dims, views, 2), program};
}

void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Tensor& t4, void* parts, unsigned* done, bool tf32) {
  (void)device;
  const gpu::View q = gpu::view(t0), k = gpu::view(t1), v = gpu::view(t2), out = gpu::view(t4);
  const gpu::View views[] = {q, k, v, out, gpu::view(t3)};
  auto [q_data, k_data, v_data, out_data, shape, batches, program] = stage_0_of(dims, t0, t1, t2, t3, t4);
  if (shape.depth <= 16 && shape.value_depth <= 16) {
    using Tile = gpu::AttentionTile<float, 16, 16, stage_0_program::kBare, false>;
    using Exact = gpu::ScalarAttentionTile<16, 16>;
    if (!tf32 || !gpu::fits<Tile>(device)) {
      const unsigned grid = gpu::attention_grid(shape, batches.count, Exact::kRows, "stage_0");
      if (grid == 0) return;
      shape.lay_out(batches.count, Exact::kRows);
      gpu::launch(stage_0_exact<16, 16>, grid, gpu::kScalarAttentionThreads, Exact::kBytes, stream,
                  "stage_0", q_data, k_data, v_data, out_data, shape, batches, program);
      return;
    }
    const unsigned grid = gpu::attention_grid(shape, batches.count, Tile::kRows, "stage_0");
    if (grid == 0) return;
    using Wide = gpu::AttentionTile<float, 16, 16, stage_0_program::kBare, true>;
    if (gpu::is_better<Wide>(device, shape, batches.count)) {
      shape.lay_out(batches.count, Wide::kRows);
      gpu::launch(stage_0_kernel<Wide>, gpu::attention_grid(shape, batches.count, Wide::kRows, "stage_0"), Wide::kThreads,
                  Wide::kBytes, stream, "stage_0", q_data, k_data, v_data, out_data, shape, batches, gpu::KeySplit{}, program);
      return;
    }
    const gpu::KeySplit split = gpu::key_split(device, batches.count, shape.queries, shape.keys, parts, done);
    shape.lay_out(batches.count, Tile::kRows);
    gpu::launch(stage_0_kernel<Tile>, dim3(grid, split.count), Tile::kThreads, Tile::kBytes,
                stream, "stage_0", q_data, k_data, v_data, out_data, shape, batches, split, program);
    return;
  }
  throw fusion::Error("stage_0: the head dimension is larger than 16");
}

struct Kernel {
  gpu::Device device;
  gpu::Workspace workspace;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info) {
    (void)api, (void)info;
    stage_0_prepare(device);
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0, Ints{-1, 4, -1, 16});
    const Ints h1 = host::permute(h0, Ints{0, 1, 3, 2});
    const Ints h2 = run.dims(1, Ints{-1, 4, -1, 16});
    const Ints h3 = host::matmul(h2, h1);
    const Ints h4 = run.dims(2, Ints{-1, 1, -1, -1});
    const Ints h5 = run.dims(3, Ints{-1, 4, -1, 16});
    const Ints h6 = host::matmul(h3, h5);

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h6);
    gpu::Layout layout;
    const size_t parts_0 = layout.add(gpu::largest({gpu::attention_part_bytes(device, h6, h0, h5)}));
    char* const work = workspace.reserve(stream, layout.size());
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h2};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h4};
    const gpu::Tensor t3{const_cast<void*>(run.input(3)), &h5};
    const gpu::Tensor t4{output_0, &h6};

    // Kernels.
    const bool tf32 = gpu::allows_tf32(run.api, run.context);
    stage_0(device, stream, h6, t1, t0, t3, t2, t4, work + parts_0, gpu::counters(work), tf32);
  }
};

const fusion::Port kInputs[] = {{1, false}, {1, false}, {9, false}, {1, false}};
const fusion::Port kOutputs[] = {{1, false}};

}  // namespace Attention_kernels
using namespace Attention_kernels;

FUSION_OP(Attention, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)
