// memory.hpp -- words that threads, blocks, processes and GPUs share, as step code reaches them: on the host
// through std::atomic_ref, in a kernel in the same orders in PTX, at system scope. Never run on a GPU so far.
#pragma once

#ifndef __CUDA_ARCH__
#include <atomic>
#endif
#include <cstddef>
#include <cstdint>

#include "device/reduce/element_types.hpp"

#ifdef __CUDACC__
#define LOOM_UNROLL _Pragma("unroll")
#else
#define LOOM_UNROLL
#endif
#define LOOM_NOINLINE __attribute__((noinline))

namespace loom::device {

using Word = std::uint64_t;

namespace steps {

#ifndef __CUDA_ARCH__
static_assert(std::atomic_ref<Word>::is_always_lock_free, "LL needs 8-byte stores that do not tear");
#endif

/// What a thread moves at a time. In memory that is shared it lies at a multiple of 16 bytes.
struct alignas(16) Vector {
  Word word[2];
};

LOOM_HOST_DEVICE inline Word load_acquire(const Word* at) {
#ifdef __CUDA_ARCH__
  Word value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
#else
  // atomic_ref<const T> comes with C++26.
  return std::atomic_ref(*const_cast<Word*>(at)).load(std::memory_order_acquire);
#endif
}

/// One thread of a group does so after a barrier: then what the others wrote before the barrier is released,
/// too.
LOOM_HOST_DEVICE inline void store_release(Word* at, Word value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(at), "l"(value) : "memory");
#else
  std::atomic_ref(*at).store(value, std::memory_order_release);
#endif
}

/// Two words, each loaded whole, in no order.
LOOM_HOST_DEVICE inline Vector load_relaxed(const Word* at) {
#ifdef __CUDA_ARCH__
  Vector value;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(value.word[0]), "=l"(value.word[1])
               : "l"(at)
               : "memory");
  return value;
#else
  const auto load = [&](int i) {
    return std::atomic_ref(const_cast<Word*>(at)[i]).load(std::memory_order_relaxed);
  };
  return {load(0), load(1)};
#endif
}
LOOM_HOST_DEVICE inline void store_relaxed(Word* at, Vector value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};"
               :
               : "l"(at), "l"(value.word[0]), "l"(value.word[1])
               : "memory");
#else
  for (int i = 0; i < 2; ++i) std::atomic_ref(at[i]).store(value.word[i], std::memory_order_relaxed);
#endif
}

}  // namespace steps
}  // namespace loom::device
