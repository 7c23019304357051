// Barriers and the copy engine as templates/include/hopper.cuh has them, on the host's fibers: copies are there at once. Whoever waits lets
// the other warps run.
#pragma once

#include <cuda_runtime.h>

#include "include/mma.cuh"
#include "include/tensor_map.h"

#define FUSION_HOPPER 1

namespace fusion::gpu {

constexpr int kWarpgroup = 128, kPanel = 64;

// Lets the other threads run until `done`. A block that waits for others has its threads wait for as long.
template <class Done>
void wait_until(const Done& done, const char* text) {
  const long before = cuda_host::waits_for_others;
  for (long turns = 0; !done(); ++turns) {
    if (turns - (cuda_host::waits_for_others - before) > 100000) cuda_host::fail(text);
    cuda_host::wait(cuda_host::At::kBlock);
  }
}

struct Barrier {
  int arrivals, missing, bytes, phase;

  void init(int n) { *this = {n, n, 0, 0}; }
  void came(int n) {
    missing -= n;
    if (missing == 0 && bytes == 0) missing = arrivals, ++phase;
  }
  void arrive() { came(1); }
  void arrive_expecting(int n) { bytes += n, came(1); }
  void brought(int n) { bytes -= n, came(0); }
  void wait(int parity) {
    wait_until([&] { return has_passed(parity); }, "a barrier that nobody completes");
  }
  bool has_passed(int parity) const { return phase % 2 != parity; }
};
inline int warp_of_block() { return static_cast<int>(threadIdx.x) / 32; }
inline int warpgroup() { return warp_of_block() / (kWarpgroup / 32); }
inline bool is_elected() { return threadIdx.x % 32 == 0; }
inline void store_if(bool stay, bool pass, uint4* p, const uint4& x) {
  if (stay) __stwb(p, x);
  if (pass) __stcs(p, x);
}
inline void publish_barriers() {}
inline void store_matrices_transposed(const uint32_t (&r)[4], void* row) {
  cuda_host::show(row);
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned e = 0; e < 2; ++e) {
      const uint16_t element = static_cast<uint16_t>(r[i] >> 16 * e);
      static_cast<uint16_t*>(cuda_host::shown<void*>(i * 8 + lane % 4 * 2 + e))[lane / 4] = element;
    }
}
inline void publish_copies() {}

// The copies of threads that only copy: they are there at once.
struct CopiesInOrder {
  void arrive_at(Barrier& barrier) { barrier.arrive(); }
  template <int kPending = 0>
  void finish() {}
};

struct Numbered {
  int here, rounds;
  long pass;  // in which the last round was complete
};
inline Numbered numbered[16];
inline void arrive_threads(int barrier, int threads) {
  Numbered& b = numbered[barrier];
  if (++b.here == threads) b.here = 0, ++b.rounds, b.pass = cuda_host::pass;
}
// All go on in the next pass, those who come last too: a warp's threads go on together.
inline void sync_threads(int barrier, int threads) {
  Numbered& b = numbered[barrier];
  const int round = b.rounds;
  arrive_threads(barrier, threads);
  cuda_host::wait(cuda_host::At::kBlock);
  wait_until([&] { return b.rounds != round && cuda_host::pass > b.pass; }, "threads that never come");
}

template <int kRegisters>
void give_registers() {}
template <int kRegisters>
void take_registers() {}

inline unsigned char* at_shared(uint32_t address) {
  return reinterpret_cast<unsigned char*>(dynamic) + (address - shared_address(dynamic));
}
inline uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

// A described matrix, in place of what the driver makes of it.
struct HostMap {
  const uint16_t* data;
  int64_t rows, columns, stride;
  int box_rows;
};
inline TensorMap host_map(const void* data, int64_t rows, int64_t columns, int64_t stride, int box_rows) {
  const HostMap map{static_cast<const uint16_t*>(data), rows, columns, stride, box_rows};
  TensorMap out;
  std::memcpy(&out, &map, sizeof map);
  return out;
}
// The driver's cuTensorMapEncodeTiled, for programs that describe matrices as kernels' launches do.
inline int encode_host_map(TensorMap* map, int, uint32_t, void* data, const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                           const uint32_t*, int, int, int, int) {
  *map = host_map(data, sizes[1], sizes[0], strides[0] / 2, box[1]);
  return 0;
}
inline void have_driver() { cuda_host::encode_tiled = reinterpret_cast<void*>(encode_host_map); }
inline void prefetch_map(const TensorMap&) {}
inline void prefetch_box(const TensorMap&, int, int) {}
// What was copied, where somebody wants to know.
struct Copied {
  const void* matrix;
  int column, row;
  bool once;
  int warp;  // that asked for it
};
inline std::vector<Copied>* copied = nullptr;

inline void copy_box(uint32_t shared, const TensorMap& described, Barrier& arrived, int column, int row, bool once = false) {
  HostMap map;
  std::memcpy(&map, &described, sizeof map);
  if (copied != nullptr) copied->push_back({map.data, column, row, once, warp_of_block()});
  for (int r = 0; r < map.box_rows; ++r)
    for (int c = 0; c < kPanel; ++c) {
      const bool inside = row + r < map.rows && column + c < map.columns;
      const uint16_t element = inside ? map.data[(row + r) * map.stride + column + c] : 0;
      std::memcpy(at_shared(swizzled(shared + r * 128 + c * 2)), &element, 2);
    }
  arrived.brought(map.box_rows * kPanel * 2);
}

}  // namespace fusion::gpu
