// bootstrap.hpp -- exchanges between the ranks of a communicator before loom has connected them, typed.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
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

/// The bytes of all ranks in one piece, each padded with zeros to the length of the longest.
class GatheredBytes {
 public:
  GatheredBytes(std::vector<std::byte> all, std::size_t stride) : all_(std::move(all)), stride_(stride) {}

  std::span<const std::byte> operator[](int rank) const {
    return std::span(all_).subspan(static_cast<std::size_t>(rank) * stride_, stride_);
  }

 private:
  std::vector<std::byte> all_;
  std::size_t stride_;
};

class Bootstrap {
 public:
  /// `raw` may go after this; its context must stay.
  explicit Bootstrap(const loom_bootstrap& raw) : raw_(raw), name_(raw.name) { raw_.name = nullptr; }

  int rank() const noexcept { return raw_.rank; }
  int size() const noexcept { return raw_.size; }
  bool alone() const noexcept { return raw_.alone; }
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

  /// Every rank's bytes; `longest` is the length of the longest, the same on all ranks. Collective.
  GatheredBytes all_gather_bytes(std::vector<std::byte> mine, std::size_t longest) const {
    mine.resize(longest);
    return {all_gather_slices(mine), longest};
  }

 private:
  void gather(const void* mine, void* all, std::size_t bytes) const {
    if (raw_.all_gather(raw_.context, mine, all, bytes) != 0) throw BootstrapFailed();
  }

  loom_bootstrap raw_;
  std::string name_;
};

}  // namespace loom
