// Containers are as nvcc 12 and 13 make them: a header of 16 bytes, then entries, each with a header of its
// own, whose size it says.
#include "tests/virtual_gpu/driver/image.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace virtual_gpu {
namespace {

struct ContainerHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;  ///< of all entries
};
constexpr std::uint32_t kMagic = 0xba55ed50;

struct EntryHeader {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;
  std::uint32_t packed_bytes;  ///< without what aligns the next entry; 0: not packed
  std::uint32_t options_at;
  std::uint16_t minor, major;
  std::uint32_t architecture;
  std::uint32_t name_at, name_bytes;
  std::uint64_t flags, reserved, unpacked_bytes;
};
constexpr std::uint16_t kPtx = 1, kElf = 2;
constexpr std::uint64_t kLz4Flag = 0x2000, kZstdFlag = 0x8000;
static_assert(sizeof(EntryHeader) == 64);

/// Everyone has the library; its header is in a package of its own.
std::string unpack_zstd(std::span<const std::byte> packed, std::size_t bytes) {
  using Decompress = std::size_t(void*, std::size_t, const void*, std::size_t);
  static void* const library = ::dlopen("libzstd.so.1", RTLD_NOW);
  static auto* const decompress =
      library == nullptr ? nullptr : reinterpret_cast<Decompress*>(::dlsym(library, "ZSTD_decompress"));
  if (decompress == nullptr) throw std::runtime_error("there is no libzstd.so.1 to unpack an image with");
  std::string text(bytes, '\0');
  if (decompress(text.data(), bytes, packed.data(), packed.size()) != bytes)
    throw std::runtime_error("a packed image is broken");
  return text;
}

}  // namespace

std::string unpack_lz4(std::span<const std::byte> packed, std::size_t bytes) {
  std::string out;
  std::size_t at = 0;
  const auto next = [&] {
    if (at == packed.size()) throw std::runtime_error("a packed image is broken");
    return std::to_integer<std::size_t>(packed[at++]);
  };
  const auto length = [&](std::size_t four_bits) {
    std::size_t result = four_bits;
    for (std::size_t byte = 255; four_bits == 15 && byte == 255;) result += byte = next();
    return result;
  };
  while (at < packed.size()) {
    const std::size_t token = next(), literals = length(token >> 4);
    for (std::size_t i = 0; i < literals; ++i) out.push_back(static_cast<char>(next()));
    if (at == packed.size()) break;  // the last sequence has no match
    const std::size_t low = next(), distance = low + 256 * next(), match = length(token & 15) + 4;
    if (distance == 0 || distance > out.size()) throw std::runtime_error("a packed image is broken");
    for (std::size_t i = 0; i < match; ++i) out.push_back(out[out.size() - distance]);
  }
  if (out.size() != bytes) throw std::runtime_error("a packed image is broken");
  return out;
}

bool is_container(const void* image) {
  std::uint32_t magic;
  std::memcpy(&magic, image, sizeof(magic));
  return magic == kMagic;
}

std::vector<Image> images_of(const void* container) {
  ContainerHeader header;
  std::memcpy(&header, container, sizeof(header));
  if (header.magic != kMagic || header.version != 1 || header.header_bytes < sizeof(header))
    throw std::runtime_error("an image has an unknown header");
  const std::span all(static_cast<const std::byte*>(container) + header.header_bytes, header.bytes);
  std::vector<Image> images;
  for (std::size_t at = 0; at < all.size();) {
    EntryHeader entry;
    if (all.size() - at < sizeof(entry)) throw std::runtime_error("an image is cut off");
    std::memcpy(&entry, &all[at], sizeof(entry));
    if (entry.header_bytes < sizeof(entry) || entry.header_bytes > all.size() - at ||
        entry.bytes > all.size() - at - entry.header_bytes || entry.packed_bytes > entry.bytes)
      throw std::runtime_error("an image is cut off");
    const Packing packing = (entry.flags & kZstdFlag) != 0  ? Packing::kZstd
                            : (entry.flags & kLz4Flag) != 0 ? Packing::kLz4
                                                            : Packing::kNone;
    const std::size_t bytes = packing == Packing::kNone ? entry.bytes : entry.packed_bytes;
    if (entry.kind == kPtx || entry.kind == kElf)
      images.push_back({entry.kind == kPtx, static_cast<int>(entry.architecture), packing,
                        all.subspan(at + entry.header_bytes, bytes), entry.unpacked_bytes});
    at += entry.header_bytes + entry.bytes;
  }
  return images;
}

std::string text_of(const Image& image) {
  std::string text;
  switch (image.packing) {
    case Packing::kNone:
      text.assign(reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size());
      break;
    case Packing::kLz4:
      text = unpack_lz4(image.bytes, image.unpacked_bytes);
      break;
    case Packing::kZstd:
      text = unpack_zstd(image.bytes, image.unpacked_bytes);
      break;
  }
  return text.substr(0, text.find('\0'));  // what aligns the next entry
}

}  // namespace virtual_gpu
