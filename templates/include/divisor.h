// Division by what is known before a kernel runs.
#pragma once

#include "include/scalar.h"

namespace fusion::gpu {

// By which 31-bit numbers are divided without a division: e / n = (e * magic / 2^32 + e) / 2^shift.
struct Divisor {
  uint32_t magic, shift;

  static Divisor of(uint64_t n) {
    uint32_t shift = 0;
    while (uint64_t{1} << shift < n) ++shift;
    return {static_cast<uint32_t>((((uint64_t{1} << shift) - n) << 32) / n + 1), shift};
  }
  FUSION_FN uint32_t quotient(uint32_t e) const { return (static_cast<uint32_t>(uint64_t{e} * magic >> 32) + e) >> shift; }
};

}  // namespace fusion::gpu
