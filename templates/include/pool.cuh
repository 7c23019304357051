// Windows over images whose channels come last: the largest number of each channel, or the mean.
#pragma once

#include "include/windows.cuh"

namespace fusion::gpu {

// What lies outside the image is left out; with kCountsPads it is part of the mean, as zeros. NaN is what comes of NaN.
template <class Form, bool kMean, bool kCountsPads, class T, int V>
__device__ __forceinline__ void pool(const WindowedImage<T>& g, const Patch<V, 1, 1>& patch, float (&made)[V]) {
  const int top = patch.row * Form::kDown - g.top, left = patch.column * Form::kAcross - g.left;
  const T* const pixels = g.x + patch.image * g.high * g.wide * g.channels + patch.channel;
  int seen = 0;
#pragma unroll
  for (int v = 0; v < V; ++v) made[v] = kMean ? 0.0f : -INFINITY;
#pragma unroll 1
  for (int i = 0; i < Form::kHigh; ++i) {
    const int row = top + i * Form::kDilatedDown;
    if (row < 0 || row >= g.high) continue;
#pragma unroll
    for (int j = 0; j < Form::kWide; ++j) {
      const int column = left + j * Form::kDilatedAcross;
      if (column < 0 || column >= g.wide) continue;
      const Vector<T, V> x = load_whole<T, V>(pixels + (row * g.wide + column) * g.channels);
      ++seen;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float read = get(x, v);
        if (kMean) {
          made[v] += read;
        } else if (read > made[v] || read != read) {
          made[v] = read;
        }
      }
    }
  }
  if (!kMean) return;
  const float count = static_cast<float>(kCountsPads ? Form::kHigh * Form::kWide : seen);
#pragma unroll
  for (int v = 0; v < V; ++v) made[v] /= count;
}

}  // namespace fusion::gpu
