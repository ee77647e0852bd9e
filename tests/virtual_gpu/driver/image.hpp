// image.hpp -- what a program gives to cuModuleLoadData: the text of PTX, or a container that nvcc has made
// of several PTXs and machine codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace virtual_gpu {

enum class Packing : std::uint8_t { kNone, kLz4, kZstd };

struct Image {
  bool is_ptx;       ///< else machine code
  int architecture;  ///< 90 of sm_90
  Packing packing;
  std::span<const std::byte> bytes;
  std::size_t unpacked_bytes;
};

/// What is in a container. Throws std::runtime_error: it is none, or it is broken.
std::vector<Image> images_of(const void* container);
bool is_container(const void* image);

/// The text of an image of PTX. Throws std::runtime_error.
std::string text_of(const Image& image);

/// The block format of LZ4. Throws std::runtime_error.
std::string unpack_lz4(std::span<const std::byte> packed, std::size_t bytes);

}  // namespace virtual_gpu
