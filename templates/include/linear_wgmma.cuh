// Products of many rows on Hopper's tensor cores: one thread has the copy engine bring tiles of the operands, warpgroups
// of 64 rows each multiply them as they come, and a generated epilogue takes the sums, eight neighbours of a row at a time.
#pragma once

#include "include/linear.cuh"
#include "include/vector.cuh"
#include "include/wgmma.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

// What a block computes at a time: kWorkers * 64 rows, and kColumns columns of each of kProducts products of one left
// operand. Tiles of the operands, 64 deep, go through a ring of kSlots; kBlocks blocks share a multiprocessor, and need
// kCycles for a step together.
template <int kWorkers_, int kColumns_, int kProducts_, int kSlots_, int kBlocks_, int kCycles_>
struct WideTile {
  static constexpr int kWorkers = kWorkers_, kColumns = kColumns_, kProducts = kProducts_, kSlots = kSlots_;
  static constexpr int kBlocks = kBlocks_, kCycles = kCycles_;
  static constexpr int kRows = kWorkers * 64, kAcross = kColumns * kProducts;
  // The copy engine brings boxes of 64 by 64; those of the left operand come at once.
  static constexpr int kBoxBytes = kPanel * kPanel * 2, kLeftBytes = kWorkers * kBoxBytes, kBoxes = kAcross / kPanel;
  static constexpr int kSlotBytes = kLeftBytes + kBoxes * kBoxBytes, kBytes = 1024 + kSlots * kSlotBytes;
  static constexpr int kThreads = kWarpgroup * (1 + kWorkers);
  // Registers of a thread: of all at first, of the copying warpgroup, of the others.
  static constexpr int kEven = 65536 / (kThreads * kBlocks) / 8 * 8, kFew = 40;
  static constexpr int kMany = (kEven * (1 + kWorkers) - kFew) / kWorkers / 8 * 8;
  static_assert(kColumns % kPanel == 0 && kAcross <= 256 && kMany <= 240);
};

// Calls f with the tiles that are compiled in, the best of large products first. The cycles of a step were measured on an
// H200 at 2048x16384x4096 and 512x4096x4096; more than 256 columns do not fit in registers.
template <int kProducts, class F>
void for_wide_tiles(const F& f) {
  f(WideTile<2, 256 / kProducts, kProducts, 4, 1, 1075>{});
  if constexpr (kProducts == 1) f(WideTile<2, 192, 1, 5, 1, 815>{});
  f(WideTile<1, 128 / kProducts, kProducts, 4, 2, 620>{});
}

// Operands of products of one left operand [rows, depth] and right ones [depth, columns].
template <int kProducts>
struct WideOperands {
  TensorMap left, right[kProducts];
  int rows, depth, columns;
};

// Tiles in an order in which those that run at once have rows and columns in common.
template <class Tile>
struct WidePosition {
  int row, column;
  __device__ __forceinline__ WidePosition(const WideOperands<Tile::kProducts>& x, int tile) {
    constexpr int kBand = 16;  // tiles that lie below one another
    const int across = (x.columns + Tile::kColumns - 1) / Tile::kColumns, down = (x.rows + Tile::kRows - 1) / Tile::kRows;
    const int band = kBand * across, first = tile / band * kBand, height = min(kBand, down - first);
    row = (first + tile % band % height) * Tile::kRows;
    column = tile % band / height * Tile::kColumns;
  }
};

template <class Tile>
__host__ __device__ __forceinline__ int wide_tiles(int rows, int columns) {
  return (rows + Tile::kRows - 1) / Tile::kRows * ((columns + Tile::kColumns - 1) / Tile::kColumns);
}

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

// The epilogue reads its operands for eight neighbours of a row, `fetch`, some time before it has their sums, `store`.
template <class T, class Tile, bool kTransB, class Epilogue>
__device__ __forceinline__ void linear_wgmma(const WideOperands<Tile::kProducts>& x, const Epilogue& epilogue) {
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
  const int tiles = wide_tiles<Tile>(x.rows, x.columns), steps = (x.depth + kPanel - 1) / kPanel;
  const int worker = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  unsigned n = 0;
  if (worker < 0) {
    give_registers<Tile::kFew>();
    if (threadIdx.x > 0) return;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const WidePosition<Tile> at(x, tile);
      for (int step = 0; step < steps; ++step, ++n) {
        const unsigned slot = n % kSlots;
        if (n >= kSlots) empty[slot].wait(phase(n - kSlots));
        full[slot].arrive_expecting(Tile::kSlotBytes);
        const uint32_t left = ring + slot * Tile::kSlotBytes, right = left + Tile::kLeftBytes;
        copy_box(left, x.left, full[slot], step * kPanel, at.row);
#pragma unroll
        for (int i = 0; i < Tile::kBoxes; ++i) {
          const int column = at.column + i * kPanel % Tile::kColumns;
          copy_box(right + i * Tile::kBoxBytes, x.right[i * kPanel / Tile::kColumns], full[slot],
                   kTransB ? step * kPanel : column, kTransB ? column : step * kPanel);
        }
      }
    }
    return;
  }

  take_registers<Tile::kMany>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kWarpgroup / 32;
  const auto release = [&](unsigned n) {
    if (lane == 0) empty[n % kSlots].arrive();
  };
  float c[Tile::kAcross / 8][4];
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
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

    const WidePosition<Tile> at(x, tile);
    constexpr int kParts = Tile::kColumns / 16, kTogether = 4, kAhead = 2;
    const auto row = [&](int i) { return at.row + worker * 64 + warp * 16 + lane / 4 + i % 2 * 8; };
    const auto column = [&](int i) { return at.column + i / 2 * 32 + lane % 4 * 8; };
    const auto inside = [&](int i) { return i < kParts && row(i) < x.rows && column(i) < x.columns; };
    typename Epilogue::Operands ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (inside(i)) ahead[i] = epilogue.fetch(row(i), column(i));
    }
    products_wait<0>();
    products_of(c);
    release(n - 1);
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
        if (inside(next)) ahead[i % kAhead] = epilogue.fetch(row(next), column(next));
        if (inside(first + i)) epilogue.store(row(first + i), column(first + i), sums, operands);
      }
      constexpr int kDone = kTogether * 2;
#pragma unroll
      for (int j = 0; j + kDone < Tile::kAcross / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) c[j][e] = c[j + kDone][e];
      }
    }
  }
}

constexpr int kWideRows = 64;  // fewer would leave most of a tile empty

// Describes what products are made of, each given as a stage's operands (a, b, p, batches): of one left operand and one
// shape, in one batch. False where the copy engine or the epilogue's eights do not suit them.
template <bool kTransB, class First, class... Others>
bool describe_wide(WideOperands<1 + sizeof...(Others)>& x, const First& first, const Others&... others) {
  const Product& p = first.p;
  const auto one = [](const auto& y) { return y.batches.rank == 0 && y.batches.count == 1; };
  if (!(one(first) && ... && one(others)) || p.m < kWideRows || p.n == 0 || p.n % 8 != 0 || p.k == 0) return false;
  if (p.a_k != 1 || p.m > INT32_MAX / 2 || p.n > INT32_MAX / 2 || p.k > INT32_MAX / 2) return false;
  x.rows = static_cast<int>(p.m), x.columns = static_cast<int>(p.n), x.depth = static_cast<int>(p.k);
  TensorMap* map = x.right;
  const auto right = [&](const auto& y) {
    const Product& q = y.p;
    return kTransB ? q.b_k == 1 && describe(*map++, y.b, q.n, q.k, q.b_column, kPanel)
                   : q.b_column == 1 && describe(*map++, y.b, q.k, q.n, q.b_k, kPanel);
  };
  return (right(first) && ... && right(others));
}

// Cycles of a product by this tile: about 3000 to start, and 8000 for the epilogue of 128x256 elements.
template <class Tile>
double wide_cycles(const Device& device, int64_t rows, int64_t columns, int64_t depth) {
  const int64_t tiles = ceil_div(rows, Tile::kRows) * ceil_div(columns, Tile::kColumns);
  const double rounds = static_cast<double>(ceil_div(tiles, int64_t{device.multiprocessors} * Tile::kBlocks));
  const double epilogue = 8000.0 / (128 * 256) * Tile::kRows * Tile::kAcross * Tile::kBlocks;
  return 3000 + rounds * (static_cast<double>(ceil_div(depth, kPanel)) * Tile::kCycles + epilogue);
}
template <int kProducts>
double wide_cycles(const Device& device, int64_t rows, int64_t columns, int64_t depth) {
  double least = -1;
  for_wide_tiles<kProducts>([&](auto tile) {
    const double cycles = wide_cycles<decltype(tile)>(device, rows, columns, depth);
    if (least < 0 || cycles < least) least = cycles;
  });
  return least;
}

// Has f(tile, blocks) launch the kernel of the tile that is fastest, if the copy engine takes the left operand.
template <int kProducts, class F>
bool with_wide_tile(const Device& device, WideOperands<kProducts>& x, const void* left, int64_t stride, const F& f) {
  const double least = wide_cycles<kProducts>(device, x.rows, x.columns, x.depth);
  bool done = false;
  for_wide_tiles<kProducts>([&](auto tile) {
    using Tile = decltype(tile);
    if (done || wide_cycles<Tile>(device, x.rows, x.columns, x.depth) > least) return;
    if (!describe(x.left, left, x.rows, x.depth, stride, Tile::kRows)) return;
    const int tiles = wide_tiles<Tile>(x.rows, x.columns), most = device.multiprocessors * Tile::kBlocks;
    f(tile, static_cast<unsigned>(tiles < most ? tiles : most));
    done = true;
  });
  return done;
}

// Whether our product is faster than the vendor's and a pass over its result, which sees 14 bytes a cycle of each
// multiprocessor. Of more multiplications the power that a GPU may take is the limit, and the vendor's needs no more of
// it. Measured on an H200, SiLU after a bias: 24 % faster at 1024x3072x768 (rows, columns, depth), 14 % at
// 512x4096x4096, the same at 2048x4096x4096, 3 % slower at 2048x16384x4096; with GELU the same at 1024x3072x768.
inline bool wide_pays(const Device& device, const Product& p) {
  constexpr double kMost = 1.2e10, kVendorStart = 6000, kVendorPerCycle = 2048 * 0.8;
  const double elements = static_cast<double>(p.m) * static_cast<double>(p.n), depth = static_cast<double>(p.k);
  const double share = elements / device.multiprocessors;
  const double vendor = kVendorStart + share * depth / kVendorPerCycle + share * 4 / 14;
  return elements * depth <= kMost && wide_cycles<1>(device, p.m, p.n, p.k) < vendor;
}

}  // namespace fusion::gpu
#endif
