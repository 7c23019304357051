// What the operands of a score program (masks, biases) hold for a tile of scores: several keys with one access, before
// the scores are there.
#pragma once

#include <type_traits>

#include "include/attention.cuh"

namespace fusion::gpu {

// Scores this low are taken to be hidden keys', which come last: by then they can be told not to count.
constexpr float kHidden = -1e4f;

// The order of the keys in a tile: a lane l of a tensor-core fragment holds columns l % 4 * 2 and the next of every
// eight; of `kNeighbours` / 2 fragments these are to be neighbouring keys.
template <int kNeighbours>
struct Dealt {
  static constexpr int kGroup = 4 * kNeighbours;
  __device__ static constexpr int from(int row) {
    const int place = row % kGroup;
    return row - place + place % 8 / 2 * kNeighbours + place / 8 * 2 + place % 2;
  }
};

// An operand's elements for V neighbouring keys, as they lie in memory.
template <class T, int V>
struct Strip {
  static constexpr int kBytes = V * sizeof(T), kAccess = kBytes < 16 ? kBytes : 16;
  static_assert(kBytes % 4 == 0, "words of four bytes");
  using Access = std::conditional_t<kAccess == 16, uint4, std::conditional_t<kAccess == 8, uint2, uint32_t>>;
  uint32_t word[kBytes / 4];

  // `step` elements apart from `p` on; those from `valid` on are zero.
  __device__ __forceinline__ void read(const T* p, int step, int valid) {
    if (step == 1 && valid >= V && reinterpret_cast<uintptr_t>(p) % kAccess == 0) {
#pragma unroll
      for (int i = 0; i < kBytes / kAccess; ++i) {
        const Access some = reinterpret_cast<const Access*>(p)[i];
        __builtin_memcpy(word + i * (kAccess / 4), &some, kAccess);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) word[i] = 0;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (i >= valid) continue;
      const T element = p[int64_t{i} * step];
      if constexpr (sizeof(T) >= 4) {
        __builtin_memcpy(word + i * (sizeof(T) / 4), &element, sizeof(T));
      } else {
        word[i * sizeof(T) / 4] |= uint32_t{bit_cast<Bits>(element)} << i * sizeof(T) % 4 * 8;
      }
    }
  }

  __device__ __forceinline__ T operator[](int i) const {
    if constexpr (sizeof(T) >= 4) {
      T element;
      __builtin_memcpy(&element, word + i * (sizeof(T) / 4), sizeof(T));
      return element;
    } else {
      const Bits bits = static_cast<Bits>(word[i * sizeof(T) / 4] >> i * sizeof(T) % 4 * 8);
      if constexpr (std::is_same_v<T, bool>) return bits != 0;
      else return bit_cast<T>(bits);
    }
  }

 private:
  using Bits = std::conditional_t<sizeof(T) == 1, uint8_t, uint16_t>;
};

// The highest score that the mask leaves in each tile of keys where it hides all of them, infinity for other tiles.
template <int kKeys>
struct Ceilings {
  static constexpr int kMost = 512;
  float of[kMost];

  __device__ __forceinline__ bool hidden(int tile) const { return of[tile] <= kHidden; }

  // From the scores of a product that is zero, which are the same for all queries: a tile each. For all threads.
  template <int kThreads, class Program, int N>
  __device__ __forceinline__ void find(const Program& program, const int64_t (&at)[N], int64_t batch, int begin,
                                       int keys, int tiles) {
    for (int t = threadIdx.x; t < tiles; t += kThreads) {
      float top = -INFINITY;
#pragma unroll 4
      for (int c = 0; c < kKeys; c += 8) {
        const int key = begin + t * kKeys + c;
        typename Program::template Strip<8> strip;
        strip.template read<false>(program, at, 0, key, keys - key);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float score = program.score(0.0f, strip[i], batch, 0, key + i);
          if (key + i < keys) top = score <= kHidden ? fmaxf(top, score) : INFINITY;  // a NaN is seen
        }
      }
      of[t] = top;
    }
    __syncthreads();
  }

  __device__ __forceinline__ float highest_hidden(int tiles) const {
    float top = -INFINITY;
    for (int t = threadIdx.x % 32; t < tiles; t += 32) top = hidden(t) ? fmaxf(top, of[t]) : top;
    return lanes_max<32>(top);
  }
};

}  // namespace fusion::gpu
