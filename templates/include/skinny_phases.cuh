// Products of few rows one after the other in one kernel on Hopper, with norms and the like of their results between them: right
// operands that are constants come while what is before them is still computed.
#pragma once

#include "include/skinny_stream.cuh"
#include "include/workspace.cuh"

namespace fusion::gpu {

constexpr int kMostPhases = 15;
constexpr int64_t kMostPieces = 1024;  // of a phase

// How many pieces a warpgroup has of so many elements, each thread a vector of a piece.
__host__ __device__ inline int64_t pieces(int64_t count, int width) { return (count + 128 * width - 1) / (128 * width); }

// A phase without any would be waited for no longer than what is before it.
inline bool are_pieces(int64_t count) { return count > 0 && count <= kMostPieces; }

// Bytes of right operands from which on one kernel is the faster way: of one launch of products, and of several. Measured on an
// H200 in a CUDA graph, one row: two layers of 3584 and 18944 263.8 us for 285.5, one of 4096 and 16384 112.1 for 111.4; two rows
// of 2048 and 5504, 76 MB after attention, 47.1 for 45.1 a layer. A build may ask for another number for both, and then has all
// products in it that are as large.
#ifdef FUSION_PHASES_FROM
constexpr int64_t kPhasesFrom = FUSION_PHASES_FROM, kPhasesTogether = FUSION_PHASES_FROM;
constexpr bool kPhasesAlways = true;
#else
constexpr int64_t kPhasesFrom = 20000000, kPhasesTogether = 100000000;
constexpr bool kPhasesAlways = false;
#endif

// Whether a product of few rows by itself goes through here too. Of more rows than the other kernel takes the vendor's with a pass is
// faster, and that kernel where each of its blocks has a strip of its own and they fill the GPU. Measured on an H200, ours for the other,
// weights from memory: 37.0 us for 34.4 at 16x16384x4096 (rows, columns, depth) and 15.7 for 13.8 at 12x4096x4096; 35.4 for 33.9 at
// 1x16384x4096, 36.9 for 34.4 at 8 and 12.1 for 11.6 at 1x4096x4096; but 35.4 for 47.3 at 2x18944x3584, and equal within a hundredth
// at 1x12288x4096, 1x8192x4096, 1x4096x16384 and 1x3584x18944.
inline bool streams_alone(const Device& device, const Product& p) {
  return kPhasesAlways || (p.m <= kFewAlone && !few_fill(device, p));
}

inline int64_t right_bytes(const Product& p) { return p.k * p.n * 2; }

}  // namespace fusion::gpu

#if FUSION_HOPPER
namespace fusion::gpu {

constexpr int kStreamBlocks = 144;  // as many multiprocessors as Hopper can have

// What blocks tell one another: parts of sums, with tags that say of which launch and phase, and how much of a phase is done, in
// numbers of which a launch has one half, and leaves zeros in the other for the next. Which launch it is they know by how many blocks
// have ended before, of launches that are all of as many: nobody has to wait for what a block says last.
struct PhaseMemory {
  struct Kept {
    Tagged parts[kStreamBlocks * kStreamPairs];
    unsigned done[2][kMostPhases], ended;  // of a phase; blocks, of kLaunches launches
  };
  static constexpr unsigned kLaunches = 1u << 24;  // until they are counted anew
  static_assert(kLaunches <= UINT32_MAX / kStreamBlocks && kLaunches <= UINT32_MAX / (kMostPhases + 1));
  static_assert(sizeof(Kept) <= kTaggedBytes);
  Kept* kept;

  explicit PhaseMemory(char* reserved) : kept(reinterpret_cast<Kept*>(tagged(reserved))) {}

  // All threads of a warpgroup have stored what is theirs of a part of a phase.
  __device__ __forceinline__ void add(unsigned launch, int phase) const {
    publish_to_copies();
    sync_threads(1, kWarpgroup);
    if (threadIdx.x == 0) count_up(kept->done[launch % 2] + phase);
  }
  // One thread: waits for so many parts.
  __device__ __forceinline__ void await(unsigned launch, int phase, unsigned parts_of) const {
    await_count(kept->done[launch % 2] + phase, parts_of);
    publish_to_copies();
  }
  // Once those before it have ended.
  __device__ __forceinline__ unsigned launch() const { return __ldcg(&kept->ended) / gridDim.x; }
  static __device__ __forceinline__ uint32_t tag(unsigned launch, int phase) { return launch * (kMostPhases + 1) + 1 + phase; }
  // A warpgroup that has done its part of all phases.
  __device__ __forceinline__ void end(unsigned launch) const {
    if (blockIdx.x == 0 && threadIdx.x < kMostPhases) kept->done[(launch + 1) % 2][threadIdx.x] = 0;
    if (threadIdx.x == 0) atomicInc(&kept->ended, gridDim.x * kLaunches - 1);
  }
};

// Products of one left operand as a phase: `each(use)` calls use with the epilogues of its chains.
template <int kProducts, int kChains, class Each>
struct ProductPhase {
  const StreamOperands<kProducts, kChains>& x;
  Each each;

  __device__ __forceinline__ StreamView view() const { return StreamView(x); }
  __device__ __forceinline__ unsigned parts() const { return static_cast<unsigned>(x.shares.strips); }
  __device__ __forceinline__ void announce() const {
    prefetch_map(x.left);
    for (const auto& chain : x.right) {
      for (const TensorMap& map : chain) prefetch_map(map);
    }
  }
  // The sums of a strip, all of them or a part, for others or not. Whether its results are there then.
  template <class Tile>
  __device__ __forceinline__ bool finish(int strip, const PhaseMemory& memory, uint32_t tag, float* sums) const {
    const StreamStrip at(view(), Tile::kAcross / kProducts, strip);
    const int first = x.shares.owner(strip * x.shares.steps), last = x.shares.owner((strip + 1) * x.shares.steps - 1);
    int chain = 0;
    bool done = false;
    each([&](const auto& epilogue) {
      if (chain++ != at.chain) return;
      const auto join = [&] { return stream_join<Tile>(first, last, x.rows, memory.kept->parts, tag, sums); };
      const bool mine = first == static_cast<int>(blockIdx.x);
      done = stream_epilogue<Tile, kProducts>(epilogue, x.rows, x.columns[at.chain], at.column, sums, mine, join);
    });
    return done;
  }
  __device__ __forceinline__ void compute(int64_t) const {}
};

// The threads that have a row there (see rowwise.cuh).
struct OfWarpgroup {
  __device__ static __forceinline__ int lanes() { return kWarpgroup; }
  __device__ static __forceinline__ void sync() { sync_threads(1, kWarpgroup); }
};

// What is computed in pieces as a phase: `one(i)` computes one of `count`, by a warpgroup.
template <class One>
struct PiecePhase {
  unsigned count;
  One one;

  __device__ __forceinline__ StreamView view() const { return {}; }
  __device__ __forceinline__ unsigned parts() const { return count; }
  __device__ __forceinline__ void announce() const {}
  template <class Tile>
  __device__ __forceinline__ bool finish(int, const PhaseMemory&, uint32_t, float*) const {
    return false;
  }
  __device__ __forceinline__ void compute(int64_t i) const { one(i); }
};

template <int kProducts, int kChains, class Each>
__device__ __forceinline__ auto product_phase(const StreamOperands<kProducts, kChains>& x, const Each& each) {
  return ProductPhase<kProducts, kChains, Each>{x, each};
}
template <class One>
__device__ __forceinline__ auto piece_phase(int64_t count, const One& one) {
  return PiecePhase<One>{static_cast<unsigned>(count), one};
}

// A whole kernel: a phase reads what those before it made. `early`: the right operands are there before any kernel runs.
template <class T, int kRows, class... Phases>
__device__ __forceinline__ void few_phases(bool early, const PhaseMemory& memory, const Phases&... phases) {
  using Tile = StreamTile<kRows>;
  constexpr int kPhases = sizeof...(Phases);
  static_assert(kPhases <= kMostPhases);
  extern __shared__ uint4 dynamic[];
  const uint32_t base = (shared_address(dynamic) + 1023) / 1024 * 1024;
  float* const sums = reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(dynamic) + (base - shared_address(dynamic)) +
                                               Tile::kSlots * Tile::kSlotBytes);
  __shared__ Barrier begun[kPhases], left[Tile::kSlots], right[Tile::kSlots], empty[Tile::kSlots];
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kSlots; ++i) left[i].init(1), right[i].init(1), empty[i].init(kWarpgroup / 32);
    for (Barrier& phase : begun) phase.init(1);
    publish_barriers();
  }
  StreamRing<Tile> ring{base, left, right, empty, begun};
  // Calls `use` with a phase, which is known here by its number alone.
  const auto with = [&](int phase, const auto& use) {
    int n = 0;
    ((n++ == phase ? use(phases) : void()), ...);
  };
  const auto view = [&](int phase) {
    StreamView x;
    with(phase, [&](const auto& y) { x = y.view(); });
    return x;
  };
  const auto parts = [&](int phase) {
    unsigned n = 0;
    with(phase, [&](const auto& y) { n = y.parts(); });
    return n;
  };
  const int warp = static_cast<int>(threadIdx.x) / 32;
  // Meanwhile, as it takes as long as the barriers.
  StreamView x = view(0);
  StreamPath path(x.shares, blockIdx.x);
  if (path.count > 0) path.row_of(0);
  __syncthreads();
  const auto go_on = [&](int phase) {
    if (phase == 0) return;
    x = view(phase);
    path = StreamPath(x.shares, blockIdx.x);
  };
  if (warp == kRightWarp) {
    if (!is_elected()) return;
    (phases.announce(), ...);
    if (!early) await_earlier();
#pragma unroll 1
    for (int phase = 0; phase < kPhases; ++phase) {
      go_on(phase);
      stream_right(x, path, phase, ring);
    }
    let_next_begin();  // a multiprocessor has no room for two blocks: the next ones come evenly, where these have ended
  } else if (warp == kLeftWarp) {
    if (!is_elected()) return;
    await_earlier();
    const unsigned launch = kPhases > 1 ? memory.launch() : 0;
#pragma unroll 1
    for (int phase = 0; phase < kPhases; ++phase) {
      go_on(phase);
      if (path.count > 0 && phase > 0) memory.await(launch, phase - 1, parts(phase - 1));
      ring.begun[phase].arrive();
      stream_left(x, path, ring);
    }
  } else {
    await_earlier();
    const unsigned launch = memory.launch();
#pragma unroll 1
    for (int phase = 0; phase < kPhases; ++phase) {
      go_on(phase);
      const unsigned count = x.left == nullptr ? parts(phase) : 0;
      int step = path.from;
      const int end = step + path.count;
      if (phase > 0 && (step < end || blockIdx.x < count)) {
        if (threadIdx.x == 0) memory.await(launch, phase - 1, parts(phase - 1));
        sync_threads(1, kWarpgroup);
      }
#pragma unroll 1
      for (int stop; step < end; step = stop) {
        const int strip = x.shares.strip(step);
        stop = min((strip + 1) * x.shares.steps, end);
        stream_sums<T>(stop - step, ring, sums);
        bool done = false;
        with(phase, [&](const auto& y) { done = y.template finish<Tile>(strip, memory, memory.tag(launch, phase), sums); });
        if (done && phase + 1 < kPhases) memory.add(launch, phase);
        sync_threads(1, kWarpgroup);
      }
#pragma unroll 1
      for (unsigned i = blockIdx.x; i < count; i += gridDim.x) {
        with(phase, [&](const auto& y) { y.compute(i); });
        if (phase + 1 < kPhases) memory.add(launch, phase);
        sync_threads(1, kWarpgroup);  // before the next one uses the same shared memory
      }
    }
    memory.end(launch);
  }
}

// Launches a kernel for products of at most so many rows; `start(rows, blocks)` is told for how many it is compiled, and gives
// false where that does not take the operands.
template <class Start>
bool with_stream_rows(const Device& device, std::initializer_list<int64_t> rows, const Start& start) {
  int64_t most = 0;
  for (const int64_t x : rows) most = x > most ? x : most;
  const unsigned blocks = device.multiprocessors < kStreamBlocks ? device.multiprocessors : kStreamBlocks;
  return most <= 8 ? start(std::integral_constant<int, 8>(), blocks) : start(std::integral_constant<int, 16>(), blocks);
}

}  // namespace fusion::gpu
#endif
