// Depthwise convolutions of images whose channels come last: each channel has a filter of its own. A thread computes a patch
// of results of a few channels; what it reads of a row of the image it multiplies with all taps that meet it.
#pragma once

#include "include/conv_last.cuh"
#include "include/vector.cuh"

namespace fusion::gpu {

constexpr int kDepthwiseThreads = 128;

// What is known of a convolution when it is compiled, and how many taps of a row are multiplied at once.
template <int kHigh_, int kWide_, int kDown_, int kAcross_, int kDilatedDown_, int kDilatedAcross_, int kTaps_>
struct DepthwiseForm {
  static constexpr int kHigh = kHigh_, kWide = kWide_;      // the kernel
  static constexpr int kDown = kDown_, kAcross = kAcross_;  // strides
  static constexpr int kDilatedDown = kDilatedDown_, kDilatedAcross = kDilatedAcross_;
  static constexpr int kTaps = kTaps_;
};

// An image x [N, H, W, C], a filter w [taps, C], and the results' sizes.
template <class T>
struct DepthwiseImage {
  const T* x;
  const T* w;
  int channels, high, wide;  // of the image
  int top, left;             // pads
  int out_high, out_wide;
  unsigned across, down, patches;  // patches of a row and of a column; all of them, those of V channels each counted

  DepthwiseImage(const Convolution& c, const T* x, const T* w)
      : x(x), w(w), channels(narrow(c.channels)), high(narrow(c.in[1])), wide(narrow(c.in[2])), top(narrow(c.before[1])),
        left(narrow(c.before[2])), out_high(narrow(c.out[1])), out_wide(narrow(c.out[2])), across(0), down(0), patches(0),
        batch_(c.batch) {
    narrow(c.channels * c.in[1] * c.in[2]);  // offsets within an image
  }

  // The image in patches of rows by columns results of V channels.
  DepthwiseImage cut(int v, int rows, int columns) const {
    DepthwiseImage cut = *this;
    cut.across = static_cast<unsigned>(ceil_div(out_wide, columns)), cut.down = static_cast<unsigned>(ceil_div(out_high, rows));
    cut.patches = grid_size(batch_ * cut.down * cut.across * (channels / v), "depthwise convolution");
    return cut;
  }

 private:
  int64_t batch_;
};

// How far apart the elements of an operand or a result lie along the axes of the results [N, H, W, C].
struct Steps {
  int64_t image;
  int down, across, channel;

  // Of a view, among results of so many axes: one row of them where there are three.
  Steps(const View& view, int axes)
      : image(view.step(axes)), down(axes > 3 ? narrow(view.step(3)) : 0), across(narrow(view.step(2))), channel(narrow(view.step(1))) {}

  // Whether V channels are one element, or neighbours that lie on their boundaries wherever they begin.
  template <int V, class T>
  bool packs(const T* p) const {
    return channel == 0 || (channel == 1 && aligned<V>(p) && image % V == 0 && down % V == 0 && across % V == 0);
  }
};

// Which results a thread computes: rows and columns from these on, of V channels from this one on.
template <int V, int kRows, int kColumns>
struct Patch {
  bool exists;
  int64_t image;
  int row, column, channel;

  template <class T>
  __device__ __forceinline__ explicit Patch(const DepthwiseImage<T>& g) {
    const unsigned patch = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned vectors = g.channels / V, place = patch / vectors, strip = place / g.across;
    exists = patch < g.patches;
    channel = static_cast<int>(patch - place * vectors) * V;
    column = static_cast<int>(place - strip * g.across) * kColumns;
    image = strip / g.down;
    row = static_cast<int>(strip % g.down) * kRows;
  }

  __device__ __forceinline__ int64_t offset(const Steps& s) const {
    return image * s.image + static_cast<int64_t>(row) * s.down + static_cast<int64_t>(column) * s.across + channel * s.channel;
  }
};

// The lowest n bits; none of fewer than 0, all of more than 31.
__device__ __forceinline__ unsigned bits_below(int n) { return n <= 0 ? 0 : n > 31 ? ~0u : (1u << n) - 1; }

template <class Form, class T, int V, int kRows, int kColumns>
__device__ __forceinline__ void convolve(const DepthwiseImage<T>& g, const Patch<V, kRows, kColumns>& patch,
                                         float (&sums)[kRows][kColumns][V]) {
  constexpr int kWindow = (kColumns - 1) * Form::kAcross + (Form::kTaps - 1) * Form::kDilatedAcross + 1;
  static_assert(kWindow <= 32, "a bit for each pixel");
  constexpr int kReach = (kRows - 1) * Form::kDown + (Form::kHigh - 1) * Form::kDilatedDown + 1;
  const int top = patch.row * Form::kDown - g.top, left = patch.column * Form::kAcross - g.left;
  const T* const pixels = g.x + patch.image * g.high * g.wide * g.channels + patch.channel;
  const T* const taps = g.w + patch.channel;
#pragma unroll 1
  for (int i = 0; i < kReach; ++i) {
    if (top + i < 0 || top + i >= g.high) continue;
#pragma unroll 1
    for (int first = 0; first < Form::kWide; first += Form::kTaps) {
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
        for (int s = 0; s < Form::kTaps; ++s, w += g.channels) {
          if (Form::kWide % Form::kTaps != 0 && first + s >= Form::kWide) break;
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

// Whether patches of so many threads' work fill the GPU; smaller ones share it better where they do not.
template <class T>
bool fills(const Device& device, const DepthwiseImage<T>& cut) {
  constexpr int kBlocks = 4;  // of a multiprocessor
  return cut.patches >= static_cast<unsigned>(kBlocks * kDepthwiseThreads * device.multiprocessors);
}

template <class T, class Arguments>
void launch_depthwise(void (*kernel)(DepthwiseImage<T>, Arguments), cudaStream_t stream, const char* what,
                      const DepthwiseImage<T>& cut, const Arguments& arguments) {
  launch(kernel, (cut.patches + kDepthwiseThreads - 1) / kDepthwiseThreads, kDepthwiseThreads, 0, stream, what, cut, arguments);
}

}  // namespace fusion::gpu
