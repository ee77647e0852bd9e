#include "device/cuda/staging.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>

#include "base/format.hpp"

namespace loom::device::cuda {
namespace {

using Memory = std::span<std::byte>;

constexpr std::size_t kPage = 4096, kLargestPage = 65536;
constexpr std::size_t kCacheLine = 64;
/// Blocks that lie farther apart have staging buffers in ranges of their own: from MPI_BOTTOM, a message may
/// reach from the program's data to its farthest mapping, and no free range is as long as that.
constexpr std::size_t kOneRange = std::size_t{1} << 30;

/// Empty: there is no memory, or the address is taken. Pages are allocated when they are touched.
Memory map(std::size_t bytes, std::byte* at = nullptr) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at == nullptr ? 0 : MAP_FIXED_NOREPLACE);
  void* const memory = ::mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) return {};
  const Memory mapped(static_cast<std::byte*>(memory), bytes);
  if (at == nullptr || memory == at) return mapped;
  ::munmap(memory, bytes);  // Linux before 4.17 takes the address as a hint
  return {};
}

void unmap(std::span<const Memory> memory) {
  for (const Memory range : memory) ::munmap(range.data(), range.size());
}

struct Range {
  std::uintptr_t begin, end;
};

Range range_of(const StridedRegion& region) {
  const auto begin = reinterpret_cast<std::uintptr_t>(region.device);
  return {begin, begin + (region.rows - 1) * region.pitch + region.row_bytes};
}

/// In whole pages, sorted; ranges with little between them become one.
std::vector<Range> far_apart(std::vector<Range> ranges) {
  std::ranges::sort(ranges, {}, &Range::begin);
  std::vector<Range> result;
  for (const Range range : ranges) {
    const std::uintptr_t begin = range.begin / kLargestPage * kLargestPage,
                         end = (range.end + kLargestPage - 1) / kLargestPage * kLargestPage;
    if (!result.empty() && begin < result.back().end + kOneRange)
      result.back().end = std::max(result.back().end, end);
    else
      result.push_back({begin, end});
  }
  return result;
}

/// False: some address is taken at this distance. `memory` has room for all ranges.
bool map_at(std::ptrdiff_t distance, std::span<const Range> ranges, std::vector<Memory>& memory) {
  for (const Range range : ranges) {
    const std::uintptr_t at = range.begin + static_cast<std::uintptr_t>(distance);
    const Memory mapped = at == 0 ? Memory{} : map(range.end - range.begin, reinterpret_cast<std::byte*>(at));
    if (mapped.empty()) {
      unmap(memory);
      memory.clear();
      return false;
    }
    memory.push_back(mapped);
  }
  return true;
}

/// A distance at which all ranges are free; most addresses of a process are. 0: none was found.
std::ptrdiff_t map_apart(std::span<const Range> ranges, std::vector<Memory>& memory) {
  memory.reserve(ranges.size());
  for (const int bits : {40, 33})
    for (std::ptrdiff_t step = 1; step <= 100; ++step)
      for (const std::ptrdiff_t sign : {-1, 1})
        if (const std::ptrdiff_t distance = sign * step << bits; map_at(distance, ranges, memory))
          return distance;
  return 0;
}

}  // namespace

StagingBuffer::~StagingBuffer() {
  staging_.give_back(*this);
}

void StagingBuffer::copy(std::span<const StridedRegion> regions, Direction direction) {
  if (regions.empty()) return;
  const Owner owner = this->owner();
  bool in_flight = true;
  try {
    staging_.driver_->copy(owner, regions, direction, in_flight);
  } catch (...) {
    lost_ |= in_flight;
    throw;
  }
  note_copied(bytes_of(regions));
}

/// Looked up each time: the buffer of a persistent request may be gone, and its context with it. This may be
/// another thread than the program's.
Owner StagingBuffer::owner() const {
  return staging_.owner_of(address_, context_);
}

Memory StagingBuffer::locked_window() {
  if (window_.empty()) window_ = staging_.locked_memory(owner(), kWindowBytes, true);
  return window_;
}

void StagingBuffer::note_copied(std::size_t bytes) noexcept {
  staging_.copied_.fetch_add(bytes, std::memory_order_relaxed);
}

const Driver& StagingBuffer::driver() const noexcept {
  return staging_.driver();
}

Staging::~Staging() {
  while (!free_.empty()) forget({}, take_last());
}

std::unique_ptr<StagingBuffer> Staging::staging_buffer(const void* address, std::span<StridedRegion> load,
                                                       std::span<StridedRegion> store, bool may_wait,
                                                       void* otherwise) {
  const Owner owner = owner_of(address, otherwise);
  std::unique_ptr<StagingBuffer> result(new StagingBuffer(*this, address, owner.context));
  const std::size_t used = bytes_of(load) + bytes_of(store);
  Range all{UINTPTR_MAX, 0};
  for (const std::span<StridedRegion> regions : {load, store})
    for (const StridedRegion& region : regions) {
      const auto [begin, end] = range_of(region);
      all = {std::min(all.begin, begin), std::max(all.end, end)};
    }
  const std::size_t lead = all.begin % kCacheLine, bytes = all.end - all.begin + lead,
                    rounded = std::bit_ceil(std::max(bytes, kPage));
  // Locking pages touches them, which would fill the machine where blocks lie far apart.
  const bool dense = rounded <= 4 * used + 16 * kPage;
  if (!dense && bytes > kOneRange) {
    std::vector<Range> ranges;
    for (const std::span<StridedRegion> regions : {load, store})
      for (const StridedRegion& region : regions) ranges.push_back(range_of(region));
    result->distance_ = map_apart(far_apart(std::move(ranges)), result->memory_);
  } else {
    result->memory_.reserve(1);
    Memory memory = dense ? locked_memory(owner, rounded, may_wait) : Memory{};
    result->kept_ = !memory.empty();
    if (memory.empty()) memory = map((bytes + kPage - 1) / kPage * kPage);
    if (!memory.empty()) result->memory_.push_back(memory);
  }
  if (result->memory_.empty())
    throw Error(ErrorCode::kOutOfMemory,
                loom::format("There is no memory for a device buffer of {} bytes on the host.", used));
  if (result->distance_ == 0)
    result->distance_ = static_cast<std::ptrdiff_t>(
        reinterpret_cast<std::uintptr_t>(result->memory_.front().data()) + lead - all.begin);
  for (const std::span<StridedRegion> regions : {load, store})
    for (StridedRegion& region : regions) region.host = region.device + result->distance_;
  return result;
}

Owner Staging::owner_of(const void* address, void* otherwise) const {
  if (const std::optional<Owner> owner = driver_->owner_of(address, otherwise)) return *owner;
  throw Error(ErrorCode::kDevice, "A buffer on a device is not there any more.");
}

/// Empty: nothing fits.
Memory Staging::reuse(std::size_t bytes, std::size_t most_bytes) {
  const MutexLock lock(mutex_);
  auto best = free_.end();
  for (auto kept = free_.begin(); kept != free_.end(); ++kept)
    if (kept->size() >= bytes && kept->size() <= most_bytes &&
        (best == free_.end() || kept->size() < best->size()))
      best = kept;
  if (best == free_.end()) return {};
  const Memory found = *best;
  free_.erase(best);
  return found;
}

/// Empty: there is no memory, it would be too much, or CUDA does not lock it.
Memory Staging::keep_new(const Owner& owner, std::size_t bytes, bool may_wait) {
  for (bool has_room = false; !has_room;) {
    Memory forgotten;
    {
      const MutexLock lock(mutex_);
      has_room = bytes <= most_kept_ && kept_ <= most_kept_ - bytes;
      if (has_room)
        kept_ += bytes;
      else if (bytes > most_kept_ || !may_wait || free_.empty())
        return {};
      else
        forgotten = take_last();
    }
    if (!forgotten.empty()) forget(owner, forgotten);  // nobody holds the lock while CUDA waits for the GPU
  }
  const Memory mapped = map(bytes);
  // After a fork this process would write to copies of the pages, while the GPU keeps to those that were
  // locked: before Linux 5.9, and with drivers that lock as before.
  if (!mapped.empty()) ::madvise(mapped.data(), bytes, MADV_DONTFORK);
  if (!mapped.empty() && driver_->pin(owner, mapped.data(), bytes)) return mapped;
  if (!mapped.empty()) unmap({&mapped, 1});
  const MutexLock lock(mutex_);
  kept_ -= bytes;
  return {};
}

/// Who may not wait takes longer memory, too, rather than none.
Memory Staging::locked_memory(const Owner& owner, std::size_t bytes, bool may_wait) {
  Memory found = reuse(bytes, 4 * bytes);
  if (found.empty()) found = keep_new(owner, bytes, may_wait);
  if (found.empty() && !may_wait) found = reuse(bytes, most_kept_);
  return found;
}

void Staging::give_back(const StagingBuffer& staging_buffer) noexcept {
  if (staging_buffer.lost_) return;
  if (!staging_buffer.window_.empty()) keep(staging_buffer.window_);
  if (staging_buffer.kept_)
    keep(staging_buffer.memory_.front());
  else
    unmap(staging_buffer.memory_);
}

void Staging::keep(Memory locked) noexcept {
  const MutexLock lock(mutex_);
  try {
    free_.push_back(locked);
  } catch (...) {
    kept_ -= locked.size();
    if (driver_->unpin({}, locked.data())) unmap({&locked, 1});
  }
}

Memory Staging::take_last() noexcept {
  const Memory kept = free_.back();
  free_.pop_back();
  kept_ -= kept.size();
  return kept;
}

/// Memory that CUDA does not unlock, because the driver has ended or no context is current, stays mapped.
void Staging::forget(const std::optional<Owner>& in_context_of, Memory kept) noexcept {
  if (driver_->unpin(in_context_of, kept.data())) unmap({&kept, 1});
}

}  // namespace loom::device::cuda
