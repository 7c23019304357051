// Tensor-core building blocks that sm_80 and every later architecture have: asynchronous copies, ldmatrix, mma.
#pragma once

#include "include/gpu.cuh"

namespace fusion::gpu {

// A matrix in global memory with any strides (in elements), zero outside its bounds.
template <class T>
struct Matrix {
  const T* data;
  int64_t row_stride;
  int64_t column_stride;
  int64_t rows;
  int64_t columns;

  // Whether rows are aligned pieces of 16 bytes: what lies behind a row may not be the matrix's any more.
  __device__ __forceinline__ bool wide() const {
    constexpr int kPerAccess = 16 / sizeof(T);
    const bool pieces = row_stride % kPerAccess == 0 && columns % kPerAccess == 0;
    return column_stride == 1 && pieces && reinterpret_cast<uintptr_t>(data) % 16 == 0;
  }
};

// What all lanes of a warp have alike, so that the compiler knows it: products are started in no branch that may diverge.
__device__ __forceinline__ bool all_alike(bool x) { return __all_sync(0xffffffffu, x); }

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// A piece of 16 bytes from global memory, or zeros, for which the address may be any.
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool is_there = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(shared)), "l"(global),
               "r"(is_there ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Rows of a tile as they are in memory.
struct InOrder {
  __device__ static constexpr int from(int row) { return row; }
};

// Starts copying the kRows x kColumns tile at (row, column) to shared memory with `kPitch` elements a row, of which
// row r is the matrix's `row` + Order::from(r).
template <int kRows, int kColumns, int kPitch, int kThreads, class Order = InOrder, class T>
__device__ __forceinline__ void load_tile(T* shared, const Matrix<T>& m, int64_t row, int64_t column, bool wide,
                                          int thread = threadIdx.x) {
  constexpr int kPerAccess = 16 / sizeof(T);
  if (wide) {
    constexpr int kAccesses = kColumns / kPerAccess, kAll = kRows * kAccesses;
    if constexpr (kThreads % kAccesses == 0) {  // a thread stays in its columns, and what it adds to its row is known
      constexpr int kStep = kThreads / kAccesses;
      static_assert((kStep & (kStep - 1)) == 0, "an order permutes the bits of a row");
      const int r = thread / kAccesses, c = thread % kAccesses * kPerAccess;
      const int64_t line = row + Order::from(r), rows = m.rows - line;
      const T* const from = m.data + line * m.row_stride + column + c;
      const int valid = column + c >= m.columns ? 0 : static_cast<int>(rows < kRows ? rows : kRows);
#pragma unroll
      for (int n = 0; n < (kAll + kThreads - 1) / kThreads; ++n) {
        if (kAll % kThreads != 0 && r + n * kStep >= kRows) break;
        const int more = Order::from(n * kStep);
        copy_async(shared + (r + n * kStep) * kPitch + c, from + more * m.row_stride, more < valid);
      }
    } else {
#pragma unroll
      for (int n = 0; n < (kAll + kThreads - 1) / kThreads; ++n) {
        const int i = thread + n * kThreads, r = i / kAccesses, c = i % kAccesses * kPerAccess;
        if (kAll % kThreads != 0 && i >= kAll) break;
        const int64_t line = row + Order::from(r);
        copy_async(shared + r * kPitch + c, m.data + line * m.row_stride + column + c, line < m.rows && column + c < m.columns);
      }
    }
  } else {
    const bool down = m.row_stride == 1;  // neighbouring threads take what lies together in memory
    for (int i = thread; i < kRows * kColumns; i += kThreads) {
      const int r = down ? i % kRows : i / kColumns, c = down ? i / kRows : i % kColumns;
      const int64_t line = row + Order::from(r);
      T value{};
      if (line < m.rows && column + c < m.columns) {
        value = m.data[line * m.row_stride + (column + c) * m.column_stride];
      }
      shared[r * kPitch + c] = value;
    }
  }
}

// One warp stores kRows x kColumns elements of shared memory as the rows of `m` from `row` on, within its bounds.
template <int kRows, int kColumns, int kPitch, class T>
__device__ __forceinline__ void store_rows(const Matrix<T>& m, int64_t row, const T* shared) {
  constexpr int kPerAccess = 16 / sizeof(T), kAccesses = kColumns / kPerAccess;
  const bool wide = m.wide();
  T* const data = const_cast<T*>(m.data);
  for (int i = threadIdx.x % 32; i < kRows * kAccesses; i += 32) {
    const int r = i / kAccesses, c = i % kAccesses * kPerAccess;
    if (row + r >= m.rows) continue;
    T* const to = data + (row + r) * m.row_stride + c * m.column_stride;
    const T* const from = shared + r * kPitch + c;
    if (wide) {
      if (c < m.columns) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
      for (int e = 0; e < kPerAccess && c + e < m.columns; ++e) to[e * m.column_stride] = from[e];
    }
  }
}

// Four 8x8 matrices of 16-bit elements, lane l giving the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(shared))
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(shared))
               : "memory");
}

// How much of the summed axis one instruction multiplies: 32 bytes, in two matrices of eight rows of 16 bytes.
template <class T>
constexpr int kProductDepth = 32 / sizeof(T);

// A fragment of A, 16 rows at (row, k) of a tile stored [row][k], or [k][row] where kTransposed.
template <bool kTransposed, int kPitch, class T>
__device__ __forceinline__ void load_a(uint32_t (&a)[4], const T* tile, int row, int k) {
  const int lane = threadIdx.x % 32;
  if constexpr (kTransposed) {
    load_matrices_transposed(a, tile + (k + lane / 16 * 8 + lane % 8) * kPitch + row + lane / 8 % 2 * 8);
  } else {
    load_matrices(a, tile + (row + lane % 16) * kPitch + k + lane / 16 * (kProductDepth<T> / 2));
  }
}

// Two neighbouring fragments of B of 8 columns at (k, column): b[0..1] and b[2..3]. The tile is stored [k][column], or
// [column][k] where kTransposed.
template <bool kTransposed, int kPitch, class T>
__device__ __forceinline__ void load_b(uint32_t (&b)[4], const T* tile, int k, int column) {
  const int lane = threadIdx.x % 32;
  if constexpr (kTransposed) {
    load_matrices(b, tile + (column + lane / 16 * 8 + lane % 8) * kPitch + k + lane / 8 % 2 * (kProductDepth<T> / 2));
  } else {
    load_matrices_transposed(b, tile + (k + lane % 16) * kPitch + column + lane / 16 * 8);
  }
}

// c += a * b. In c, lane l holds rows l / 4 (c[0], c[1]) and l / 4 + 8 (c[2], c[3]), columns l % 4 * 2 and the next.
template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void multiply_add<half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_add<bfloat>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Of TF32: fragments hold what those of 16 bits do, in A's and B's rows of 16 bytes four elements instead of eight.
template <>
__device__ __forceinline__ void multiply_add<float>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A float rounded to TF32's ten bits of fraction. The product itself would cut the others off.
__device__ __forceinline__ uint32_t to_tf32(float x) {
  uint32_t out;
  asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(out) : "f"(x));
  return out;
}
template <class T>
__device__ __forceinline__ void round_operands(uint32_t (&r)[4]) {
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (uint32_t& x : r) x = to_tf32(bit_cast<float>(x));
  }
}

// Rounds to TF32's ten bits of fraction, as cuBLAS does; the product cuts the others off, so half of the last one is added.
// A NaN of all ones would become a number by that.
template <int N>
__device__ __forceinline__ void round_all(uint32_t (&x)[N]) {
#pragma unroll
  for (uint32_t& bits : x) {
    if (__builtin_fabsf(bit_cast<float>(bits)) < inf<float>()) bits += 0x1000;
  }
}

// Two floats rounded to 16 bits each, the first in the low half.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack<half>(float low, float high) {
  uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
template <>
__device__ __forceinline__ uint32_t pack<bfloat>(float low, float high) {
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

}  // namespace fusion::gpu
