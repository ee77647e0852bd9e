// Containers of PTX and machine code, by hand.
#include "tests/virtual_gpu/driver/image.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

namespace virtual_gpu {
namespace {

template <class T>
void append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

struct Entry {
  std::uint16_t kind;
  std::uint32_t architecture;
  std::uint64_t flags;
  std::string bytes;
  std::uint64_t unpacked;
};
std::string container(const std::vector<Entry>& entries) {
  std::string body;
  for (const Entry& entry : entries) {
    const std::string padding((8 - entry.bytes.size() % 8) % 8, '\0');
    append<std::uint16_t>(body, entry.kind);
    append<std::uint16_t>(body, 0x101);
    append<std::uint32_t>(body, 64);
    append<std::uint64_t>(body, entry.bytes.size() + padding.size());
    append<std::uint32_t>(body, entry.unpacked == 0 ? 0 : static_cast<std::uint32_t>(entry.bytes.size()));
    append<std::uint32_t>(body, 0);
    append<std::uint32_t>(body, 0x00090000);
    append<std::uint32_t>(body, entry.architecture);
    append<std::uint64_t>(body, 0);
    append<std::uint64_t>(body, entry.flags);
    append<std::uint64_t>(body, 0);
    append<std::uint64_t>(body, entry.unpacked);
    body += entry.bytes + padding;
  }
  std::string result;
  append<std::uint32_t>(result, 0xba55ed50);
  append<std::uint16_t>(result, 1);
  append<std::uint16_t>(result, 16);
  append<std::uint64_t>(result, body.size());
  return result + body;
}

TEST(Image, HoldsWhatItsEntriesSay) {
  const std::string made = container({{1, 80, 0x11, ".version 8.0", 0}, {2, 90, 0x11, "machine code", 0}});
  EXPECT_TRUE(is_container(made.data()));
  EXPECT_FALSE(is_container(".version 8.0"));
  const auto images = images_of(made.data());
  ASSERT_EQ(images.size(), 2U);
  EXPECT_TRUE(images[0].is_ptx);
  EXPECT_EQ(images[0].architecture, 80);
  EXPECT_EQ(text_of(images[0]), ".version 8.0");
  EXPECT_FALSE(images[1].is_ptx);
  EXPECT_EQ(images[1].architecture, 90);
}

TEST(Image, IsUnpackedFromLz4) {
  // Five letters, then ten from five back, then "!".
  const std::string packed = std::string(
      "\x56"
      "abcde"
      "\x05\x00"
      "\x10"
      "!",
      10);
  const std::string made = container({{1, 90, 0x2011, packed, 16}});
  EXPECT_EQ(text_of(images_of(made.data()).at(0)), "abcdeabcdeabcde!");
}

TEST(Image, LongRunsOfLz4HaveLongLengths) {
  // 1 letter, and 4 + 15 + 255 + 26 = 300 more of it.
  const std::string packed = std::string(
      "\x1f"
      "x"
      "\x01\x00"
      "\xff\x1a"
      "\x00",
      7);
  const auto bytes = std::as_bytes(std::span(packed));
  EXPECT_EQ(unpack_lz4(bytes, 301), std::string(301, 'x'));
  EXPECT_THROW(unpack_lz4(bytes, 300), std::runtime_error);
  EXPECT_THROW(unpack_lz4(bytes.first(4), 301), std::runtime_error);
}

TEST(Image, BrokenOnesAreRefused) {
  std::string made = container({{1, 90, 0x11, "12345678", 0}});
  made[16 + 8] = 100;  // longer than all
  EXPECT_THROW(images_of(made.data()), std::runtime_error);
  made = container({});
  EXPECT_TRUE(images_of(made.data()).empty());
  made[4] = 2;  // another version
  EXPECT_THROW(images_of(made.data()), std::runtime_error);
}

/// "zstd -c --no-check" of sixteen letters.
TEST(Image, IsUnpackedFromZstd) {
  const std::string packed = std::string("\x28\xb5\x2f\xfd\x00\x58\x81\x00\x00", 9) + "abcdefghijklmnop";
  const std::string made = container({{1, 90, 0x8011, packed, 16}});
  EXPECT_EQ(text_of(images_of(made.data()).at(0)), "abcdefghijklmnop");
}

}  // namespace
}  // namespace virtual_gpu
