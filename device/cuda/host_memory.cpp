#include "device/cuda/host_memory.hpp"

#include <link.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace loom::device::cuda {
namespace {

struct Range {
  std::uintptr_t begin = 0, end = 0;
  bool contains(std::uintptr_t address) const noexcept { return address >= begin && address < end; }
};

struct Mapping {
  Range range;
  bool readable;
  std::string_view name;
};

/// Calls found(mapping) for each of the process until it returns true; whether it did.
template <class Found>
bool find_mapping(Found&& found) {
  std::string line;
  for (std::ifstream maps("/proc/self/maps"); std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char access = '-';
    int name = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %c%*s %*s %*s %*s %n", &begin, &end, &access,
                    &name) < 3)
      continue;
    if (found(Mapping{
            {begin, end}, access == 'r', std::string_view(line).substr(static_cast<std::size_t>(name))}))
      return true;
  }
  return false;
}

/// Linux keeps at least 128 MiB below the first thread's stack free of mappings; its limit may be "none".
constexpr std::size_t kMostStack = std::size_t{64} << 20;

Range stack_of_this_thread() noexcept {
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return {};
  void* lowest = nullptr;
  std::size_t bytes = 0;
  const bool known = ::pthread_attr_getstack(&attributes, &lowest, &bytes) == 0;
  ::pthread_attr_destroy(&attributes);
  if (!known) return {};
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(lowest) + bytes;
  return {end - std::min(bytes, kMostStack), end};
}

/// From this function's frame on. Nothing where the thread runs on another stack, as coroutines do.
bool is_in_used_stack(std::uintptr_t address) noexcept {
  static thread_local const Range stack = stack_of_this_thread();
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return stack.contains(here) && address >= here && address < stack.end;
}

/// What does not change in a process.
struct Program {
  std::vector<Range> segments;
  std::uintptr_t heap_begin = UINTPTR_MAX;

  Program() {
    ::dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* program) {
          for (int i = 0; i < object->dlpi_phnum; ++i)
            if (const auto& header = object->dlpi_phdr[i]; header.p_type == PT_LOAD) {
              const std::uintptr_t begin = object->dlpi_addr + header.p_vaddr;
              static_cast<Program*>(program)->segments.push_back({begin, begin + header.p_memsz});
            }
          return 1;  // the first object is the program
        },
        this);
    find_mapping([this](const Mapping& mapping) {
      if (mapping.name != "[heap]") return false;
      heap_begin = mapping.range.begin;
      return true;
    });
  }
};

/// The kernel's word. sbrk(0) would write it into the C library's variable where UCX has put its own function
/// in the place of sbrk: outside malloc's lock, so that a thread that moves the break meanwhile has an old
/// one put back, and malloc gives out memory twice.
std::uintptr_t program_break() {
  return static_cast<std::uintptr_t>(::syscall(SYS_brk, nullptr));
}

}  // namespace

bool is_program_memory(const void* memory) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (is_in_used_stack(address)) return true;
  try {
    static const Program& program = *new Program;  // never destroyed: programs make calls while they exit
    if (address >= program.heap_begin && address < program_break()) return true;
    return std::ranges::any_of(program.segments, [=](const Range& each) { return each.contains(address); });
  } catch (const std::exception&) {  // of reading about the program
    return false;
  }
}

bool is_mapped_on_host(const void* memory) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  try {
    return find_mapping([=](const Mapping& mapping) {
      return mapping.range.contains(address) && mapping.readable && !mapping.name.starts_with("/dev/nvidia");
    });
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace loom::device::cuda
