// Floats as tensor cores take them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace cuda_host {

// Operands of TF32 are floats of which the product takes ten bits of fraction and cuts the rest off.
inline uint32_t to_tf32(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return std::isfinite(x) ? (bits + 0x1000) & ~0x1fffu : bits;
}
inline float cut(uint32_t bits) {
  float x;
  bits &= ~0x1fffu;
  return std::memcpy(&x, &bits, 4), x;
}

}  // namespace cuda_host
