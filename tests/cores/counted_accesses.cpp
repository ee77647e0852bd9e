// counted_accesses.cpp -- code that is compiled with -fsanitize=thread, but not linked with it, calls the
// functions below before each of its accesses to memory: here they report to the World. So what is counted is
// what loom's executors do, not what somebody has written down of them. Their calls of memcpy are wrapped by
// the linker.
#include <cstring>

#include "tests/cores/world.hpp"

namespace {

using loom::cores::World;

void read(const void* from, std::size_t bytes) {
  if (World* const world = World::current()) world->read(from, bytes);
}
void write(const void* to, std::size_t bytes) {
  if (World* const world = World::current()) world->write(to, bytes);
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}

#define COUNTED_SIZE(BYTES)                       \
  void __tsan_read##BYTES(void* from) {           \
    read(from, BYTES);                            \
  }                                               \
  void __tsan_write##BYTES(void* to) {            \
    write(to, BYTES);                             \
  }                                               \
  void __tsan_unaligned_read##BYTES(void* from) { \
    read(from, BYTES);                            \
  }                                               \
  void __tsan_unaligned_write##BYTES(void* to) {  \
    write(to, BYTES);                             \
  }
COUNTED_SIZE(1)
COUNTED_SIZE(2)
COUNTED_SIZE(4)
COUNTED_SIZE(8)
COUNTED_SIZE(16)
#undef COUNTED_SIZE

void __tsan_read_range(void* from, std::size_t bytes) {
  read(from, bytes);
}
void __tsan_write_range(void* to, std::size_t bytes) {
  write(to, bytes);
}

/// Loads of the shared flags. A relaxed one is of a note, which lies beside a flag.
std::uint64_t __tsan_atomic64_load(const volatile std::uint64_t* from, int) {
  if (World* const world = World::current()) world->look(const_cast<const std::uint64_t*>(from));
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}
void __tsan_atomic64_store(volatile std::uint64_t* to, std::uint64_t value, int) {
  if (World* const world = World::current()) world->publish(const_cast<const std::uint64_t*>(to));
  __atomic_store_n(to, value, __ATOMIC_RELAXED);
}
std::uint8_t __tsan_atomic8_load(const volatile std::uint8_t* from, int) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}
std::uint32_t __tsan_atomic32_fetch_add(volatile std::uint32_t* at, std::uint32_t more, int) {
  return __atomic_fetch_add(at, more, __ATOMIC_RELAXED);
}

void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  if (World* const world = World::current()) {
    world->read(from, bytes);
    world->write(to, bytes);
    world->spend(static_cast<double>(bytes) * world->costs().byte);
  }
  return __real_memcpy(to, from, bytes);
}

}  // extern "C"
