// What is known of an address without CUDA's driver.
#include "device/cuda/host_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace {
int sbrk_calls = 0;
}

/// UCX's own function in its place writes the C library's variable outside malloc's lock.
extern "C" void* sbrk(std::intptr_t) noexcept {
  ++sbrk_calls;
  return reinterpret_cast<void*>(-1);
}

namespace loom::device::cuda {
namespace {

std::byte static_data;

TEST(ProgramMemory, IsStaticDataStackAndHeapAlone) {
  constexpr std::size_t kPage = 4096;
  const std::byte local{};
  EXPECT_TRUE(is_program_memory(&static_data));
  EXPECT_TRUE(is_program_memory(&local));
  void* const mapped = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_FALSE(is_program_memory(mapped));
  ::munmap(mapped, kPage);
  const auto end = static_cast<std::uintptr_t>(::syscall(SYS_brk, nullptr));
  EXPECT_TRUE(is_program_memory(reinterpret_cast<const void*>(end - 1)));
  EXPECT_FALSE(is_program_memory(reinterpret_cast<const void*>(end)));
}

TEST(ProgramMemory, IsFoundWithoutACallThatMayMoveTheBreak) {
  is_program_memory(
      reinterpret_cast<const void*>(static_cast<std::uintptr_t>(::syscall(SYS_brk, nullptr)) - 1));
  EXPECT_EQ(sbrk_calls, 0);
}

}  // namespace
}  // namespace loom::device::cuda
