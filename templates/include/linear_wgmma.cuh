// Products of many rows on Hopper's tensor cores: one thread has the copy engine bring tiles of the operands, warpgroups
// of 64 rows each multiply them as they come, and a generated epilogue takes the sums, eight neighbours of a row at a time.
#pragma once

#include "include/vector.cuh"
#include "include/wide_tile.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

// Of 32 columns of a row, of which four lanes have pairs out of every eight, lane l gets eight neighbours from 8 l on.
__device__ __forceinline__ void gather(float (&out)[8], const float (*c)[4], int half, int lane) {
#pragma unroll
  for (int j = 0; j < 4; ++j) out[j * 2] = c[j][half * 2], out[j * 2 + 1] = c[j][half * 2 + 1];
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j & bit) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float &low = out[j * 2 + e], &high = out[(j | bit) * 2 + e];
        const float got = __shfl_xor_sync(0xffffffffu, upper ? low : high, bit);
        low = upper ? got : low;
        high = upper ? high : got;
      }
    }
  }
}

// Whether rows can be read or written eight neighbours at a time, or have one element for all columns.
template <class T>
bool in_eights(const T* p, int64_t row, int64_t column) {
  return column == 0 || (column == 1 && row % 8 == 0 && reinterpret_cast<uintptr_t>(p) % alignof(Chunk<T, 8>) == 0);
}
template <class T>
__device__ __forceinline__ void fetch_eight(Chunk<T, 8>& to, const T* p, int64_t column) {
  if (column != 0) {
    to = *reinterpret_cast<const Chunk<T, 8>*>(p);
  } else {
    const T element = *p;
#pragma unroll
    for (T& e : to.element) e = element;
  }
}
template <class T, class X>
__device__ __forceinline__ void store_eight(T* p, const X (&x)[8]) {
  Chunk<T, 8> chunk;
#pragma unroll
  for (int i = 0; i < 8; ++i) store(&chunk.element[i], x[i]);
  *reinterpret_cast<Chunk<T, 8>*>(p) = chunk;
}

// Hands the sums of a tile from `row` and `column` on to an epilogue, which reads its operands for eight neighbours of a
// row, `fetch`, some time before it has their sums, `store`; `finish` waits for these.
template <class Tile, class Epilogue, int kSums, class Finish>
__device__ __forceinline__ void hand_on(float (&c)[kSums][4], int rows, int columns, int row, int column,
                                        const Epilogue& epilogue, const Finish& finish) {
  constexpr int kParts = Tile::kColumns / 16, kTogether = kParts < 4 ? kParts : 4, kAhead = 2;
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kWarpgroup / 32;
  const auto down = [&](int i) { return row + warp * 16 + lane / 4 + i % 2 * 8; };
  const auto across = [&](int i) { return column + i / 2 * 32 + lane % 4 * 8; };
  const auto inside = [&](int i) { return i < kParts && down(i) < rows && across(i) < columns; };
  typename Epilogue::Operands ahead[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (inside(i)) ahead[i] = epilogue.fetch(down(i), across(i));
  }
  finish();
  // A loop, since its body is long and instructions have to come from memory, too: what is next moves down to its place.
#pragma unroll 1
  for (int first = 0; first < kParts; first += kTogether) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      float sums[Tile::kProducts][8];
#pragma unroll
      for (int p = 0; p < Tile::kProducts; ++p) gather(sums[p], c + p * (Tile::kColumns / 8) + i / 2 * 4, i % 2, lane);
      const auto operands = ahead[i % kAhead];
      const int next = first + i + kAhead;
      if (inside(next)) ahead[i % kAhead] = epilogue.fetch(down(next), across(next));
      if (inside(first + i)) epilogue.store(down(first + i), across(first + i), sums, operands);
    }
    constexpr int kDone = kTogether * 2;
#pragma unroll
    for (int j = 0; j + kDone < kSums; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) c[j][e] = c[j + kDone][e];
    }
  }
}

// Calls f with the epilogue of a chain.
template <class F, class First, class... Others>
__device__ __forceinline__ void with_epilogue(int chain, const F& f, const First& first, const Others&... others) {
  if constexpr (sizeof...(others) == 0) {
    f(first);
  } else if (chain == 0) {
    f(first);
  } else {
    with_epilogue(chain - 1, f, others...);
  }
}

template <class T, class Tile, bool kTransB, int kChains, class... Epilogues>
__device__ __forceinline__ void linear_wgmma(const WideOperands<Tile::kProducts, kChains>& x,
                                             const Epilogues&... epilogues) {
  constexpr int kSlots = Tile::kSlots;
  extern __shared__ uint4 dynamic[];
  const uint32_t ring = (shared_address(dynamic) + 1023) / 1024 * 1024;
  __shared__ Barrier full[kSlots], empty[kSlots];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) full[i].init(1), empty[i].init(Tile::kWorkers * 4);
    publish_barriers();
  }
  __syncthreads();

  // How often a place has been filled tells its phase.
  const auto phase = [](unsigned n) { return static_cast<int>(n / kSlots % 2); };
  const int tiles = wide_across<Tile>(x.columns) * wide_down<Tile>(x.rows), steps = (x.depth + kPanel - 1) / kPanel;
  const int worker = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  // What right operands the first steps need, mostly weights, comes nearer while kernels before this one still run.
  const auto each_box = [&](const WidePosition<Tile>& at, int step, const auto& f) {
#pragma unroll
    for (int i = 0; i < Tile::kBoxes; ++i) {
      const int column = at.column + i * kPanel % Tile::kColumns;
      f(i, x.right[at.chain][i * kPanel / Tile::kColumns], kTransB ? step * kPanel : column, kTransB ? column : step * kPanel);
    }
  };
  if (threadIdx.x == 0 && static_cast<int>(blockIdx.x) < tiles) {
    const WidePosition<Tile> at(x, static_cast<int>(blockIdx.x));
    for (int step = 0; step < min(steps, kSlots); ++step) {
      each_box(at, step, [](int, const TensorMap& map, int column, int row) { prefetch_box(map, column, row); });
    }
  }
  await_earlier();

  unsigned n = 0;
  if (worker < 0) {
    if constexpr (Tile::kMoves) give_registers<Tile::kFew>();
    if (threadIdx.x > 0) return;
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
      const WidePosition<Tile> at(x, tile);
      for (int step = 0; step < steps; ++step, ++n) {
        const unsigned slot = n % kSlots;
        if (n >= kSlots) empty[slot].wait(phase(n - kSlots));
        full[slot].arrive_expecting(Tile::kSlotBytes);
        const uint32_t left = ring + slot * Tile::kSlotBytes, right = left + Tile::kLeftBytes;
        copy_box(left, x.left, full[slot], step * kPanel, at.row);
        each_box(at, step, [&](int i, const TensorMap& map, int column, int row) {
          copy_box(right + i * Tile::kBoxBytes, map, full[slot], column, row);
        });
      }
    }
    return;
  }

  if constexpr (Tile::kMoves) take_registers<Tile::kMany>();
  const auto release = [&](unsigned n) {
    if (threadIdx.x % 32 == 0) empty[n % kSlots].arrive();
  };
  float c[Tile::kAcross / 8][4];
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    for (int step = 0; step < steps; ++step, ++n) {
      const unsigned slot = n % kSlots;
      const uint32_t left = ring + slot * Tile::kSlotBytes + worker * Tile::kBoxBytes;
      const uint32_t right = ring + slot * Tile::kSlotBytes + Tile::kLeftBytes;
      full[slot].wait(phase(n));
      products_of(c);
      products_begin();
#pragma unroll
      for (int k = 0; k < kPanel; k += 16) {
        using Product = WarpgroupProduct<T, Tile::kAcross>;
        if constexpr (kTransB) {
          Product::by_rows(c, panel(left + k * 2), panel(right + k * 2), step + k > 0);
        } else {
          Product::by_columns(c, panel(left + k * 2), panel(right + k * 128, Tile::kBoxBytes), step + k > 0);
        }
      }
      products_commit();
      if (step > 0) {
        products_wait<1>();
        release(n - 1);
      }
    }

    if (tile + static_cast<int>(gridDim.x) >= tiles) let_next_begin();
    const WidePosition<Tile> at(x, tile);
    const auto wait = [&] {
      products_wait<0>();
      products_of(c);
      release(n - 1);
    };
    with_epilogue(
        at.chain,
        [&](const auto& epilogue) {
          hand_on<Tile>(c, x.rows, x.columns[at.chain], at.row + worker * 64, at.column, epilogue, wait);
        },
        epilogues...);
  }
}

}  // namespace fusion::gpu
#endif
