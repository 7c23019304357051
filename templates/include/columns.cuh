// Reductions along an axis whose neighbours are apart in memory: a warp reads neighbouring columns of a row, the warps of a
// block have different rows, and what they come to is combined in the end, in an order that is always the same.
#pragma once

#include "include/rowwise.cuh"

namespace fusion::gpu {

constexpr int kColumnWarps = 16;
constexpr int kColumnAhead = 8;  // rows that a thread asks for before it uses the first

template <int V, class Arguments>
void launch_columns(void (*kernel)(Arguments), int64_t columns, cudaStream_t stream, const char* what, const Arguments& arguments) {
  launch(kernel, grid_size(ceil_div(columns, 32 * V), what), 32 * kColumnWarps, 0, stream, what, arguments);
}

// Whether V columns are neighbours on a boundary in every row of operand k.
template <int V, int N, class T>
bool columns_pack(const Space<N>& columns, int k, int64_t step, const T* p) {
  const bool whole = columns.rank > 0 && columns.axis[0].size % V == 0 && step % V == 0;
  return whole && columns.axis[0].stride[k] == 1 && packs<V>(columns, k, p);
}

}  // namespace fusion::gpu
