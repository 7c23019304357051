// Kernels of windows that move over images whose channels come last: a thread computes a patch of results of a few channels.
#pragma once

#include "include/convolution.h"
#include "include/vector.cuh"

namespace fusion::gpu {

constexpr int kWindowThreads = 128;

// What is known of a window when it is compiled.
template <int kHigh_, int kWide_, int kDown_, int kAcross_, int kDilatedDown_, int kDilatedAcross_>
struct WindowForm {
  static constexpr int kHigh = kHigh_, kWide = kWide_;
  static constexpr int kDown = kDown_, kAcross = kAcross_;  // strides
  static constexpr int kDilatedDown = kDilatedDown_, kDilatedAcross = kDilatedAcross_;
};

// An image x [N, H, W, C] that windows move over, the results' sizes, and how these are cut into patches of rows by columns
// of V channels each.
template <class T>
struct WindowedImage {
  const T* x;
  int channels, high, wide;  // of the image
  int top, left;             // pads
  int out_high, out_wide;
  unsigned across, down, patches;  // patches of a row and of a column; all of them, those of V channels each counted

  WindowedImage(const Convolution& c, const T* x, int v, int rows, int columns)
      : x(x), channels(narrow(c.channels)), high(narrow(c.in[1])), wide(narrow(c.in[2])), top(narrow(c.before[1])),
        left(narrow(c.before[2])), out_high(narrow(c.out[1])), out_wide(narrow(c.out[2])),
        across(static_cast<unsigned>(ceil_div(out_wide, columns))), down(static_cast<unsigned>(ceil_div(out_high, rows))),
        patches(grid_size(c.batch * down * across * (channels / v), "windows")) {
    narrow(c.channels * c.in[1] * c.in[2]);  // offsets within an image
  }
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
  __device__ __forceinline__ explicit Patch(const WindowedImage<T>& g) {
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

// Whether patches of so many threads' work fill the GPU; smaller ones share it better where they do not.
template <class T>
bool fills(const Device& device, const WindowedImage<T>& image) {
  constexpr int kBlocks = 4;  // of a multiprocessor
  return image.patches >= static_cast<unsigned>(kBlocks * kWindowThreads * device.multiprocessors);
}

template <class Image, class Arguments>
void launch_windows(void (*kernel)(Image, Arguments), cudaStream_t stream, const char* what, const Image& image,
                    const Arguments& arguments) {
  launch(kernel, (image.patches + kWindowThreads - 1) / kWindowThreads, kWindowThreads, 0, stream, what, image, arguments);
}

}  // namespace fusion::gpu
