// What the tiles of attention's kernel for all GPUs take in shared memory: size of a number, depth of queries and keys, of
// values, whether scores are bare, and bytes, a line each.
#include <cstdio>

#include "include/attention_tile.cuh"

template <class T, int kDepth, int kValueDepth>
void tell() {
  constexpr bool kWide = sizeof(T) == 2;  // which floats have where it fits
  std::printf("%zu %d %d 1 %zu\n", sizeof(T), kDepth, kValueDepth, fusion::gpu::AttentionTile<T, kDepth, kValueDepth, true, kWide>::kBytes);
  std::printf("%zu %d %d 0 %zu\n", sizeof(T), kDepth, kValueDepth, fusion::gpu::AttentionTile<T, kDepth, kValueDepth, false, kWide>::kBytes);
}

template <class T>
void tell_all() {
  tell<T, 16, 16>(), tell<T, 64, 64>(), tell<T, 96, 96>(), tell<T, 128, 128>(), tell<T, 64, 128>(), tell<T, 192, 128>(), tell<T, 256, 256>();
}

int main() { tell_all<fusion::half>(), tell_all<float>(); }
