// bytes.hpp -- what ranks tell each other, value by value, as one string of bytes between processes of one
// build. Reading takes whatever bytes come.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom {

/// Throws Error (kInternal).
[[noreturn]] inline void cannot_be_read(const char* what, const char* why) {
  throw Error(ErrorCode::kInternal, loom::format("{} cannot be read: {}.", what, why));
}

class ByteWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  void put_all(std::span<const std::byte> bytes) {
    put(static_cast<std::uint32_t>(bytes.size()));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Throws Error (kInternal) where a value is not there, or not one of its kind.
class ByteReader {
 public:
  /// what: for messages; it must outlive this.
  ByteReader(std::span<const std::byte> bytes, const char* what) : bytes_(bytes), what_(what) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  template <class T>
  T get_below(int limit, const char* why) {
    const T value = get<T>();
    if (value >= limit) fail(why);
    return value;
  }
  template <class T>
  T get_gbps() {
    const T gbps = get<T>();
    if (!(gbps >= 0) || !std::isfinite(gbps)) fail("a speed is none");
    return gbps;
  }
  std::span<const std::byte> get_all() { return take(get<std::uint32_t>()); }
  bool done() const { return bytes_.empty(); }

  [[noreturn]] void fail(const char* why) const { cannot_be_read(what_, why); }

 private:
  std::span<const std::byte> take(std::size_t length) {
    if (bytes_.size() < length) fail("it is cut short");
    const auto taken = bytes_.first(length);
    bytes_ = bytes_.subspan(length);
    return taken;
  }

  std::span<const std::byte> bytes_;
  const char* what_;
};

}  // namespace loom
