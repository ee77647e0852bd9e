// Registers that share slots keep their values for as long as a lane needs them.
#include <gtest/gtest.h>

#include "base/format.hpp"
#include "tests/virtual_gpu/run/code.hpp"
#include "tests/virtual_gpu/run/kernel.hpp"

namespace virtual_gpu::run {
namespace {

const Settings kSeparately{.meeting = Meeting::kVotesOnly, .random_order = true};

/// What each lane has stored of %r0. %r1: the lane, %r2: 0.
std::vector<std::uint32_t> results_of(const std::string& body, const Settings& settings) {
  TestSpace space;
  const std::uint64_t out = space.add(4096);
  Kernel("mov.u32 %r1, %tid.x; mov.u32 %r2, 0;\n" + body +
             "\nmul.wide.u32 %d1, %r1, 4; add.u64 %d1, %p0, %d1; st.global.u32 [%d1], %r0;",
         1)
      .run(space, {1}, {32}, {out}, settings);
  std::vector<std::uint32_t> result;
  for (unsigned i = 0; i < 32; ++i) result.push_back(space.get<std::uint32_t>(out + 4 * i));
  return result;
}

template <class Expected>
void expect(const std::string& body, Expected&& expected) {
  for (const Settings& settings : {Settings{}, kSeparately}) {
    const auto results = results_of(body, settings);
    for (unsigned lane = 0; lane < 32; ++lane) EXPECT_EQ(results[lane], expected(lane)) << body;
  }
}

std::size_t slots_of(const std::string& body) {
  const Program program(ptx::parse(Kernel::text(body, 0, "")));
  return program.code().functions[program.find("k")->function].slots;
}

/// A sum of values of which each has a register.
std::string chain(unsigned values) {
  std::string body = loom::format(".reg .b32 %v<{}>; mov.u32 %v0, %r1;\n", values + 1);
  for (unsigned i = 1; i <= values; ++i) body += loom::format("add.u32 %v{}, %v{}, {};\n", i, i - 1, i);
  return body + loom::format("mov.u32 %r0, %v{};", values);
}

TEST(Registers, ShareSlotsWhenTheirTimesDoNotMeet) {
  expect(chain(100), [](unsigned lane) { return lane + 5050; });
  EXPECT_EQ(slots_of(chain(100)), slots_of(chain(10)));
}

TEST(Registers, KeepWhatTheNextTurnOfALoopNeeds) {
  // The value of %r5 in the next turn, unless the guard replaces it, is written before others that come and
  // go.
  expect(
      "mov.u32 %r5, 100; mov.u32 %r3, %r1; mov.u32 %r0, 0;\n"
      "LOOP: and.b32 %r4, %r3, 1; setp.eq.u32 %q1, %r4, 1; @%q1 mov.u32 %r5, 7; add.u32 %r0, %r0, %r5;\n"
      "mul.lo.u32 %r5, %r3, 1000;\n"
      "add.u32 %r6, %r3, %r3; add.u32 %r7, %r6, 1; add.u32 %r8, %r7, %r6; add.u32 %r0, %r0, %r8;\n"
      "setp.gt.u32 %q2, %r3, 0; sub.u32 %r3, %r3, 1; @%q2 bra LOOP;",
      [](unsigned lane) {
        std::uint32_t sum = 0, kept = 100;
        for (unsigned turn = lane + 1; turn-- > 0;) {
          sum += turn % 2 == 1 ? 7 : kept;
          kept = 1000 * turn;
          sum += 4 * turn + 1;
        }
        return sum;
      });
}

TEST(Registers, KeepWhatAGuardLeavesAlone) {
  expect(
      "add.u32 %r0, %r1, 100; setp.lt.u32 %q1, %r1, 7; @%q1 add.u32 %r0, %r1, 5; add.u32 %r7, %r0, %r0;\n"
      "setp.ge.u32 %q2, %r1, 20; @%q2 mov.u32 %r7, %r1; add.u32 %r0, %r7, 1;",
      [](unsigned lane) { return lane < 7    ? 2 * lane + 11
                                 : lane < 20 ? 2 * lane + 201
                                             : lane + 1; });
}

TEST(Registers, KeepWhatOnlySomeWaysNeed) {
  // %r8 is needed behind a loop that some lanes run and others do not.
  expect(
      "add.u32 %r8, %r1, 9; mov.u32 %r0, 0; setp.lt.u32 %q1, %r1, 16; @%q1 bra END;\n"
      "mov.u32 %r9, %r1;\n"
      "LOOP: add.u32 %r10, %r9, %r9; add.u32 %r11, %r10, 1; add.u32 %r0, %r0, %r11; sub.u32 %r9, %r9, 1;\n"
      "setp.gt.u32 %q2, %r9, 15; @%q2 bra LOOP;\nEND: add.u32 %r0, %r0, %r8;",
      [](unsigned lane) {
        std::uint32_t sum = lane + 9;
        for (unsigned i = lane; lane >= 16 && i > 15; --i) sum += 2 * i + 1;
        return sum;
      });
}

}  // namespace
}  // namespace virtual_gpu::run
