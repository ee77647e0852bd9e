#include "device/cuda/staging.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>

namespace loom::device::cuda {
namespace {

constexpr std::size_t kPage = 4096;

/// Where the kernel is asked for a range larger than any that it finds by itself: it never looks below the third part
/// of the addresses, which leaves too little for a buffer on the heap and one in a mapping as one message.
constexpr std::array<std::uintptr_t, 3> kLowAddresses{0, std::uintptr_t{1} << 32, std::uintptr_t{1} << 45};

/// nullptr: there is no memory. Pages come into being when they are touched.
std::byte* map(std::size_t bytes) {
  for (const std::uintptr_t hint : kLowAddresses) {
    void* const memory = ::mmap(reinterpret_cast<void*>(hint), bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) return static_cast<std::byte*>(memory);
  }
  return nullptr;
}

}  // namespace

StandIn::~StandIn() {
  staging_.give_back(*this);
}

void StandIn::copy(std::span<const Strip> strips, Direction direction) {
  if (strips.empty()) return;
  // Asked anew: the buffer of a persistent call may be gone, and its context with it.
  const Owner owner = staging_.owner_of(address_);
  bool in_flight = true;
  try {
    staging_.driver_->copy(owner, strips, direction, in_flight);
  } catch (...) {
    lost_ |= in_flight;
    throw;
  }
  std::uint64_t bytes = 0;
  for (const Strip& strip : strips) bytes += strip.row_bytes * strip.rows;
  staging_.copied_.fetch_add(bytes, std::memory_order_relaxed);
}

Staging::~Staging() {
  while (!free_.empty()) forget_last({});
}

std::unique_ptr<StandIn> Staging::stand_in(const void* address, std::size_t bytes, std::size_t used_bytes) {
  const Owner owner = owner_of(address);
  std::unique_ptr<StandIn> result(new StandIn(*this, address));
  const std::size_t rounded = std::bit_ceil(std::max(bytes, kPage));
  // Locking pages touches them, which would fill the machine where blocks lie far apart.
  const bool dense = rounded <= 4 * used_bytes + 16 * kPage;
  if (dense && (reuse(*result, rounded) || keep_new(*result, owner, rounded))) return result;
  result->bytes_ = (bytes + kPage - 1) / kPage * kPage;
  result->memory_ = map(result->bytes_);
  if (result->memory_ == nullptr)
    throw Error(ErrorCode::kOutOfMemory,
                fmt::format("There is no memory for the {} bytes of a device buffer on the host.", bytes));
  return result;
}

Owner Staging::owner_of(const void* address) const {
  if (const std::optional<Owner> owner = driver_->owner_of(address)) return *owner;
  throw Error(ErrorCode::kDevice, "A buffer on a device is not there any more.");
}

bool Staging::reuse(StandIn& stand_in, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto best = free_.end();
  for (auto kept = free_.begin(); kept != free_.end(); ++kept)
    if (kept->bytes >= bytes && kept->bytes <= 4 * bytes &&
        (best == free_.end() || kept->bytes < best->bytes))
      best = kept;
  if (best == free_.end()) return false;
  stand_in.memory_ = best->memory;
  stand_in.bytes_ = best->bytes;
  stand_in.kept_ = true;
  free_.erase(best);
  return true;
}

bool Staging::keep_new(StandIn& stand_in, const Owner& owner, std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (bytes > most_kept_) return false;
    while (kept_ + bytes > most_kept_ && !free_.empty()) forget_last(owner);
    if (kept_ + bytes > most_kept_) return false;
    kept_ += bytes;
  }
  stand_in.memory_ = map(bytes);
  if (stand_in.memory_ != nullptr) {
    stand_in.bytes_ = bytes;
    stand_in.kept_ = true;
    driver_->pin(owner, stand_in.memory_, bytes);  // slower without
    return true;
  }
  const std::lock_guard lock(mutex_);
  kept_ -= bytes;
  return false;
}

void Staging::give_back(const StandIn& stand_in) noexcept {
  if (stand_in.memory_ == nullptr || stand_in.lost_) return;
  if (!stand_in.kept_) {
    ::munmap(stand_in.memory_, stand_in.bytes_);
    return;
  }
  const std::lock_guard lock(mutex_);
  try {
    free_.push_back({stand_in.memory_, stand_in.bytes_});
  } catch (...) {
    kept_ -= stand_in.bytes_;
    if (driver_->unpin({}, stand_in.memory_)) ::munmap(stand_in.memory_, stand_in.bytes_);
  }
}

/// Memory that CUDA does not let go of, because the driver has come to its end or no context is current,
/// stays mapped.
void Staging::forget_last(const std::optional<Owner>& in_context_of) noexcept {
  const Kept kept = free_.back();
  free_.pop_back();
  kept_ -= kept.bytes;
  if (driver_->unpin(in_context_of, kept.memory)) ::munmap(kept.memory, kept.bytes);
}

}  // namespace loom::device::cuda
