// Which blocks compute what of products of few rows on Hopper, and in which order.
#pragma once

#include "include/gpu.cuh"

namespace fusion::gpu {

// How the products of a phase are shared out. Their steps are in a row, strip by strip, of which every block has `each`, and the
// first ones one more.
struct StreamShares {
  int steps, strips;  // of a strip; of all chains
  unsigned each, more;

  __device__ __forceinline__ int begin(unsigned block) const { return static_cast<int>(block * each + min(block, more)); }
  __device__ __forceinline__ int owner(int step) const {
    const unsigned longer = more * (each + 1), n = static_cast<unsigned>(step), of = n < longer ? each + 1 : each;
    return static_cast<int>(n < longer ? n / of : more + (n - longer) / of);
  }
};

// A block's share of the steps, in the order in which it takes them. Within a strip it begins at the row where other blocks are
// then, and comes to those before it last: what is read at once lies side by side in memory, which gives more of it (on an
// H200 a model of two layers of 466 MB took 260.7 us with all strips from their first rows, 255.2 so).
struct StreamPath {
  const StreamShares* x;
  int from, count;
  // Of the strip that was asked for last: which steps of the share are of it, from which row on, and how far from there they begin.
  int strip = 0, begin = 0, end = 0, row = 0, turn = 0;

  __device__ __forceinline__ StreamPath(const StreamShares& x, unsigned block)
      : x(&x), from(x.begin(block)), count(x.begin(block + 1) - from) {}

  // Steps are asked for in order.
  __device__ __forceinline__ int row_of(int step) {
#pragma unroll 1
    while (step >= end) {
      begin = end, strip = (from + begin) / x->steps, row = from + begin - strip * x->steps;
      end = min(count, begin + x->steps - row);
      const int period = max(min(static_cast<int>(x->each), x->steps), 1), ahead = (begin - row) % period;
      turn = ahead < 0 ? ahead + period : ahead;
      if (turn >= end - begin) turn = 0;
    }
    const int at = step - begin + turn, length = end - begin;
    return row + (at < length ? at : at - length);
  }
};

}  // namespace fusion::gpu
