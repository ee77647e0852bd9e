// Every opcode with values worked out by hand.
#include <gmock/gmock.h>

#include "tests/virtual_gpu/run/rows.hpp"

namespace virtual_gpu::run {
namespace {

constexpr std::uint64_t kMinus1 = ~0ULL;
constexpr std::uint64_t kHalf = 0x3f000000, kOne = 0x3f800000, kTwo = 0x40000000, kThree = 0x40400000,
                        kNan = 0x7fc00001, kCanonicalNan = 0x7fffffff, kInfinity = 0x7f800000,
                        kNegativeZero = 0x80000000;
constexpr std::uint64_t kOne64 = 0x3ff0000000000000, kTwo64 = 0x4000000000000000,
                        kThree64 = 0x4008000000000000, kHalf64 = 0x3fe0000000000000;

TEST(Opcodes, ComputeWithIntegers) {
  check({{"add.s32 %r0, %r1, %r2;", {0x7fffffff, 1}, 0x80000000},
         {"add.u64 %d0, %d1, %d2;", {kMinus1, 3}, 2},
         {"add.s16 %h0, %h1, 2;", {0xffff}, 1},
         {"sub.s32 %r0, %r1, %r2;", {3, 5}, 0xfffffffe},
         {"sub.u64 %d0, %d1, 1;", {0}, kMinus1},
         {"mul.lo.s32 %r0, %r1, %r2;", {0x10001, 0x10001}, 0x20001},
         {"mul.lo.u16 %h0, %h1, %h2;", {0x101, 0x101}, 0x201},
         {"mul.lo.s64 %d0, %d1, %d2;", {kMinus1, 7}, 0xfffffffffffffff9},
         {"mul.hi.u32 %r0, %r1, %r2;", {0xffffffff, 0xffffffff}, 0xfffffffe},
         {"mul.hi.s32 %r0, %r1, %r2;", {0xffffffff, 0xffffffff}, 0},
         {"mul.hi.u64 %d0, %d1, %d2;", {kMinus1, kMinus1}, 0xfffffffffffffffe},
         {"mul.hi.s64 %d0, %d1, %d2;", {kMinus1, 2}, kMinus1},
         {"mul.wide.u32 %d0, %r1, %r2;", {0xffffffff, 0xffffffff}, 0xfffffffe00000001},
         {"mul.wide.s32 %d0, %r1, %r2;", {0xffffffff, 3}, 0xfffffffffffffffd},
         {"mul.wide.u16 %r0, %h1, %h2;", {0xffff, 0xffff}, 0xfffe0001},
         {"mul.wide.s16 %r0, %h1, %h2;", {0xffff, 2}, 0xfffffffe},
         {"mad.lo.s32 %r0, %r1, %r2, %r3;", {3, 4, 5}, 17},
         {"mad.lo.u64 %d0, %d1, %d2, %d3;", {3, 4, 5}, 17},
         {"mad.hi.u32 %r0, %r1, %r2, %r3;", {0x80000000, 4, 5}, 7},
         {"mad.wide.u32 %d0, %r1, %r2, %d3;", {0xffffffff, 2, 3}, 0x200000001},
         {"mad.wide.s32 %d0, %r1, %r2, %d3;", {0xffffffff, 2, 1}, kMinus1},
         {"div.u32 %r0, %r1, %r2;", {0xffffffff, 2}, 0x7fffffff},
         {"div.s32 %r0, %r1, %r2;", {0xfffffff9, 2}, 0xfffffffd},
         {"div.s32 %r0, %r1, %r2;", {0x80000000, 0xffffffff}, 0x80000000},
         {"div.s64 %d0, %d1, %d2;", {0x8000000000000000, kMinus1}, 0x8000000000000000},
         {"rem.u64 %d0, %d1, %d2;", {17, 5}, 2},
         {"rem.s32 %r0, %r1, %r2;", {0xfffffff9, 2}, 0xffffffff},
         {"neg.s32 %r0, %r1;", {5}, 0xfffffffb},
         {"neg.s64 %d0, %d1;", {0x8000000000000000}, 0x8000000000000000},
         {"abs.s32 %r0, %r1;", {0xfffffffb}, 5},
         {"abs.s64 %d0, %d1;", {5}, 5},
         {"min.s32 %r0, %r1, %r2;", {0xffffffff, 1}, 0xffffffff},
         {"min.u32 %r0, %r1, %r2;", {0xffffffff, 1}, 1},
         {"max.s16 %h0, %h1, %h2;", {0x8000, 1}, 1},
         {"max.u64 %d0, %d1, %d2;", {kMinus1, 1}, kMinus1}});
}

TEST(Opcodes, WorkOnBits) {
  check({{"and.b32 %r0, %r1, 0x0f0f;", {0xffff}, 0x0f0f},
         {"and.b16 %h0, %h1, %h2;", {0xf0f0, 0xff00}, 0xf000},
         {"and.pred %q0, %q1, %q2;", {1, 0}, 0},
         {"or.pred %q0, %q1, %q2;", {1, 0}, 1},
         {"xor.pred %q0, %q1, %q2;", {1, 1}, 0},
         {"not.pred %q0, %q1;", {0}, 1},
         {"or.b64 %d0, %d1, %d2;", {0xf0, 0x0f}, 0xff},
         {"xor.b32 %r0, %r1, -1;", {0xf0f0f0f0}, 0x0f0f0f0f},
         {"not.b32 %r0, %r1;", {0}, 0xffffffff},
         {"not.b16 %h0, %h1;", {1}, 0xfffe},
         {"shl.b32 %r0, %r1, %r2;", {3, 31}, 0x80000000},
         {"shl.b32 %r0, %r1, %r2;", {3, 32}, 0},
         {"shl.b64 %d0, %d1, 63;", {3}, 0x8000000000000000},
         {"shl.b16 %h0, %h1, 8;", {0x1ff}, 0xff00},
         {"shr.u32 %r0, %r1, 4;", {0x80000000}, 0x08000000},
         {"shr.s32 %r0, %r1, 4;", {0x80000000}, 0xf8000000},
         {"shr.s32 %r0, %r1, 99;", {0x80000000}, 0xffffffff},
         {"shr.u64 %d0, %d1, %r2;", {kMinus1, 64}, 0},
         {"shr.s16 %h0, %h1, 15;", {0x8000}, 0xffff},
         {"shr.b32 %r0, %r1, 31;", {0x80000000}, 1},
         {"shf.l.wrap.b32 %r0, %r1, %r2, %r3;", {0x80000000, 1, 33}, 3},
         {"shf.l.clamp.b32 %r0, %r1, %r2, %r3;", {0x12345678, 1, 40}, 0x12345678},
         {"shf.r.wrap.b32 %r0, %r1, %r2, %r3;", {0x10, 3, 4}, 0x30000001},
         {"shf.r.clamp.b32 %r0, %r1, %r2, %r3;", {0x10, 3, 32}, 3},
         {"bfe.u32 %r0, %r1, 8, 8;", {0x12f456}, 0xf4},
         {"bfe.s32 %r0, %r1, 8, 8;", {0x12f456}, 0xfffffff4},
         {"bfe.s32 %r0, %r1, 28, 8;", {0x80000000}, 0xfffffff8},
         {"bfe.u64 %d0, %d1, 60, 64;", {0xa000000000000000}, 0xa},
         {"bfe.u32 %r0, %r1, 4, 0;", {0xffff}, 0},
         {"bfi.b32 %r0, %r1, %r2, 8, 8;", {0x1ab, 0xffffffff}, 0xffffabff},
         {"bfi.b64 %d0, %d1, %d2, 32, 32;", {0x12345678, 0x9}, 0x1234567800000009},
         {"bfi.b32 %r0, %r1, %r2, 30, 8;", {0xf, 0}, 0xc0000000},
         {"prmt.b32 %r0, %r1, %r2, 0x7531;", {0x33221100, 0x77665544}, 0x77553311},
         {"prmt.b32 %r0, %r1, %r2, 0x89;", {0x8011, 0}, 0x111100ff},
         {"lop3.b32 %r0, %r1, %r2, %r3, 0x96;", {0xff00ff00, 0xf0f0f0f0, 0xcccccccc}, 0xc33cc33c},
         {"lop3.b32 %r0, %r1, %r2, %r3, 0xe8;", {0xc, 0xa, 0x6}, 0xe}});
}

TEST(Opcodes, MoveAndSelect) {
  check({{"mov.u32 %r0, %r1;", {7}, 7},
         {"mov.b64 %d0, {%r1, %r2};", {1, 2}, 0x200000001},
         {"mov.b64 {%r0, %r5}, %d1;", {0x200000001}, 1},
         {"mov.b64 {_, %r0}, %d1;", {0x200000001}, 2},
         {"mov.b32 %r0, {%h1, %h2};", {0x1234, 0x5678}, 0x56781234},
         {"mov.b32 {%h5, %h0}, %r1;", {0x56781234}, 0x5678},
         {"mov.b64 %d0, {%h1, %h2, %h3, %h1};", {1, 2, 3}, 0x0001000300020001},
         {"mov.f32 %f0, 0.5;", {}, kHalf},
         {"mov.b32 %r0, 0f3F800000;", {}, kOne},
         {"mov.pred %q0, %q1;", {1}, 1},
         {"selp.b32 %r0, %r1, %r2, %q3;", {1, 2, 1}, 1},
         {"selp.b64 %d0, %d1, -1, %q3;", {1, 2, 0}, kMinus1},
         {"selp.f32 %f0, %f1, %f2, %q3;", {kOne, kTwo, 0}, kTwo},
         {"selp.u16 %h0, 1, 0, %q1;", {1}, 1},
         {"@%q1 mov.u32 %r0, 5;", {0}, 0},
         {"@!%q1 mov.u32 %r0, 5;", {0}, 5}});
}

TEST(Opcodes, Compare) {
  check({{"setp.lt.s32 %q0, %r1, %r2;", {0xffffffff, 1}, 1},
         {"setp.lt.u32 %q0, %r1, %r2;", {0xffffffff, 1}, 0},
         {"setp.lo.u32 %q0, %r1, %r2;", {1, 0xffffffff}, 1},
         {"setp.hs.u64 %q0, %d1, %d2;", {kMinus1, kMinus1}, 1},
         {"setp.eq.s64 %q0, %d1, 5;", {5}, 1},
         {"setp.ne.b32 %q0, %r1, %r2;", {5, 5}, 0},
         {"setp.gt.s16 %q0, %h1, %h2;", {1, 0x8000}, 1},
         {"setp.ge.s64 %q0, %d1, %d2;", {kMinus1, 0}, 0},
         {"setp.le.u64 %q0, %d1, %d2;", {7, 7}, 1},
         {"setp.lt.f32 %q0, %f1, %f2;", {kOne, kTwo}, 1},
         {"setp.eq.f32 %q0, %f1, %f2;", {0, kNegativeZero}, 1},
         {"setp.ne.f32 %q0, %f1, %f2;", {kNan, kOne}, 0},
         {"setp.neu.f32 %q0, %f1, %f2;", {kNan, kOne}, 1},
         {"setp.ltu.f32 %q0, %f1, %f2;", {kNan, kOne}, 1},
         {"setp.geu.f32 %q0, %f1, %f2;", {kOne, kTwo}, 0},
         {"setp.num.f32 %q0, %f1, %f2;", {kOne, kNan}, 0},
         {"setp.nan.f64 %q0, %e1, %e2;", {kOne64, 0x7ff8000000000000}, 1},
         {"setp.gt.f64 %q0, %e1, 0d3FF0000000000000;", {kTwo64}, 1},
         {"setp.eq.f32 %q0, %f1, %f2;", {1, 0}, 0}});
}

TEST(Opcodes, ComputeWithFloats) {
  check({{"add.rn.f32 %f0, %f1, %f2;", {kOne, kTwo}, kThree},
         {"add.rn.f32 %f0, %f1, %f2;", {kOne, 0x33800000}, kOne},  // 2^-24: a tie, to even
         {"add.rn.f32 %f0, %f1, %f2;", {0x3f800001, 0x33800000}, 0x3f800002},
         {"add.rn.f32 %f0, %f1, %f2;", {kNan, kOne}, kCanonicalNan},
         {"add.rn.f32 %f0, %f1, %f2;", {1, 1}, 2},
         {"sub.rn.f32 %f0, %f1, %f2;", {kThree, kOne}, kTwo},
         {"sub.rn.f32 %f0, %f1, %f2;", {kInfinity, kInfinity}, kCanonicalNan},
         {"mul.rn.f32 %f0, %f1, %f2;", {kHalf, kTwo}, kOne},
         {"mul.rn.f32 %f0, %f1, %f2;", {0x00800000, kHalf}, 0x00400000},
         {"fma.rn.f32 %f0, %f1, %f2, %f3;", {kOne, kTwo, kOne}, kThree},
         // (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24, if the product is not rounded.
         {"fma.rn.f32 %f0, %f1, %f2, %f3;", {0x3f800800, 0x3f800800, 0xbf801000}, 0x33800000},
         {"div.rn.f32 %f0, %f1, %f2;", {kOne, kThree}, 0x3eaaaaab},
         {"add.rn.f64 %e0, %e1, %e2;", {kOne64, kTwo64}, kThree64},
         {"mul.rn.f64 %e0, %e1, 0d4000000000000000;", {kHalf64}, kOne64},
         {"sub.rn.f64 %e0, %e1, %e2;", {kThree64, kTwo64}, kOne64},
         {"fma.rn.f64 %e0, %e1, %e2, %e3;", {kOne64, kTwo64, kOne64}, kThree64},
         {"neg.f32 %f0, %f1;", {0}, kNegativeZero},
         {"abs.f32 %f0, %f1;", {0xbf800000}, kOne},
         {"neg.f64 %e0, %e1;", {kOne64}, 0xbff0000000000000},
         {"min.f32 %f0, %f1, %f2;", {kNan, kOne}, kOne},
         {"min.f32 %f0, %f1, %f2;", {kOne, kNan}, kOne},
         {"max.f32 %f0, %f1, %f2;", {kNan, kNan}, kCanonicalNan},
         {"min.f32 %f0, %f1, %f2;", {0, kNegativeZero}, kNegativeZero},
         {"max.f32 %f0, %f1, %f2;", {kNegativeZero, 0}, 0},
         {"max.f64 %e0, %e1, %e2;", {kOne64, kTwo64}, kTwo64}});
}

TEST(Opcodes, Convert) {
  check({{"cvt.u32.u16 %r0, %h1;", {0xffff}, 0xffff},
         {"cvt.s32.s16 %r0, %h1;", {0xffff}, 0xffffffff},
         {"cvt.s64.s32 %d0, %r1;", {0x80000000}, 0xffffffff80000000},
         {"cvt.u64.u32 %d0, %r1;", {0x80000000}, 0x80000000},
         {"cvt.u16.u64 %h0, %d1;", {0x123456}, 0x3456},
         {"cvt.s16.s8 %h0, %h1;", {0x80}, 0xff80},
         {"cvt.s8.s32 %r0, %r1;", {0x180}, 0xffffff80},
         {"cvt.u8.u32 %r0, %r1;", {0x180}, 0x80},
         {"cvt.u32.u8 %r0, %h1;", {0x1ff}, 0xff}});
}

TEST(Opcodes, KnowWhereTheyRun) {
  TestSpace space;
  const std::uint64_t out = space.add(64 * 8 * 4);
  // Thread (x, y) of block b writes ntid.x, tid.y, laneid + 100 * warpid, ntid.y as one word each.
  const Kernel kernel(
      "mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ctaid.x; mov.u32 %r5, "
      "%laneid;"
      "mov.u32 %r6, %warpid; mov.u32 %r7, %ntid.y; mad.lo.u32 %r8, %r2, %r3, %r1; mov.u32 %r9, "
      "%nctaid.x;"
      "mul.wide.u32 %d1, %r8, 16; add.u64 %d1, %p0, %d1; mad.lo.u32 %r6, %r6, 100, %r5;"
      "setp.ne.u32 %q1, %r4, 1; @%q1 ret; st.global.v4.u32 [%d1], {%r9, %r2, %r6, %r7};",
      1);
  kernel.run(space, {2}, {16, 4}, {out});
  const auto word = [&](unsigned thread, unsigned i) {
    return space.get<std::uint32_t>(out + thread * 16 + i * 4);
  };
  EXPECT_EQ(word(37, 0), 2U);
  EXPECT_EQ(word(37, 1), 2U);
  EXPECT_EQ(word(37, 2), 105U);
  EXPECT_EQ(word(37, 3), 4U);
}

TEST(Opcodes, LoadAndStoreEveryWidth) {
  TestSpace space;
  const std::uint64_t data = space.add(128);
  space.put<std::uint64_t>(data, 0xfedcba98765432f1);
  space.put<std::uint64_t>(data + 8, 0x1111111122222222);
  const auto loaded = [&](const std::string& code) {
    const std::uint64_t out = space.add(8);
    Kernel("mov.b64 %d0, 0; mov.b32 %r0, 0; mov.b16 %h0, 0;\n" + code +
               "\ncvt.u64.u32 %d1, %r0; or.b64 %d0, %d0, %d1; cvt.u64.u16 %d1, %h0; or.b64 %d0, %d0, %d1;"
               "st.u64 [%p1], %d0;",
           2)
        .run(space, {1}, {1}, {data, out});
    return space.get<std::uint64_t>(out);
  };
  EXPECT_EQ(loaded("ld.global.u8 %h0, [%p0];"), 0xf1U);
  EXPECT_EQ(loaded("ld.global.s8 %h0, [%p0];"), 0xfff1U);
  EXPECT_EQ(loaded("ld.global.s8 %r0, [%p0];"), 0xfffffff1U);
  EXPECT_EQ(loaded("ld.s16 %r0, [%p0+6];"), 0xfffffedcU);
  EXPECT_EQ(loaded("ld.b32 %r0, [%p0+4];"), 0xfedcba98U);
  EXPECT_EQ(loaded("ld.s32 %d0, [%p0+4];"), 0xfffffffffedcba98U);
  EXPECT_EQ(loaded("ld.volatile.global.u64 %d0, [%p0+8];"), 0x1111111122222222U);
  EXPECT_EQ(loaded("ld.global.v2.u64 {%d5, %d0}, [%p0];"), 0x1111111122222222U);
  EXPECT_EQ(loaded("ld.global.v4.u32 {%r5, %r6, %r7, %r0}, [%p0];"), 0x11111111U);
  EXPECT_EQ(loaded("ld.acquire.sys.global.v2.u32 {_, %r0}, [%p0];"), 0xfedcba98U);
  EXPECT_EQ(loaded("ld.relaxed.gpu.u16 %h0, [%p0+2];"), 0x7654U);
  EXPECT_EQ(loaded("st.global.u8 [%p0+16], 0x1ff; st.release.sys.u8 [%p0+17], 7; st.u16 [%p0+18], -1;"
                   "ld.u32 %r0, [%p0+16];"),
            0xffff07ffU);
  EXPECT_EQ(loaded("mov.u64 %d5, 5; st.global.v2.u64 [%p0+32], {%d5, 6}; ld.u64 %d0, [%p0+40];"), 6U);
  EXPECT_EQ(loaded("mov.f32 %f1, 0f3F800000; st.relaxed.sys.f32 [%p0+48], %f1; ld.b32 %r0, [%p0+48];"), kOne);
  EXPECT_EQ(loaded("st.f32 [%p0+48], 0f40000000; ld.b32 %r0, [%p0+48];"), kTwo);
}

TEST(Opcodes, ReachSharedLocalAndConstantMemory) {
  TestSpace space;
  const std::uint64_t out = space.add(64), constant = space.add(16);
  const std::string before =
      ".extern .shared .align 8 .b8 dynamic[];\n.shared .u64 words[4];\n"
      ".func (.param .b64 r) twice(.param .align 8 .b8 pair[16]) {\n.reg .b64 %d<6>; .reg .b64 %SPL;\n"
      "ld.param.u64 %d1, [pair]; mov.b64 %SPL, pair; ld.param.u64 %d2, [%SPL+8]; add.u64 %d3, %d1, %d2;"
      "add.u64 %d3, %d3, %d3; st.param.b64 [r], %d3; ret; }\n";
  const Kernel kernel(
      ".local .align 8 .b8 depot[32]; .shared .u32 own;\n"
      "mov.u64 %d1, words; st.shared.u64 [%d1+8], 11; st.shared.u32 [own], 22; cvta.shared.u64 %d2, %d1;"
      "ld.u64 %d3, [%d2+8]; st.global.u64 [%p0], %d3;\n"                                                 // 11
      "mov.u32 %r1, own; ld.shared.u32 %r2, [%r1]; cvt.u64.u32 %d3, %r2; st.global.u64 [%p0+8], %d3;\n"  // 22
      "mov.u64 %d4, depot; cvta.local.u64 %d5, %d4; st.local.u64 [%d4+16], 33; ld.u64 %d3, [%d5+16];"
      "st.global.u64 [%p0+16], %d3;\n"  // 33
      "mov.u64 %d4, dynamic; st.shared.u64 [%d4+24], 44; ld.shared.u64 %d3, [dynamic+24]; st.global.u64 "
      "[%p0+24], %d3;\n"
      "mov.b64 %d4, p0; cvta.param.u64 %d5, %d4; ld.u64 %d6, [%d5]; st.global.u64 [%d6+32], 55;\n"
      "cvta.to.shared.u64 %d7, %d2; ld.shared.u64 %d3, [%d7+8]; st.global.u64 [%p0+40], %d3;\n"  // 11
      "{ .param .align 8 .b8 param0[16]; .param .b64 retval0; st.param.b64 [param0+0], 30; st.param.b64 "
      "[param0+8], 3;"
      "call.uni (retval0), twice, (param0); ld.param.b64 %d3, [retval0+0]; }\n st.global.u64 [%p0+48], %d3;",
      1, before);
  EXPECT_EQ(kernel.entry().shared_bytes, 36U);
  kernel.run(space, {1}, {1}, {out}, {}, 32);
  const std::uint64_t expected[] = {11, 22, 33, 44, 55, 11, 66};
  for (std::size_t i = 0; i < std::size(expected); ++i)
    EXPECT_EQ(space.get<std::uint64_t>(out + 8 * i), expected[i]) << i;

  space.put<std::uint64_t>(constant + 8, 77);
  const std::string text = Kernel::text(
      "ld.const.u64 %d1, [table+8]; mov.u64 %d2, table; ld.global.u64 %d3, [%d2+8];"
      "add.u64 %d1, %d1, %d3; st.global.u64 [%p0], %d1;",
      1, ".const .u64 table[2];");
  const Program program(ptx::parse(text), [&](const ptx::Variable& variable) {
    EXPECT_EQ(variable.bytes, 16U);
    return constant;
  });
  const std::atomic<bool> never = false;
  run(program, *program.find("k"), {.grid = {}, .block = {}, .parameters = std::as_bytes(std::span(&out, 1))},
      space, {}, never);
  EXPECT_EQ(space.get<std::uint64_t>(out), 154U);
  EXPECT_THROW(Program{ptx::parse(text)}, ptx::Error);
}

TEST(Opcodes, ChangeWordsInOneStep) {
  const auto changed = [](const std::string& code, std::uint64_t before) {
    TestSpace space;
    const std::uint64_t at = space.add(16);
    space.put(at, before);
    Kernel(code + "st.global.u64 [%p0+8], %d0;", 1).run(space, {1}, {1}, {at});
    return std::pair(space.get<std::uint64_t>(at), space.get<std::uint64_t>(at + 8));
  };
  using Pair = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(changed("atom.global.add.u64 %d0, [%p0], 5;", 7), Pair(12, 7));
  EXPECT_EQ(changed("atom.relaxed.sys.global.exch.b64 %d0, [%p0], 5;", 7), Pair(5, 7));
  EXPECT_EQ(changed("atom.acq_rel.gpu.cas.b64 %d0, [%p0], 7, 9;", 7), Pair(9, 7));
  EXPECT_EQ(changed("atom.cas.b64 %d0, [%p0], 6, 9;", 7), Pair(7, 7));
  EXPECT_EQ(changed("mov.b64 %d0, 0; red.release.sys.global.max.s64 [%p0], 5;", kMinus1), Pair(5, 0));
  EXPECT_EQ(changed("mov.b64 %d0, 0; atom.inc.u32 %r1, [%p0], 7;", 7), Pair(0, 0));
  EXPECT_EQ(changed("mov.b64 %d0, 0; atom.dec.u32 %r1, [%p0], 7;", 0), Pair(7, 0));
  EXPECT_EQ(changed("mov.b64 %d0, 0; red.add.f32 [%p0], 0f3F800000;", kTwo), Pair(kThree, 0));
  EXPECT_EQ(changed(".shared .u32 s; mov.b64 %d0, 0; st.shared.u32 [s], 3; atom.shared.or.b32 %r1, [s], 4;"
                    "ld.shared.u32 %r2, [s]; cvt.u64.u32 %d0, %r2;",
                    1),
            Pair(1, 7));
}

/// Each is refused when the program is made, not when it runs.
TEST(Opcodes, RefuseWhatTheyDoNotKnow) {
  for (const char* code : {"frob.u32 %r1, %r2;",
                           "add.f32 %f1, %f2, %f3;",
                           "mul.f32 %f1, %f2, %f3;",
                           "add.rz.f32 %f1, %f2, %f3;",
                           "add.u32 %r1, %r2;",
                           "add.u32 %r1, %r2, %d3;",
                           "add.u8 %h1, %h2, %h3;",
                           "add.u32.foo %r1, %r2, %r3;",
                           "add.u32 5, %r2, %r3;",
                           "mul.u32 %r1, %r2, %r3;",
                           "mul.wide.u64 %d1, %d2, %d3;",
                           "and.f32 %f1, %f2, %f3;",
                           "add.rn.f32 %f1, %f2, 1;",
                           "setp.lt.u32 %r1, %r2, %r3;",
                           "setp.foo.u32 %q1, %r2, %r3;",
                           "setp.nan.u32 %q1, %r2, %r3;",
                           "selp.b32 %r1, %r2, %r3, %r4;",
                           "cvt.f32.u32 %f1, %r1;",
                           "cvt.u32.f32 %r1, %f1;",
                           "cvt.rn.u32.u16 %r1, %h1;",
                           "cvt.rn.f32.u32 %f1, %r1;",
                           "mov.u32 %r1, %nothing;",
                           "mov.u32 %r1, %d1;",
                           "ld.acquire.global.u32 %r1, [%d1];",
                           "ld.global.u32 %r1, %d1;",
                           "ld.global.v2.u32 %r1, [%d1];",
                           "ld.global.v4.u64 {%d1, %d2, %d3, %d4}, [%d1];",
                           "ld.global.u64 %r1, [%d1];",
                           "ld.acquire.cluster.u32 %r1, [%d1];",
                           "st.acquire.sys.u32 [%d1], %r1;",
                           "st.global.u32 [%h1], %r1;",
                           "atom.frob.u32 %r1, [%d1], 1;",
                           "atom.add.u16 %h1, [%d1], 1;",
                           "bra nowhere;",
                           "bra.foo L; L:",
                           "brx.idx %r1, L; L:",
                           "call f;",
                           "call k;",
                           "call %d1, f;",
                           "bar.sync;",
                           "bar.arrive 0, 64;",
                           "bar.red.and.u32 %r1, 0, %q1;",
                           "vote.all.pred %q1, %q2;",
                           "vote.sync.some.pred %q1, %q2, -1;",
                           "fence.sc;",
                           "fence.proxy.alias;",
                           "membar.cluster;",
                           "trap 1;",
                           "cvt.u32.u16 _, %h1;",
                           "add.u32 _, %r1, %r2;",
                           "and.pred %q1, !%q2, %q3;",
                           "mov.pred %q1, !%q2;",
                           "prmt.b32.f4e %r1, %r2, %r3, %r4;",
                           "wgmma.fence.sync.aligned;"})
    EXPECT_THROW(Kernel{code}, ptx::Error) << code;
  EXPECT_THROW(Kernel("call f;", 0, ".func f() { call f; ret; }"), ptx::Error);
  EXPECT_THROW(Kernel("call f;", 0, ".func f();"), ptx::Error);
  EXPECT_THROW(Kernel("ld.local.u32 %r1, [s];", 0, ".shared .u32 s;"), ptx::Error);
}

}  // namespace
}  // namespace virtual_gpu::run
