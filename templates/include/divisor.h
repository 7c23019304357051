// Division by what is known before a kernel runs.
#pragma once

#include <algorithm>

#include "include/scalar.h"

namespace fusion::gpu {

// By which 31-bit numbers are divided without a division: e / n = (e * magic / 2^32 + e) / 2^shift.
struct Divisor {
  uint32_t magic, shift;

  // Nobody divides by 0, which may stand for it where there is nothing to divide.
  static Divisor of(uint64_t n) {
    n = std::max<uint64_t>(n, 1);
    uint32_t shift = 0;
    while (uint64_t{1} << shift < n) ++shift;
    return {static_cast<uint32_t>((((uint64_t{1} << shift) - n) << 32) / n + 1), shift};
  }
  FUSION_FN uint32_t quotient(uint32_t e) const { return (static_cast<uint32_t>(uint64_t{e} * magic >> 32) + e) >> shift; }
};

}  // namespace fusion::gpu
