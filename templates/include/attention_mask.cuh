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

  // What `is_whole` has been said of.
  __device__ __forceinline__ void read(const T* p) {
#pragma unroll
    for (int i = 0; i < kBytes / kAccess; ++i) {
      const Access some = reinterpret_cast<const Access*>(p)[i];
      __builtin_memcpy(word + i * (kAccess / 4), &some, kAccess);
    }
  }

  // `step` elements apart from `p` on; those from `valid` on are zero. The last valid one is there, also where it lies before `p`
  // and none is valid here: no branch makes one read wait for another.
  __device__ __forceinline__ void read(const T* p, int step, int valid) {
    T element[V];
#pragma unroll
    for (int i = 0; i < V; ++i) element[i] = p[int64_t{min(i, valid - 1)} * step];
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) word[i] = 0;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (sizeof(T) >= 4) {
        if (i < valid) __builtin_memcpy(word + i * (sizeof(T) / 4), &element[i], sizeof(T));
      } else {
        const uint32_t bits = bit_cast<Bits>(element[i]);
        word[i * sizeof(T) / 4] |= (i < valid ? bits : 0) << i * sizeof(T) % 4 * 8;
      }
    }
  }

  // Whether every V keys of an operand, from a multiple of V on, can be read with few accesses.
  __device__ static __forceinline__ bool is_whole(const T* p, int row, int column) {
    return column == 1 && reinterpret_cast<uintptr_t>(p) % kAccess == 0 && row * static_cast<int>(sizeof(T)) % kAccess == 0;
  }

  // Whether the bytes are.
  __device__ __forceinline__ bool same(const Strip& other) const {
    uint32_t different = 0;
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) different |= word[i] ^ other.word[i];
    return different == 0;
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

// Fills strips of V keys before key `end`, of `keys` that there are, all of which are on their way together: `each` calls what it is
// given with every strip, where its operands are, its query and its first key. `whole`: as Program::is_whole says of them.
template <int V, class Program, class Each>
__device__ __forceinline__ void read_strips(const Program& program, int keys, int end, bool whole, const Each& each) {
  if (whole && (keys % V == 0 || end <= keys)) {
    each([&](auto& strip, const auto& at, int row, int key) { strip.read_whole(program, at, row, min(key, keys - V)); });
  } else {
    each([&](auto& strip, const auto& at, int row, int key) { strip.read(program, at, row, key, keys - key); });
  }
}

// What a mask does to tiles of kKeys keys.
template <int kKeys>
struct Ceilings {
  static constexpr int kMost = 512;
  static constexpr float kMixed = INFINITY, kPlain = 3e38f;
  static constexpr float kAlike = 2e38f;  // mixed, of a mask that is the same for all queries of the tile
  float of[kMost];  // the highest score that is left of a tile where all keys are hidden, for other tiles one of these

  __device__ __forceinline__ bool hidden(int tile) const { return of[tile] <= kHidden; }
  // Whether scores are the scaled products themselves.
  __device__ __forceinline__ bool plain(int tile) const { return of[tile] == kPlain; }
  // Whether any query's operands are those of all.
  __device__ __forceinline__ bool alike(int tile) const { return of[tile] == kAlike; }

  // Of a mask that is the same for all queries: a tile each. For all threads.
  template <int kThreads, class Program, int N>
  __device__ __forceinline__ void find(const Program& program, const int64_t (&at)[N], int64_t batch, int begin,
                                       int keys, int tiles) {
    const bool whole = program.is_whole(at);
    for (int t = threadIdx.x; t < tiles; t += kThreads) {
      const int key = begin + t * kKeys;
      of[t] = judge(program, at, batch, 0, key, min(keys, key + kKeys), whole);
    }
    __syncthreads();
  }

  __device__ __forceinline__ float highest_hidden(int tiles) const {
    float top = -INFINITY;
    for (int t = threadIdx.x % 32; t < tiles; t += 32) top = hidden(t) ? fmaxf(top, of[t]) : top;
    return lanes_max<32>(top);
  }

  // What is done to two tiles together.
  __device__ __forceinline__ static float both(float a, float b) {
    return a <= kHidden && b <= kHidden ? fmaxf(a, b) : a == b ? a : kMixed;
  }

  // What is done to a query's scores of the keys from `key` to `end`.
  template <class Program, int N>
  __device__ __forceinline__ static float judge(const Program& program, const int64_t (&at)[N], int64_t batch, int row,
                                                int key, int end, bool whole) {
    float found = key < end ? kPlain : -INFINITY;
#pragma unroll 1
    for (bool first = true; key < end; key += 8, first = false) {
      typename Program::template Strip<8> strip;
      read_strips<8>(program, end, key + 8, whole, [&](const auto& read) { read(strip, at, row, key); });
      const float next = judge(program, strip, batch, row, key, end);
      found = first ? next : both(found, next);
    }
    return found;
  }

  // Of the keys of a strip: two products tell a mask that leaves them alone.
  template <class Program>
  __device__ __forceinline__ static float judge(const Program& program, const typename Program::template Strip<8>& strip,
                                                int64_t batch, int row, int key, int end) {
    constexpr float kProduct = 1.0f / 3.0f;  // which has more bits than numbers of 16
    float top = -INFINITY;
    bool plain = true;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (key + i >= end) continue;
      const float score = program.score(0.0f, strip[i], batch, row, key + i);
      top = score <= kHidden ? fmaxf(top, score) : kMixed;  // a NaN is seen
      plain = plain && score == 0.0f && program.score(kProduct, strip[i], batch, row, key + i) == kProduct;
    }
    return plain ? kPlain : top;
  }
};

}  // namespace fusion::gpu
