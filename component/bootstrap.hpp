// bootstrap.hpp -- exchanges between the ranks of a communicator before loom has connected them, typed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "component/core.h"

namespace loom {

/// The component below could not communicate. Unlike an Error this is not agreed on: nothing can be.
class BootstrapFailed : public std::runtime_error {
 public:
  BootstrapFailed()
      : std::runtime_error(
            "The component below could not gather what the processes have to tell each other.") {}
};

class Bootstrap {
 public:
  /// `raw` may go after this; its context must stay.
  explicit Bootstrap(const loom_bootstrap& raw) : raw_(raw), name_(raw.name) { raw_.name = nullptr; }

  int rank() const noexcept { return raw_.rank; }
  int size() const noexcept { return raw_.size; }
  const std::string& name() const noexcept { return name_; }

  /// Every rank's value, by rank. Collective.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> all_gather(const T& mine)
  const {
    std::vector<T> all(static_cast<std::size_t>(raw_.size));
    gather(&mine, all.data(), sizeof(T));
    return all;
  }

  /// Every rank's bytes one after the other, by rank; all have equally many. Collective.
  std::vector<std::byte> all_gather_slices(const std::vector<std::byte>& mine) const {
    std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(raw_.size));
    if (!mine.empty()) gather(mine.data(), all.data(), mine.size());
    return all;
  }

  /// Every rank's bytes, by rank; bytes_of[r] is how many rank r has. Collective.
  std::vector<std::vector<std::byte>> all_gather_bytes(const std::vector<std::byte>& mine,
                                                       const std::vector<std::uint64_t>& bytes_of) const {
    const std::size_t stride = *std::max_element(bytes_of.begin(), bytes_of.end());
    std::vector<std::byte> padded(stride), all(stride * bytes_of.size());
    std::copy(mine.begin(), mine.end(), padded.begin());
    if (stride > 0) gather(padded.data(), all.data(), stride);
    std::vector<std::vector<std::byte>> parts;
    for (std::size_t rank = 0; rank < bytes_of.size(); ++rank) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(rank * stride);
      parts.emplace_back(first, first + static_cast<std::ptrdiff_t>(bytes_of[rank]));
    }
    return parts;
  }

 private:
  void gather(const void* mine, void* all, std::size_t bytes) const {
    if (raw_.all_gather(raw_.context, mine, all, bytes) != 0) throw BootstrapFailed();
  }

  loom_bootstrap raw_;
  std::string name_;
};

}  // namespace loom
