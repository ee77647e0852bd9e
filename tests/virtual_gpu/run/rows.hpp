// rows.hpp -- a few instructions, and their result as worked out by hand: what tests of opcodes are tables
// of.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/virtual_gpu/run/kernel.hpp"

namespace virtual_gpu::run {

/// The result goes to register 0 of any kind, the inputs are in 1, 2 and 3 of all kinds. %p1 has the address
/// of the bytes a0, a1, ... to bf, %d9 the place of as many bytes of local memory. The parameters p2 and p3
/// are 0x1111222233334444 and 0x5555666677778888.
struct Row {
  std::string code;
  std::vector<std::uint64_t> in;
  std::uint64_t out;
};

inline std::uint64_t result_of(const Row& row) {
  constexpr std::size_t kBytes = 32;
  std::string body =
      ".local .align 16 .b8 local[32]; mov.u64 %d9, local;\n"
      "mov.b64 %d0, 0; mov.b32 %r0, 0; mov.b16 %h0, 0; mov.f32 %f0, 0f00000000; mov.f64 %e0, "
      "0d0000000000000000;"
      "mov.pred %q0, 0;\n";
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string n = std::to_string(i + 1);
    body += "mov.b64 %d" + n + ", " + std::to_string(i < row.in.size() ? row.in[i] : 0) + "; cvt.u32.u64 %r" +
            n + ", %d" + n + "; cvt.u16.u64 %h" + n + ", %d" + n + "; mov.b32 %f" + n + ", %r" + n +
            "; mov.b64 %e" + n + ", %d" + n + "; setp.ne.u64 %q" + n + ", %d" + n + ", 0;\n";
  }
  body +=
      row.code +
      "\ncvt.u64.u32 %d4, %r0; or.b64 %d0, %d0, %d4; cvt.u64.u16 %d4, %h0; or.b64 %d0, %d0, %d4;"
      "mov.b32 %r4, %f0; cvt.u64.u32 %d4, %r4; or.b64 %d0, %d0, %d4; mov.b64 %d4, %e0; or.b64 %d0, %d0, %d4;"
      "selp.b64 %d4, 1, 0, %q0; or.b64 %d0, %d0, %d4; st.global.u64 [%p0], %d0;";
  TestSpace space;
  const std::uint64_t out = space.add(8), data = space.add(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) space.put(data + i, static_cast<std::uint8_t>(0xa0 + i));
  Kernel(body, 4).run(space, {1}, {1}, {out, data, 0x1111222233334444, 0x5555666677778888});
  return space.get<std::uint64_t>(out);
}
inline void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    try {
      EXPECT_EQ(result_of(row), row.out) << row.code << std::hex << " gives " << result_of(row);
    } catch (const std::exception& error) {
      ADD_FAILURE() << row.code << ": " << error.what();
    }
  }
}

}  // namespace virtual_gpu::run
