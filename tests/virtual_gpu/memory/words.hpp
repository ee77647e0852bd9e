// words.hpp -- what both models have in common: finding and checking addresses, and words of the host's
// memory.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/virtual_gpu/memory/space.hpp"

namespace virtual_gpu::memory {

inline constexpr std::size_t kLineBytes = 128;

/// In words of 8 bytes or less, each whole. Host and size as device code has them: aligned.
void load_words(std::byte* to, const std::byte* host, std::size_t bytes);
void store_words(std::byte* host, const std::byte* from, std::size_t bytes);
/// The same for lanes whose bytes lie side by side; `host`: where those of the first are.
void load_row(std::span<const Access> lanes, const std::byte* host, std::size_t bytes);
void store_row(std::byte* host, std::span<const Access> lanes, std::size_t bytes);
std::uint64_t update_word(std::byte* host, std::size_t bytes, View::Change change, std::uint64_t a,
                          std::uint64_t b);

/// The regions that a view has used, so that the space is not asked for each access. What was counted in them
/// goes to the region's counters when it leaves, or they do.
class Regions {
 public:
  struct Found : Region {
    explicit Found(const Region& region) : Region(region) {}
    std::uint64_t loaded_here = 0, stored_here = 0;  ///< bytes, since it was found
  };

  explicit Regions(const Space& space) : space_(space) {}
  ~Regions() { forget_all(); }
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  /// Throws Error if the access is wrong. Valid until the next call. `bytes`: a power of two.
  Found& find(unsigned thread, std::uint64_t address, std::size_t bytes, bool stores) {
    if (!found_.empty() && space_.generation() == generation_) {
      Found& latest = found_.front();
      const std::uint64_t offset = address - latest.begin;
      if (offset < latest.bytes && latest.bytes - offset >= bytes && (address & (bytes - 1)) == 0 &&
          (latest.writable || !stores))
        return latest;
    }
    return search(thread, address, bytes, stores);
  }

 private:
  Found& search(unsigned thread, std::uint64_t address, std::size_t bytes, bool stores);
  void forget_all();

  const Space& space_;
  std::uint64_t generation_ = 0;
  std::vector<Found> found_;  ///< the latest first
};

/// Throws Error for what nobody has stored.
void expect_written(const Region& region, unsigned thread, std::uint64_t address, std::size_t bytes);

inline std::byte* host_of(const Region& region, std::uint64_t address) {
  return region.host + (address - region.begin);
}
inline bool keeps_lines_whole(Path path) {
  return path == Path::kSameGpu || path == Path::kNvlink;
}
/// The lines, by address, that the lanes cover whole on a path that keeps them so.
std::vector<std::uint64_t> whole_lines(Regions& regions, const Form& form, std::span<const Access> lanes,
                                       bool stores);

/// Holds a line's lock.
class LineGuard {
 public:
  LineGuard(const Region& region, std::uint64_t line);
  ~LineGuard();
  LineGuard(const LineGuard&) = delete;
  LineGuard& operator=(const LineGuard&) = delete;

 private:
  std::atomic<std::uint32_t>& lock_;
};

}  // namespace virtual_gpu::memory
