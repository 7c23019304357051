// What follows a product on Hopper whose operands changed places, where what an epilogue reads is alike in all rows: results are computed
// where the tensor cores leave the sums, eight rows of a column at a time, and turned on their way through shared memory, as 16 bits: half
// the bytes, and a fifth of the instructions, of sums on their way to whole rows. On an H200 three of 1024x768x768 with a bias each take
// 7.5 us for 7.9, of 512 rows 5.2 for 5.4; with GELU 13.8 for 14.0 at 1576x3072x768. The same of tiles that do not change places saves bytes
// but no instructions, and is no faster: 10.3 for 9.9 with GELU at 1024x3072x768, 31.1 for 31.2 at 4096 rows.
#pragma once

#include "include/wide_epilogue.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

// As TileEnding. A worker's warps have 16 columns each of its panel, a lane one of the first eight of them and one of the others; they put
// 32 rows at a time together, in two places in turn: while some of the threads still take rows, others may give the next ones.
template <class Tile, class Epilogue>
struct ColumnEnding {
  static constexpr int kTogether = 32, kParts = (Tile::kRows + kTogether - 1) / kTogether, kEights = Tile::kRows / 8;
  static constexpr int kPitch = kPanel * 2 + 16;
  static_assert(kTogether * kPitch <= kWorkerPlaceBytes);
  const Epilogue& epilogue;
  int rows, columns, row, column;
  typename Epilogue::Operands operands[2];

  __device__ __forceinline__ ColumnEnding(const Epilogue& epilogue, int rows, int columns, int row, int column)
      : epilogue(epilogue), rows(min(rows, row + Tile::kRows)), columns(columns), row(row), column(column) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      epilogue.fetch_column(operands[half], min(column + warp() * 16 + half * 8 + lane() / 4, columns - 1));
    }
  }
  static __device__ __forceinline__ int warp() { return threadIdx.x % kWarpgroup / 32; }
  static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }

  // Of 32 rows, those of both columns that a lane has, two in a word.
  __device__ __forceinline__ void compute(uint32_t (&words)[2][4], const typename Tile::Sums& c, int part) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sums[1][8], results[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int eight = min(part * 4 + i / 2, kEights - 1);  // of rows that a tile has not nothing is stored
        sums[0][i] = c[0][eight][half * 2 + i % 2];
      }
      epilogue.compute(results, sums, operands[half]);
#pragma unroll
      for (int j = 0; j < 4; ++j) words[half][j] = pack<typename Epilogue::Out>(results[j * 2], results[j * 2 + 1]);
    }
  }
  // `shared`: where the worker's places begin.
  __device__ __forceinline__ void operator()(const typename Tile::Sums& c, int passes, unsigned char* shared) {
    keep(passes);
    const int to = (lane() / 16 * 8 + lane() % 8) * kPitch + warp() * 32 + lane() / 8 % 2 * 16;
    const int first = warp() * 4 + lane() / 8, from = first * kPitch + lane() % 8 * 16, there = column + lane() % 8 * 8;
#pragma unroll
    for (auto& x : operands) epilogue.spread(x, true);
    WorkerSums<Tile>::meet();  // before others give the first rows
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      unsigned char* const place = shared + part % 2 * kWorkerPlaceBytes;
      uint32_t words[2][4];
      compute(words, c, part);
#pragma unroll
      for (int two = 0; two < 4; two += 2) {
        if (part * 4 + two >= kEights) continue;
        const uint32_t four[4]{words[0][two], words[1][two], words[0][two + 1], words[1][two + 1]};
        store_matrices_transposed(four, place + to + two * 8 * kPitch);
      }
      WorkerSums<Tile>::meet();
#pragma unroll
      for (int turn = 0; turn < 2; ++turn) {
        if (part * 4 + turn * 2 >= kEights) continue;
        const int below = row + part * kTogether + turn * 16 + first;
        const bool inside = below < rows && there < columns;
        const uint4 eight = *reinterpret_cast<const uint4*>(place + from + turn * 16 * kPitch);
        store_if(inside && passes == 0, inside && passes != 0, reinterpret_cast<uint4*>(epilogue.out(below, there)), eight);
      }
    }
  }
};

}  // namespace fusion::gpu
#endif
