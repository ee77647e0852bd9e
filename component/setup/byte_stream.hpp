// byte_stream.hpp -- values of different kinds as one string of bytes, for the exchange of handles between
// ranks of one build.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace loom {

class ByteWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void value(const T& value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof(T));
  }
  void string(const std::vector<std::byte>& bytes) {
    value(bytes.size());
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what a ByteWriter wrote, in the same order. Throws Error (kInternal) past the end.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T value() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  std::vector<std::byte> string() {
    const auto length = value<std::size_t>();
    const std::byte* first = take(length);
    return {first, first + length};
  }

 private:
  const std::byte* take(std::size_t length) {
    if (length > bytes_.size() - at_) throw Error(ErrorCode::kInternal, "A peer's handle is too short.");
    at_ += length;
    return bytes_.data() + at_ - length;
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

}  // namespace loom
