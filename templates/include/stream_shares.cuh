// Which blocks compute what of products of few rows on Hopper, and in which order.
#pragma once

#include <algorithm>

#include "include/divisor.h"
#include "include/gpu.cuh"

namespace fusion::gpu {

// How the products of a phase are shared out. Their steps are in a row, strip by strip, of which every block has `each`, and the
// first ones one more.
struct StreamShares {
  int steps, strips;  // of a strip; of all chains
  unsigned each, more;
  int period;  // of a strip's rows, in which blocks come to the same ones
  Divisor by_steps, by_each, by_longer, by_period;

  StreamShares() = default;
  StreamShares(int steps, int strips, unsigned blocks)
      : steps(steps), strips(strips), each(static_cast<unsigned>(strips * steps) / blocks),
        more(static_cast<unsigned>(strips * steps) % blocks), period(std::max(std::min(static_cast<int>(each), steps), 1)),
        by_steps(Divisor::of(steps)), by_each(Divisor::of(each)), by_longer(Divisor::of(each + 1)),
        by_period(Divisor::of(period)) {}

  __device__ __forceinline__ int begin(unsigned block) const { return static_cast<int>(block * each + min(block, more)); }
  __device__ __forceinline__ int strip(int step) const { return static_cast<int>(by_steps.quotient(step)); }
  __device__ __forceinline__ int owner(int step) const {
    const unsigned longer = more * (each + 1), n = static_cast<unsigned>(step);
    return static_cast<int>(n < longer ? by_longer.quotient(n) : more + by_each.quotient(n - longer));
  }
  __device__ __forceinline__ int within_period(int n) const { return n - static_cast<int>(by_period.quotient(n)) * period; }
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
      begin = end, strip = x->strip(from + begin), row = from + begin - strip * x->steps;
      end = min(count, begin + x->steps - row);
      const int ahead = x->within_period(begin) - x->within_period(row);
      turn = ahead < 0 ? ahead + x->period : ahead;
      if (turn >= end - begin) turn = 0;
    }
    const int at = step - begin + turn, length = end - begin;
    return row + (at < length ? at : at - length);
  }
};

}  // namespace fusion::gpu
