#include "device/cuda/opened_memory.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"

namespace loom::device::cuda {

std::byte* OpenedMemory::open(std::uint64_t id, const MemoryHandle& handle) {
  {
    const std::lock_guard lock(mutex_);
    const auto is_it = [&](const Opened& each) {
      return each.id == id && each.handle.pid == handle.pid && each.handle.address == handle.address;
    };
    if (const auto found = std::ranges::find_if(opened_, is_it); found != opened_.end()) {
      ++found->users;
      return found->memory;
    }
  }
  std::byte* memory = nullptr;
  try {
    memory = gpu_.attach(handle);
  } catch (const Error&) {
    wants_close_ = true;
    throw;
  }
  const std::lock_guard lock(mutex_);
  opened_.push_back({id, handle, memory, 1});
  return memory;
}

void OpenedMemory::let_go(const std::byte* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto is_it = [&](const Opened& each) { return each.memory == memory && each.users > 0; };
  if (const auto found = std::ranges::find_if(opened_, is_it); found != opened_.end()) --found->users;
}

void OpenedMemory::close_unused() noexcept {
  wants_close_ = false;
  for (;;) {
    Opened unused;
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::ranges::find(opened_, 0, &Opened::users);
      if (found == opened_.end()) return;
      unused = *found;
      opened_.erase(found);
    }
    gpu_.detach(unused.handle, unused.memory);  // nobody holds the lock while this waits
  }
}

}  // namespace loom::device::cuda
