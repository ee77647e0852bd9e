// memory.hpp -- words that threads, blocks, processes and GPUs share, as step code reaches them: on the host
// HostMemory of protocol.hpp, in a kernel the same orders in PTX, at system scope. Never run on a GPU so far.
#pragma once

#include "device/link/protocol.hpp"
#include "device/reduce/element_types.hpp"

#ifdef __CUDACC__
#define LOOM_UNROLL _Pragma("unroll")
#define LOOM_NOINLINE __noinline__
#else
#define LOOM_UNROLL
#define LOOM_NOINLINE __attribute__((noinline))
#endif

namespace loom::device::steps {

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
  return HostMemory::load(at, Order::kAcquire);
#endif
}

/// Of a group of threads one does so after a barrier: what the others wrote before it comes first, too.
LOOM_HOST_DEVICE inline void store_release(Word* at, Word value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(at), "l"(value) : "memory");
#else
  HostMemory::store(at, value, Order::kRelease);
#endif
}

/// Two words, each whole, in no order.
LOOM_HOST_DEVICE inline Vector load_relaxed(const Word* at) {
#ifdef __CUDA_ARCH__
  Vector value;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(value.word[0]), "=l"(value.word[1])
               : "l"(at)
               : "memory");
  return value;
#else
  return {HostMemory::load(at, Order::kRelaxed), HostMemory::load(at + 1, Order::kRelaxed)};
#endif
}
LOOM_HOST_DEVICE inline void store_relaxed(Word* at, Vector value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};"
               :
               : "l"(at), "l"(value.word[0]), "l"(value.word[1])
               : "memory");
#else
  HostMemory::store(at, value.word[0], Order::kRelaxed);
  HostMemory::store(at + 1, value.word[1], Order::kRelaxed);
#endif
}

}  // namespace loom::device::steps
