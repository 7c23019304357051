// Products of float32 on Hopper's tensor cores, whose factors are rounded to TF32. These take a right operand from shared
// memory alone, contiguous along the depth, and would cut its last bits off: warps read it, round and turn it on the way.
// The copy engine brings the left one, which is rounded in registers.
#pragma once

#include "include/linear_tf32.cuh"
#include "include/wgmma.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

// What a block computes: each of two warpgroups has 64 rows of kColumns columns, two more bring tiles of the operands in turn
// to a ring of kSlots, the right ones by way of their registers, where each has those of kHeld steps. A block takes kStart
// cycles, and kStep for every 32 of the depth; a multiprocessor gets kBytes of the right operands a cycle.
template <int kColumns_, int kSlots_, int kHeld_, int kStart_, int kStep_>
struct Tf32Groups {
  static constexpr bool kHopper = true;
  static constexpr int kColumns = kColumns_, kSlots = kSlots_, kHeld = kHeld_, kStart = kStart_, kStep = kStep_;
  static constexpr int kWorkers = 2, kCopiers = 2, kRows = kWorkers * 64, kDepth = 32;
  static constexpr double kBytes = 7.5;
  // A warp's sums, as Tf32Sums sees them.
  static constexpr int kWarpRows = 16, kWarpColumns = kColumns, kGroups = 1, kGroupThreads = kWorkers * kWarpgroup;
  static constexpr int kEightsAcross = kWarpColumns / 32, kEights = kWarpRows / 8 * kEightsAcross;
  static constexpr int kThreads = kGroupThreads + kCopiers * kWarpgroup;
  static constexpr int kLeftBytes = kRows * 128, kSlotBytes = kLeftBytes + kColumns * 128;
  // Registers of a thread that copies, of one that multiplies.
  static constexpr int kFew = kHeld * kColumns / 4 + 48;
  static constexpr int kMany = (65536 / kWarpgroup - kCopiers * kFew) / kWorkers / 8 * 8;
  static_assert(kColumns % 64 == 0 && kMany >= kColumns / 2 + 64);

  // Of the ring, where sums lie afterwards.
  template <bool kTransB>
  static constexpr int bytes(int) {
    return 1024 + kSlots * kSlotBytes;
  }
  template <bool kTransB>
  static constexpr int most_bytes(int) {
    return bytes<kTransB>(1);
  }
  static_assert((kEights + kMostParts - 1) * kGroupThreads * 32 <= kSlots * kSlotBytes);
};

// What a thread of a copying warpgroup brings of every step's right operand: blocks of four columns, four deep, or
// sixteen bytes of its columns where these are contiguous.
template <class Tile, bool kTransB>
struct TurnedRight {
  static constexpr int kChunks = Tile::kColumns / 16;
  int warp = threadIdx.x % kWarpgroup / 32, lane = threadIdx.x % 32;
  // Blocks that eight lanes store at once lie in different banks.
  int block = lane / 8 + lane / 4 % 2 * 4, n = kTransB ? warp * 4 + lane / 8 : warp / 2 * 32 + block * 4;
  int k = kTransB ? lane % 8 * 4 : warp % 2 * 16 + lane % 4 * 4, columns, stride, depth;
  const float* from;

  __device__ __forceinline__ TurnedRight(const float* matrix, int column, int columns, int stride, int depth)
      : columns(columns - column - n), stride(stride), depth(depth - k),
        from(matrix + (kTransB ? int64_t{column + n} * stride + k : int64_t{k} * stride + column + n)) {}

  __device__ __forceinline__ void load(uint4 (&x)[kChunks], int step) const {
    const float* const at = from + int64_t{step} * (kTransB ? Tile::kDepth : Tile::kDepth * stride);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int across = kTransB ? i * 16 : i / 4 * 64, down = kTransB ? 0 : i % 4;
      const bool inside = across < columns && step * Tile::kDepth + down < depth;
      x[i] = inside ? *reinterpret_cast<const uint4*>(at + (kTransB ? across * stride : down * stride + across)) : uint4{};
    }
  }

  // Columns come in the order of EveryFourth, so that a thread has sums of eight neighbours.
  __device__ __forceinline__ void store(unsigned char* to, const uint4 (&x)[kChunks]) const {
    const auto put = [&](int group, int place, int piece, uint32_t (&four)[4]) {
      round_all(four);
      *reinterpret_cast<uint4*>(to + (group * 32 + place) * 128 + (piece ^ place % 8) * 16) = {four[0], four[1], four[2], four[3]};
    };
    if constexpr (kTransB) {
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const int n = (i * 4 + warp) * 4 + lane / 8;
        uint32_t four[] = {x[i].x, x[i].y, x[i].z, x[i].w};
        put(n / 32, n % 4 * 8 + n % 32 / 4, lane % 8, four);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kChunks; i += 4) {
        const int unit = i + warp, piece = unit % 2 * 4 + lane % 4;
        uint32_t a[] = {x[i].x, x[i + 1].x, x[i + 2].x, x[i + 3].x}, b[] = {x[i].y, x[i + 1].y, x[i + 2].y, x[i + 3].y};
        uint32_t c[] = {x[i].z, x[i + 1].z, x[i + 2].z, x[i + 3].z}, d[] = {x[i].w, x[i + 1].w, x[i + 2].w, x[i + 3].w};
        put(unit / 2, block, piece, a), put(unit / 2, 8 + block, piece, b);
        put(unit / 2, 16 + block, piece, c), put(unit / 2, 24 + block, piece, d);
      }
    }
  }
};

template <class Tile, bool kTransB, int kProducts, class... Epilogues>
__device__ __forceinline__ void linear_tf32_wgmma(const Tf32Operands<kProducts>& x, const Epilogues&... epilogues) {
  constexpr int kSlots = Tile::kSlots, kDepth = Tile::kDepth, kBatch = 2;
  extern __shared__ uint4 dynamic[];
  unsigned char* const ring = reinterpret_cast<unsigned char*>(dynamic) + (1024 - shared_address(dynamic) % 1024) % 1024;
  __shared__ Barrier barriers[2 * kSlots];
  Barrier* full = barriers;
  keep(full);  // the compiler would ask for the block's place in its cluster at every use
  Barrier* const empty = full + kSlots;
  __shared__ Mailbox mailbox;
  const int parts = x.parts, part = static_cast<int>(blockIdx.x) % parts;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) full[i].init(1 + 4), empty[i].init(Tile::kWorkers * 4);
    publish_barriers();
    if (parts > 1) mailbox.open((Tile::kEights - part + parts - 1) / parts * parts * Tile::kGroupThreads * 32);
  }
  __syncthreads();

  const Tf32Position<Tile> at(x, static_cast<int>(blockIdx.x) / parts);
  const float* const matrix = x.right[at.product];
  const int columns = x.columns[at.product], stride = x.right_stride[at.product];
  const int steps = (x.depth + kDepth - 1) / kDepth, first = steps * part / parts, end = steps * (part + 1) / parts;
  const int count = end - first, warp = static_cast<int>(threadIdx.x) / 32;
  bring_first<Tile, kTransB>(matrix, stride, at.column, columns, first, end, x.depth);
  await_earlier();
  const auto phase = [](int n) { return n / kSlots % 2; };

  if (threadIdx.x >= Tile::kGroupThreads) {
    give_registers<Tile::kFew>();
    constexpr int kHeld = Tile::kHeld, kCopiers = Tile::kCopiers;
    const TurnedRight<Tile, kTransB> right(matrix, at.column, columns, stride, x.depth);
    uint4 held[kHeld][TurnedRight<Tile, kTransB>::kChunks];
    const int own = warp / 4 - Tile::kWorkers;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) right.load(held[h], first + own + h * kCopiers);
    for (int begin = own; begin < count; begin += kHeld * kCopiers) {
#pragma unroll
      for (int h = 0; h < kHeld; ++h) {
        const int n = begin + h * kCopiers, next = n + kHeld * kCopiers, slot = n % kSlots;
        if (n >= count) break;
        unsigned char* const left = ring + slot * Tile::kSlotBytes;
        if (n >= kSlots) empty[slot].wait(phase(n - kSlots));
        if (threadIdx.x % kWarpgroup < 32 && is_elected()) {
          full[slot].arrive_expecting(Tile::kLeftBytes);
          copy_box(shared_address(left), x.map, full[slot], (first + n) * kPanel, at.row);
        }
        right.store(left + Tile::kLeftBytes, held[h]);
        publish_copies();
        __syncwarp();
        if (threadIdx.x % 32 == 0) full[slot].arrive();
        right.load(held[h], next < count ? first + next : steps);
      }
    }
    return;
  }

  take_registers<Tile::kMany>();
  float c[1][Tile::kColumns / 8][4] = {};
  const auto release = [&](int n) {
    if (threadIdx.x % 32 == 0) empty[n % kSlots].arrive();
  };
  // Products read a batch's left operand in one set of registers while the next one's comes to the other.
  using Batch = uint32_t[kBatch][4];
  Batch operands[2];
  for (int n = 0; n < count; ++n) {
    const unsigned char* const left = ring + n % kSlots * Tile::kSlotBytes;
    const uint64_t right = panel(shared_address(left) + Tile::kLeftBytes);
    full[n % kSlots].wait(phase(n));
#pragma unroll
    for (int batch = 0; batch < kDepth / 8 / kBatch; ++batch) {
      Batch& a = operands[batch % 2];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int row = warp * 16 + threadIdx.x % 16, piece = (batch * kBatch + k) * 2 + threadIdx.x % 32 / 16;
        load_matrices(a[k], left + row * 128 + (piece ^ row % 8) * 16);
        round_all(a[k]);
      }
      products_of(c[0]);
      products_begin();
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        WarpgroupProduct<float, Tile::kColumns>::by_rows(c[0], a[k], further(right, (batch * kBatch + k) * 32), true);
      }
      products_commit();
      products_wait<1>();
      if (batch == 0 && n > 0) release(n - 1);
    }
  }
  products_wait<0>();
  products_of(c[0]);
  let_next_begin();

  if (parts > 1) {
    Mailbox::meet();
  } else {
    sync_threads(1, Tile::kGroupThreads);  // all have left the ring
  }
  const Tf32Sums<Tile> sums{reinterpret_cast<float*>(ring), mailbox, parts, part};
  sums.give(c);
  const auto finish = [&] {
    if (parts > 1) mailbox.await_all();
  };
  int product = 0;
  const auto run = [&](const auto& epilogue) {
    hand_on_sums(sums, x.rows, columns, at.row + warp * 16, at.column, epilogue, finish);
  };
  ((product++ == at.product ? run(epilogues) : void()), ...);
}

}  // namespace fusion::gpu
#endif
