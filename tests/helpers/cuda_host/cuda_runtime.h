// The CUDA that generated kernels use, on one CPU thread: a block's threads are fibers that take turns at barriers.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "cudnn.h"
#include "include/half.h"
#include "tf32.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct uint2 {
  uint32_t x, y;
};
struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct uint4 {
  uint32_t x, y, z, w;
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;
using std::max;
using std::min;
namespace fusion::gpu {
alignas(16) inline uint4 dynamic[256 * 1024 / 16];
}

namespace cuda_host {

// The first of 16 bytes, zeros for the rest. Ends the program where they are not aligned, as a GPU would.
inline void copy_piece(void* to, const void* from, bool is_there) {
  if (is_there && reinterpret_cast<uintptr_t>(from) % 16 != 0) std::fprintf(stderr, "16 bytes are copied from %p\n", from), std::abort();
  is_there ? std::memcpy(to, from, 16) : std::memset(to, 0, 16);
}

enum class At { kRunning, kWarp, kBlock, kEnd };
struct Fiber {
  ucontext_t context;  // where it begins
  jmp_buf place;       // where it waits: to jump there takes no system call
  std::vector<char> stack;
  At at;
  uint32_t word[2][8];  // what a thread shows its warp; two, so that nobody writes what another still reads
  int turn;
  int vote;
};
inline std::vector<Fiber> fibers;
inline jmp_buf scheduler;
inline const std::function<void()>* body;

inline Fiber& self() { return fibers[threadIdx.x]; }
inline void wait(At where) {
  self().at = where;
  if (!_setjmp(self().place)) _longjmp(scheduler, 1);
}
inline void fiber() {
  (*body)();
  self().at = At::kEnd;
  _longjmp(scheduler, 1);
}

[[noreturn]] inline void fail(const char* text) {
  std::fprintf(stderr, "cuda_host: %s\n", text);
  std::abort();
}

inline void resume(Fiber& f) {
  if (_setjmp(scheduler)) return;
  if (f.at == At::kRunning) setcontext(&f.context);
  _longjmp(f.place, 1);
}

// A warp runs from barrier to barrier, all its threads to each, until all wait for the block or have ended.
inline void run_warp(unsigned first, unsigned last) {
  for (;;) {
    At reached = At::kEnd;
    for (unsigned t = first; t < last; ++t) {
      Fiber& f = fibers[t];
      if (f.at == At::kEnd) continue;
      threadIdx = dim3(t);
      resume(f);
      if (f.at == At::kEnd) continue;
      if (reached != At::kEnd && reached != f.at) fail("threads of a warp wait at different barriers");
      reached = f.at;
    }
    if (reached != At::kWarp) return;
  }
}

// How often all warps have run on from where they waited for the block.
inline long pass = 0;

inline void run_block(unsigned threads) {
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& f = fibers[t];
    getcontext(&f.context);
    f.stack.resize(64 * 1024);
    f.context.uc_stack.ss_sp = f.stack.data();
    f.context.uc_stack.ss_size = f.stack.size();
    f.context.uc_link = nullptr;
    f.at = At::kRunning;
    f.turn = 0;
    makecontext(&f.context, fiber, 0);
  }
  const auto ended = [](const Fiber& f) { return f.at == At::kEnd; };
  for (; !std::all_of(fibers.begin(), fibers.begin() + threads, ended); ++pass)
    for (unsigned first = 0; first < threads; first += 32) run_warp(first, std::min(first + 32, threads));
}

// What blocks of one launch have in common: their shared memory, and what lies behind it, which no kernel may touch.
class Blocks {
 public:
  Blocks(dim3 grid, dim3 block, size_t shared, const std::function<void()>& kernel) : shared(shared) {
    if (shared > sizeof(fusion::gpu::dynamic)) fail("more shared memory than there is");
    if (fibers.size() < block.x) fibers.resize(block.x);
    body = &kernel;
    gridDim = grid, blockDim = block;
    std::fill(begin() + shared, end(), kUntouched);
  }
  void run(unsigned x, unsigned y) const {
    blockIdx = dim3(x, y);
    std::memset(begin(), 0xff, shared);  // NaN: nobody may count on zeros
    run_block(blockDim.x);
  }
  void check() const {
    const auto untouched = [](char c) { return c == kUntouched; };
    if (!std::all_of(begin() + shared, end(), untouched)) fail("a kernel writes past the end of its shared memory");
  }

 private:
  static constexpr char kUntouched = 0x5a;
  size_t shared;

  static char* begin() { return reinterpret_cast<char*>(fusion::gpu::dynamic); }
  static char* end() { return begin() + sizeof(fusion::gpu::dynamic); }
};

inline void launch(dim3 grid, dim3 block, size_t shared, void*, const std::function<void()>& kernel) {
  const Blocks blocks(grid, block, shared, kernel);
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) blocks.run(x, y);
  blocks.check();
}

// How often threads of this block have waited for other blocks, which lets the others wait longer for them.
inline long waits_for_others = 0;

// The driver's function that describes matrices to the copy engine, where a program has one.
inline void* encode_tiled = nullptr;

// Shows the warp some bytes of every thread; another thread's are valid until the call after the next.
template <class T>
void show(const T& value) {
  static_assert(sizeof(T) <= sizeof(Fiber::word[0]));
  self().turn ^= 1;
  std::memcpy(self().word[self().turn], &value, sizeof(T));
  wait(At::kWarp);
}
template <class T>
T shown(unsigned lane) {
  T value;
  std::memcpy(&value, fibers[threadIdx.x / 32 * 32 + lane].word[self().turn], sizeof(T));
  return value;
}

// The PTX of include/mma.cuh, as its manual defines it.
inline void ldmatrix(uint32_t (&r)[4], const void* row, bool transposed) {
  show(row);
  const unsigned lane = threadIdx.x % 32, major = lane / 4, minor = lane % 4 * 2;
  for (unsigned i = 0; i < 4; ++i) {
    uint16_t pair[2];
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned from = transposed ? minor + e : major, element = transposed ? major : minor + e;
      pair[e] = static_cast<const uint16_t*>(shown<const void*>(i * 8 + from))[element];
    }
    std::memcpy(&r[i], pair, 4);
  }
}

template <class T>
float element(uint32_t pair, unsigned which) {
  return fusion::to_float(T{static_cast<uint16_t>(pair >> 16 * which)});
}
struct Fragments {
  uint32_t a[4], b[2];
};
template <class T>
void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  show(Fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const unsigned lane = threadIdx.x % 32;
  for (unsigned e = 0; e < 4; ++e)
    for (unsigned k = 0; k < 16; ++k) {
      const auto row = shown<Fragments>(lane / 4 * 4 + k % 8 / 2), column = shown<Fragments>((lane % 4 * 2 + e % 2) * 4 + k % 8 / 2);
      c[e] += element<T>(row.a[e / 2 + k / 8 * 2], k % 2) * element<T>(column.b[k / 8], k % 2);
    }
}

inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  show(Fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const unsigned lane = threadIdx.x % 32;
  for (unsigned e = 0; e < 4; ++e)
    for (unsigned k = 0; k < 8; ++k) {
      const auto row = shown<Fragments>(lane / 4 * 4 + k % 4), column = shown<Fragments>((lane % 4 * 2 + e % 2) * 4 + k % 4);
      c[e] += cut(row.a[e / 2 + k / 4 * 2]) * cut(column.b[k / 4]);
    }
}

}  // namespace cuda_host

inline void __syncthreads() { cuda_host::wait(cuda_host::At::kBlock); }
template <class X>
X __ldcs(const X* p) {
  return *p;
}
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t which) {
  const uint64_t both = x | static_cast<uint64_t>(y) << 32;
  uint32_t found = 0;
  for (int i = 0; i < 4; ++i) found |= static_cast<uint32_t>(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
  return found;
}
inline size_t __cvta_generic_to_shared(const void* p) { return reinterpret_cast<size_t>(p); }
inline void __syncwarp() { cuda_host::wait(cuda_host::At::kWarp); }
template <class X>
X __shfl_xor_sync(unsigned, X x, int mask) {
  cuda_host::show(x);
  return cuda_host::shown<X>((threadIdx.x % 32) ^ mask);
}

template <class X>
X __shfl_sync(unsigned, X x, int lane) {
  cuda_host::show(x);
  return cuda_host::shown<X>(static_cast<unsigned>(lane));
}
template <class X>
X __ldcg(const X* p) {
  return *p;
}
template <class X>
void __stwb(X* p, X x) {
  *p = x;
}
// Where what leaves the cache first was written, if somebody wants to know.
namespace cuda_host {
inline std::vector<const void*>* passing = nullptr;
}
template <class X>
void __stcs(X* p, X x) {
  if (cuda_host::passing != nullptr) cuda_host::passing->push_back(p);
  *p = x;
}
inline unsigned atomicInc(unsigned* p, unsigned most) {
  unsigned old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, old >= most ? 0 : old + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
  return old;
}
inline int atomicMax(int* p, int x) {
  const int old = *p;
  *p = std::max(old, x);
  return old;
}
inline int __float_as_int(float x) {
  int bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  cuda_host::show(predicate);
  unsigned found = 0;
  for (unsigned lane = 0; lane < 32; ++lane) found |= unsigned{cuda_host::shown<int>(lane) != 0} << lane;
  return found;
}
inline int __all_sync(unsigned all, int predicate) { return __ballot_sync(all, predicate) == ~0u; }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __syncthreads_or(int predicate) {
  cuda_host::self().vote = predicate;
  cuda_host::wait(cuda_host::At::kBlock);
  const auto first = cuda_host::fibers.begin();
  const int any = std::any_of(first, first + blockDim.x, [](const cuda_host::Fiber& f) { return f.vote != 0; });
  cuda_host::wait(cuda_host::At::kBlock);
  return any;
}
inline int __syncthreads_and(int predicate) { return !__syncthreads_or(!predicate); }

using cudaStream_t = struct CUstream_st*;
enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation, cudaErrorNotReady, cudaErrorStreamCaptureUnsupported };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin, cudaDevAttrL2CacheSize };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize, cudaFuncAttributePreferredSharedMemoryCarveout };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed, cudaStreamCaptureModeThreadLocal };
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
constexpr int cudaSharedmemCarveoutMaxShared = 100;
inline cudaError_t cudaGetDevice(int* id) { return *id = 0, cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  constexpr int kValues[] = {8, 227 * 1024, 384 * 1024};  // a cache that a few heads fill
  return *value = kValues[which], cudaSuccess;
}
inline cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return ""; }
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cuda_host::captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
inline bool cuda_host_full = false;
inline long cuda_host_blocks = 0;  // of memory
inline cudaError_t cudaMalloc(void** data, size_t size) {
  if (cuda_host_full) return cudaErrorMemoryAllocation;
  ++cuda_host_blocks;
  *data = std::aligned_alloc(256, (size + 255) / 256 * 256);
  return std::memset(*data, 0xff, size), cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* data, int value, size_t size, cudaStream_t) {
  return cuda_host::enqueue([=] { std::memset(data, value, size); }), cudaSuccess;
}

using cudaGraph_t = cuda_host::Graph*;
using cudaGraphExec_t = cuda_host::Graph*;
constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
inline unsigned cuda_host_stream = cudaStreamNonBlocking;
inline long cuda_host_graphs = 0;  // that exist
inline cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags) { return *flags = cuda_host_stream, cudaSuccess; }
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  if (cuda_host::captured) return cudaErrorStreamCaptureUnsupported;
  return cuda_host::captured = new cuda_host::Graph, ++cuda_host_graphs, cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* made) {
  return *made = std::exchange(cuda_host::captured, nullptr), cudaSuccess;
}
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  return *made = new cuda_host::Graph(*graph), ++cuda_host_graphs, cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, --cuda_host_graphs, cudaSuccess; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return delete graph, --cuda_host_graphs, cudaSuccess; }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  for (const auto& work : *graph) work();
  return cudaSuccess;
}
using cudaEvent_t = struct CUevent_st*;
inline cudaError_t cudaEventCreate(cudaEvent_t*) { return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline int cuda_host_waits = 0;  // how often the GPU will have come to an event before the host is done asking
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cuda_host_waits > 0 ? (--cuda_host_waits, cudaSuccess) : cudaErrorNotReady; }
inline cudaError_t cudaEventElapsedTime(float* took, cudaEvent_t, cudaEvent_t) {
  return *took = cuda_host_took, cuda_host_took < 0 ? cudaErrorNotReady : cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline bool cuda_host_busy = false;
inline int cuda_host_queries = 0;
inline cudaError_t cudaStreamQuery(cudaStream_t) { return ++cuda_host_queries, cuda_host_busy ? cudaErrorNotReady : cudaSuccess; }
inline size_t cuda_host_free = size_t{1} << 36;
inline cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return *free = cuda_host_free, *total = size_t{1} << 36, cudaSuccess;
}
inline cudaError_t cudaFree(void* data) { return cuda_host_blocks -= data != nullptr, std::free(data), cudaSuccess; }

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c, void (*kernel)(Parameters...), const Arguments&... arguments) {
  cuda_host::enqueue([config = *c, kernel, given = std::make_tuple(arguments...)] {
    const std::function<void()> body = [&] { std::apply(kernel, given); };
    cuda_host::launch(config.gridDim, config.blockDim, config.dynamicSmemBytes, config.stream, body);
  });
  return cudaSuccess;
}
