// What convolutions take to lie before an axis of their images.
#pragma once

#include <algorithm>
#include <string>

#include "cpu/vendor.h"

namespace fusion {
namespace cpu {

// Zeros before axis `i` of space, `a`, which has its sizes, stride and dilation.
template <class Axis>
int64_t zeros_before(const Axis& a, const std::string& auto_pad, const Ints& pads, int i) {
  const int64_t total = std::max<int64_t>(0, (a.out - 1) * a.stride + (a.taps - 1) * a.dilation + 1 - a.in);
  if (auto_pad == "NOTSET") return pads.size() ? pads[i] : 0;
  if (auto_pad == "SAME_UPPER") return total / 2;
  if (auto_pad == "SAME_LOWER") return (total + 1) / 2;
  return 0;
}

}  // namespace cpu
}  // namespace fusion
