// Convolutions with the channels last, beside the vendor's: filters laid out for them, and a kernel of our own that takes
// any form, which is there to be right.
#pragma once

#include "include/convolution.h"
#include "include/half.h"
#include "include/kept.cuh"
#include "ort/op.h"

namespace fusion::gpu {

constexpr int kConvThreads = 256;

// [M, C, taps] as [M, taps, C].
template <class T>
__global__ void __launch_bounds__(kConvThreads) turn_filter(const T* from, T* to, int64_t channels, int64_t taps,
                                                            int64_t total) {
  await_earlier();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; e < total; e += stride) {
    const int64_t c = e % channels, tap = e / channels % taps, m = e / (channels * taps);
    to[e] = from[(m * channels + c) * taps + tap];
  }
}

// A filter with its channels last. One that is a constant of the model is turned over once, before any run is captured.
class Filter {
 public:
  // How a filter is looked at: M matrices of C channels by so many taps.
  struct Form {
    int64_t matrices, channels, taps;
    int64_t count() const { return matrices * channels * taps; }
  };

  Filter(const Api& api, const OrtKernelInfo* info, size_t slot) : constant_(is_constant(api, info, slot)) {}

  // Bytes that `turned` needs for a filter of these dimensions.
  template <class T>
  size_t scratch(const Ints& dims) const {
    return constant_ ? 0 : bytes<T>(dims);
  }

  template <class T>
  const T* turned(cudaStream_t stream, const Tensor& w, const Form& form, void* scratch) {
    const T* const given = static_cast<const T*>(w.data);
    if (form.taps == 1 || form.channels == 1) return given;
    if (!constant_) return turn(stream, given, static_cast<T*>(scratch), form);
    void* const kept = kept_.get(stream, bytes<T>(*w.dims), 0, [&](void* to) { turn(stream, given, static_cast<T*>(to), form); });
    if (kept == nullptr) {
      throw Error("filters must be laid out where no CUDA graph is captured (run the model once without it first) and there is memory");
    }
    return static_cast<const T*>(kept);
  }

 private:
  template <class T>
  static const T* turn(cudaStream_t stream, const T* from, T* to, const Form& form) {
    const unsigned grid = grid_size(ceil_div(form.count(), kConvThreads), "filter");
    gpu::launch(turn_filter<T>, grid, kConvThreads, 0, stream, "filter", from, to, form.channels, form.taps, form.count());
    return to;
  }

  const bool constant_;
  Kept kept_;
};

// One result per thread, neighbours along the channels.
template <class T>
__global__ void __launch_bounds__(kConvThreads) convolve_directly(const T* x, const T* w, T* y, const Convolution c) {
  await_earlier();
  const int64_t total = c.results(), stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t each = c.channels_each(), filters_each = c.filters / c.groups;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; e < total; e += stride) {
    const int64_t m = e % c.filters;
    int64_t place = e / c.filters, at[Convolution::kAxes];
    for (int a = Convolution::kAxes - 1; a >= 0; --a) {
      at[a] = place % c.out[a] * c.stride[a] - c.before[a];
      place /= c.out[a];
    }
    const T* const image = x + place * c.in[0] * c.in[1] * c.in[2] * c.channels + m / filters_each * each;
    const T* filter = w + m * c.taps() * each;
    float sum = 0.0f;
    for (int64_t i = 0; i < c.kernel[0]; ++i) {
      const int64_t p = at[0] + i * c.dilation[0];
      for (int64_t j = 0; j < c.kernel[1]; ++j) {
        const int64_t q = at[1] + j * c.dilation[1];
        for (int64_t k = 0; k < c.kernel[2]; ++k, filter += each) {
          const int64_t r = at[2] + k * c.dilation[2];
          if (p < 0 || p >= c.in[0] || q < 0 || q >= c.in[1] || r < 0 || r >= c.in[2]) continue;
          const T* const pixel = image + ((p * c.in[1] + q) * c.in[2] + r) * c.channels;
          for (int64_t d = 0; d < each; ++d) sum += fusion::load(pixel + d) * fusion::load(filter + d);
        }
      }
    }
    fusion::store(y + e, sum);
  }
}

template <class T>
void convolve_directly(const Device& device, cudaStream_t stream, const T* x, const T* w, T* y, const Convolution& c) {
  constexpr int kBlocks = 8;  // per multiprocessor
  const int64_t needed = ceil_div(c.results(), kConvThreads), most = int64_t{kBlocks} * device.multiprocessors;
  const unsigned grid = static_cast<unsigned>(needed < most ? needed : most);
  launch(static_cast<void (*)(const T*, const T*, T*, Convolution)>(convolve_directly<T>), grid, kConvThreads, 0, stream,
         "convolution", x, w, y, c);
}

}  // namespace fusion::gpu
