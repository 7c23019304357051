// Depthwise convolutions of images whose channels come last: each channel has a filter of its own. What a thread reads of a
// row of the image it multiplies with all taps that meet it.
#pragma once

#include "include/conv_last.cuh"
#include "include/windows.cuh"

namespace fusion::gpu {

// With a filter w [taps, C].
template <class T>
struct DepthwiseImage : WindowedImage<T> {
  const T* w;

  DepthwiseImage(const Convolution& c, const T* x, const T* w, int v, int rows, int columns)
      : WindowedImage<T>(c, x, v, rows, columns), w(w) {}
};

// The lowest n bits; none of fewer than 0, all of more than 31.
__device__ __forceinline__ unsigned bits_below(int n) { return n <= 0 ? 0 : n > 31 ? ~0u : (1u << n) - 1; }

// kTaps of a row are multiplied at once.
template <class Form, int kTaps, class T, int V, int kRows, int kColumns>
__device__ __forceinline__ void convolve(const DepthwiseImage<T>& g, const Patch<V, kRows, kColumns>& patch,
                                         float (&sums)[kRows][kColumns][V]) {
  constexpr int kWindow = (kColumns - 1) * Form::kAcross + (kTaps - 1) * Form::kDilatedAcross + 1;
  static_assert(kWindow <= 32, "a bit for each pixel");
  constexpr int kReach = (kRows - 1) * Form::kDown + (Form::kHigh - 1) * Form::kDilatedDown + 1;
  const int top = patch.row * Form::kDown - g.top, left = patch.column * Form::kAcross - g.left;
  const T* const pixels = g.x + patch.image * g.high * g.wide * g.channels + patch.channel;
  const T* const taps = g.w + patch.channel;
#pragma unroll 1
  for (int i = 0; i < kReach; ++i) {
    if (top + i < 0 || top + i >= g.high) continue;
#pragma unroll 1
    for (int first = 0; first < Form::kWide; first += kTaps) {
      const int begin = left + first * Form::kDilatedAcross;
      const unsigned inside = bits_below(g.wide - begin) & ~bits_below(-begin);
      int at = ((top + i) * g.wide + begin) * g.channels;
      Vector<T, V> pixel[kWindow];
#pragma unroll
      for (int j = 0; j < kWindow; ++j, at += g.channels) {
        pixel[j] = Vector<T, V>{};
        if (inside >> j & 1) pixel[j] = load_whole<T, V>(pixels + at);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int down = i - r * Form::kDown;
        if (down < 0 || down % Form::kDilatedDown != 0 || down / Form::kDilatedDown >= Form::kHigh) continue;
        int w = (down / Form::kDilatedDown * Form::kWide + first) * g.channels;
#pragma unroll
        for (int s = 0; s < kTaps; ++s, w += g.channels) {
          if (Form::kWide % kTaps != 0 && first + s >= Form::kWide) break;
          const Vector<T, V> tap = load_whole<T, V>(taps + w);
#pragma unroll
          for (int q = 0; q < kColumns; ++q) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
              sums[r][q][v] += get(pixel[q * Form::kAcross + s * Form::kDilatedAcross], v) * get(tap, v);
            }
          }
        }
      }
    }
  }
}

}  // namespace fusion::gpu
