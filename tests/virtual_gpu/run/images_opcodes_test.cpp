// Opcodes in the forms in which compilers write them; and whether loom's kernels have any without a unit
// test.
#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/device/cuda/every_kernel.hpp"
#include "tests/virtual_gpu/run/kernels_world.hpp"
#include "tests/virtual_gpu/run/rows.hpp"

namespace virtual_gpu::run {
namespace {

constexpr std::uint64_t kMinus1 = ~0ULL, kOne = 0x3f800000, kTwo = 0x40000000, kNan = 0x7fc00001,
                        kOne64 = 0x3ff0000000000000, kTwo64 = 0x4000000000000000;

TEST(OpcodesOfImages, ComputeWithIntegers) {
  check({{"add.s64 %d0, %d1, %d2;", {kMinus1, 3}, 2},
         {"sub.s64 %d0, %d1, %d2;", {3, 5}, 0xfffffffffffffffe},
         {"and.b64 %d0, %d1, 15;", {0x1f3}, 3},
         {"or.b16 %h0, %h1, %h2;", {0xf000, 0xf}, 0xf00f},
         {"or.b32 %r0, %r1, %r2;", {0xf0000000, 0xf}, 0xf000000f},
         {"xor.b16 %h0, %h1, %h2;", {0xffff, 0x0ff0}, 0xf00f},
         {"xor.b64 %d0, %d1, %d2;", {kMinus1, 0xff}, 0xffffffffffffff00},
         {"not.b64 %d0, %d1;", {0xff}, 0xffffffffffffff00},
         {"shr.u16 %h0, %h1, 8;", {0x8180}, 0x81},
         {"shr.b64 %d0, %d1, 8;", {kMinus1}, 0x00ffffffffffffff},
         {"shr.s64 %d0, %d1, 31;", {0x8000000000000000}, 0xffffffff00000000},
         {"shr.s64 %d0, %d1, 99;", {kMinus1}, kMinus1},
         {"max.s32 %r0, %r1, %r2;", {0xffffffff, 1}, 1},
         {"max.s64 %d0, %d1, %d2;", {kMinus1, 1}, 1},
         {"max.u16 %h0, %h1, %h2;", {0x8000, 1}, 0x8000},
         {"max.u32 %r0, %r1, %r2;", {0xffffffff, 1}, 0xffffffff},
         {"min.s16 %h0, %h1, %h2;", {0x8000, 1}, 0x8000},
         {"min.s64 %d0, %d1, %d2;", {kMinus1, 1}, kMinus1},
         {"min.u16 %h0, %h1, %h2;", {0x8000, 1}, 1},
         {"min.u64 %d0, %d1, %d2;", {kMinus1, 1}, 1},
         {"mul.lo.s16 %h0, %h1, %h2;", {0x101, 0x101}, 0x201},
         {"mad.lo.s64 %d0, %d1, %d2, %d3;", {kMinus1, 3, 5}, 2},
         {"rem.u32 %r0, %r1, %r2;", {0xffffffff, 7}, 3},
         {"div.u64 %d0, %d1, %d2;", {kMinus1, 16}, 0x0fffffffffffffff},
         {"div.u16 %h0, %h1, %h2;", {0xffff, 16}, 0x0fff},
         {"bfe.s64 %d0, %d1, 8, 8;", {0x12f456}, 0xfffffffffffffff4},
         {"cvt.s8.s64 %d0, %d1;", {0x1280}, 0xffffffffffffff80},
         {"mov.u16 %h0, %h1;", {0x1234}, 0x1234},
         {"mov.f64 %e0, %e1;", {kOne64}, kOne64},
         {"cvt.u32.u64 %r0, %d1;", {0x1122334455667788}, 0x55667788},
         {"cvt.u16.u32 %h0, %r1;", {0x123456}, 0x3456},
         {"selp.b16 %h0, %h1, %h2, %q3;", {1, 2, 0}, 2},
         {"selp.f64 %e0, %e1, %e2, %q3;", {kOne64, kTwo64, 1}, kOne64},
         {"selp.s32 %r0, -1, 0, %q1;", {1}, 0xffffffff},
         {"selp.u64 %d0, 5, 7, %q1;", {0}, 7}});
}

TEST(OpcodesOfImages, Compare) {
  check({{"setp.eq.b32 %q0, %r1, %r2;", {5, 5}, 1},
         {"setp.eq.b16 %q0, %h1, %h2;", {5, 5}, 1},
         {"setp.eq.b16 %q0, %h1, %h2;", {5, 6}, 0},
         {"setp.eq.b32 %q0, %r1, %r2;", {5, 6}, 0},
         {"setp.eq.b64 %q0, %d1, %d2;", {1ULL << 40, 1ULL << 40}, 1},
         {"setp.eq.b64 %q0, %d1, %d2;", {1ULL << 40, 0}, 0},
         {"setp.eq.f64 %q0, %e1, %e2;", {0, 0x8000000000000000}, 1},
         {"setp.eq.f64 %q0, %e1, %e2;", {kOne64, kTwo64}, 0},
         {"setp.eq.s16 %q0, %h1, %h2;", {0xffff, 0x1ffff}, 1},
         {"setp.eq.s16 %q0, %h1, %h2;", {1, 2}, 0},
         {"setp.eq.s32 %q0, %r1, %r2;", {0xffffffff, 0xffffffff}, 1},
         {"setp.eq.s32 %q0, %r1, %r2;", {1, 2}, 0},
         {"setp.ge.s32 %q0, %r1, %r2;", {1, 0xffffffff}, 1},
         {"setp.ge.s32 %q0, %r1, %r2;", {0xffffffff, 1}, 0},
         {"setp.ge.u64 %q0, %d1, %d2;", {kMinus1, 1}, 1},
         {"setp.ge.u64 %q0, %d1, %d2;", {1, kMinus1}, 0},
         {"setp.gt.f32 %q0, %f1, %f2;", {kTwo, kOne}, 1},
         {"setp.gt.f32 %q0, %f1, %f2;", {kNan, kOne}, 0},
         {"setp.gt.s32 %q0, %r1, %r2;", {1, 0xffffffff}, 1},
         {"setp.gt.s32 %q0, %r1, %r2;", {1, 1}, 0},
         {"setp.gt.s64 %q0, %d1, %d2;", {1, kMinus1}, 1},
         {"setp.gt.s64 %q0, %d1, %d2;", {kMinus1, 1}, 0},
         {"setp.gt.u16 %q0, %h1, %h2;", {0xffff, 1}, 1},
         {"setp.gt.u16 %q0, %h1, %h2;", {1, 0xffff}, 0},
         {"setp.gt.u64 %q0, %d1, %d2;", {kMinus1, 1}, 1},
         {"setp.gt.u64 %q0, %d1, %d2;", {1, 1}, 0},
         {"setp.le.s32 %q0, %r1, %r2;", {0xffffffff, 1}, 1},
         {"setp.le.s32 %q0, %r1, %r2;", {1, 0xffffffff}, 0},
         {"setp.lt.f64 %q0, %e1, %e2;", {kOne64, kTwo64}, 1},
         {"setp.lt.f64 %q0, %e1, %e2;", {kTwo64, kTwo64}, 0},
         {"setp.lt.s16 %q0, %h1, %h2;", {0xffff, 1}, 1},
         {"setp.lt.s16 %q0, %h1, %h2;", {1, 0xffff}, 0},
         {"setp.lt.s64 %q0, %d1, %d2;", {kMinus1, 1}, 1},
         {"setp.lt.s64 %q0, %d1, %d2;", {1, kMinus1}, 0},
         {"setp.lt.u16 %q0, %h1, %h2;", {1, 0xffff}, 1},
         {"setp.lt.u16 %q0, %h1, %h2;", {0xffff, 1}, 0},
         {"setp.lt.u64 %q0, %d1, %d2;", {1, kMinus1}, 1},
         {"setp.lt.u64 %q0, %d1, %d2;", {kMinus1, 1}, 0},
         {"setp.ne.s16 %q0, %h1, %h2;", {1, 2}, 1},
         {"setp.ne.s16 %q0, %h1, %h2;", {1, 0x10001}, 0},
         {"setp.ne.s32 %q0, %r1, %r2;", {1, 2}, 1},
         {"setp.ne.s32 %q0, %r1, %r2;", {0xffffffff, 0xffffffff}, 0},
         {"setp.ne.s64 %q0, %d1, %d2;", {1, 0x100000001}, 1},
         {"setp.ne.s64 %q0, %d1, %d2;", {kMinus1, kMinus1}, 0}});
}

TEST(OpcodesOfImages, Load) {
  check({{"ld.f64 %e0, [%p1+8];", {}, 0xafaeadacabaaa9a8},
         {"ld.global.f64 %e0, [%p1+8];", {}, 0xafaeadacabaaa9a8},
         {"ld.global.u16 %h0, [%p1+2];", {}, 0xa3a2},
         {"ld.u16 %d0, [%p1+4];", {}, 0xa5a4},
         {"ld.u8 %h0, [%p1+3];", {}, 0xa3},
         {"ld.global.v4.u8 {%h4, %h5, %h6, %h0}, [%p1+4];", {}, 0xa7},
         {"ld.v4.u8 {%h0, %h5, %h6, %h7}, [%p1+4];", {}, 0xa4},
         {"ld.v4.u16 {%h4, %h5, %h0, %h7}, [%p1+8];", {}, 0xadac},
         {"ld.v4.u32 {%r4, %r0, %r6, %r7}, [%p1+16];", {}, 0xb7b6b5b4},
         {"ld.v4.b32 {%r4, %r0, %r6, %r7}, [%p1+16];", {}, 0xb7b6b5b4},
         {"ld.v2.f64 {%e4, %e0}, [%p1];", {}, 0xafaeadacabaaa9a8},
         {"ld.global.v2.f64 {%e4, %e0}, [%p1];", {}, 0xafaeadacabaaa9a8},
         {"ld.v2.u32 {%r4, %r0}, [%p1+8];", {}, 0xafaeadac},
         {"ld.v2.u64 {%d5, %d0}, [%p1+16];", {}, 0xbfbebdbcbbbab9b8},
         {"ld.acquire.sys.global.u64 %d0, [%p1+8];", {}, 0xafaeadacabaaa9a8},
         {"ld.relaxed.sys.global.v2.u64 {%d5, %d0}, [%p1];", {}, 0xafaeadacabaaa9a8},
         {"cvta.global.u64 %d5, %p1; ld.u64 %d0, [%d5+8];", {}, 0xafaeadacabaaa9a8},
         {"cvta.to.global.u64 %d5, %p1; ld.global.u64 %d0, [%d5+8];", {}, 0xafaeadacabaaa9a8},
         {"ld.param.u8 %h0, [p2+4];", {}, 0x22},
         {"ld.param.u32 %r0, [p2+4];", {}, 0x11112222},
         {"ld.param.s32 %r0, [p2+4];", {}, 0x11112222},
         {"ld.param.v2.u32 {%r4, %r0}, [p2];", {}, 0x11112222},
         {"ld.param.v2.u64 {%d5, %d0}, [p2];", {}, 0x5555666677778888},
         {"ld.param.v4.u16 {%h4, %h5, %h0, %h6}, [p2];", {}, 0x2222}});
}

TEST(OpcodesOfImages, Store) {
  check({{"st.global.f32 [%p1+4], %f1; ld.global.u64 %d0, [%p1];", {kOne}, 0x3f800000a3a2a1a0},
         {"st.global.f64 [%p1], %e1; ld.global.u64 %d0, [%p1];", {kOne64}, kOne64},
         {"st.global.u16 [%p1+2], %h1; ld.global.u64 %d0, [%p1];", {0x1234}, 0xa7a6a5a41234a1a0},
         {"st.global.v2.f32 [%p1], {%f1, %f2}; ld.global.u64 %d0, [%p1];", {kOne, kTwo}, 0x400000003f800000},
         {"st.global.v2.f64 [%p1], {%e1, %e2}; ld.global.u64 %d0, [%p1+8];", {kOne64, kTwo64}, kTwo64},
         {"st.global.v2.u16 [%p1], {%h1, %h2}; ld.global.u64 %d0, [%p1];",
          {0x1111, 0x2222},
          0xa7a6a5a422221111},
         {"st.global.v2.u32 [%p1], {%r1, %r2}; ld.global.u64 %d0, [%p1];", {1, 2}, 0x200000001},
         {"st.global.v2.u8 [%p1+2], {%h1, %h2}; ld.global.u64 %d0, [%p1];", {0x11, 0x22}, 0xa7a6a5a42211a1a0},
         {"st.global.v4.u16 [%p1], {%h1, %h2, %h3, %h1}; ld.global.u64 %d0, [%p1];",
          {0x1111, 0x2222, 0x3333},
          0x1111333322221111},
         {"st.v2.f32 [%p1], {%f1, %f2}; ld.global.u64 %d0, [%p1];", {kOne, kTwo}, 0x400000003f800000},
         {"st.v2.u32 [%p1], {%r1, %r2}; ld.global.u64 %d0, [%p1];", {1, 2}, 0x200000001},
         {"st.v2.u8 [%p1+2], {%h1, %h2}; ld.global.u64 %d0, [%p1];", {0x11, 0x22}, 0xa7a6a5a42211a1a0},
         {"st.v4.u16 [%p1], {%h1, %h2, %h3, %h1}; ld.global.u64 %d0, [%p1];",
          {0x1111, 0x2222, 0x3333},
          0x1111333322221111},
         {"st.global.v4.u8 [%p1+4], {%h1, %h2, %h3, %h1}; ld.global.u64 %d0, [%p1];",
          {0x11, 0x22, 0x33},
          0x11332211a3a2a1a0},
         {"st.relaxed.sys.global.v2.u64 [%p1], {%d1, %d2}; ld.global.u64 %d0, [%p1+8];", {1, 2}, 2},
         {"st.release.sys.global.u64 [%p1], %d1; ld.global.u64 %d0, [%p1];",
          {0x1122334455667788},
          0x1122334455667788},
         {"st.u32 [%p1+4], %d1; ld.global.u64 %d0, [%p1];", {0x1122334455667788}, 0x55667788a3a2a1a0},
         {"st.u8 [%p1+1], %h1; ld.global.u64 %d0, [%p1];", {0x1ee}, 0xa7a6a5a4a3a2eea0},
         {"st.v2.u64 [%p1], {%d1, %d2}; ld.global.u64 %d0, [%p1];", {1, 2}, 1},
         {"st.v4.u32 [%p1], {%r1, %r2, %r3, %r1}; ld.global.u64 %d0, [%p1+8];", {1, 2, 3}, 0x100000003},
         {"st.v4.u8 [%p1], {%h1, %h2, %h3, %h1}; ld.global.u64 %d0, [%p1];",
          {0x11, 0x22, 0x33},
          0xa7a6a5a411332211}});
}

TEST(OpcodesOfImages, ReachSharedMemory) {
  check(
      {{".shared .align 8 .b8 s[16]; st.shared.u64 [s+8], %d1; ld.shared.u8 %h0, [s+10];", {0x332211}, 0x33},
       {".shared .align 8 .b8 s[16]; st.shared.u64 [s+8], %d1; ld.shared.v2.u32 {%r4, %r0}, [s+8];",
        {0x1122334455667788},
        0x11223344}});
}

TEST(OpcodesOfImages, CountInMemory) {
  check({{"atom.acq_rel.gpu.global.add.u64 %d0, [%p1], %d1;", {5}, 0xa7a6a5a4a3a2a1a0},
         {"atom.acq_rel.gpu.global.add.u64 %d5, [%p1], %d1; ld.global.u64 %d0, [%p1];",
          {0x10},
          0xa7a6a5a4a3a2a1b0}});
}

TEST(OpcodesOfImages, ReachLocalMemory) {
  check({{"st.local.u32 [%d9+4], %r1; ld.local.s32 %d0, [%d9+4];", {0x80000000}, 0xffffffff80000000},
         {"st.local.u8 [%d9+2], %h1; ld.local.u8 %h0, [%d9+2];", {0x1ff}, 0xff},
         {"st.local.v2.u32 [%d9+8], {%r1, %r2}; ld.local.v2.u32 {%r4, %r0}, [%d9+8];", {1, 2}, 2},
         {"st.local.v2.u64 [%d9+16], {%d1, %d2}; ld.local.v2.u64 {%d0, %d5}, [%d9+16];", {1, 2}, 1},
         {"st.local.v2.u64 [%d9], {%d1, %d2}; ld.local.v4.b32 {%r4, %r0, %r5, %r6}, [%d9];",
          {0x8877665544332211, 0},
          0x88776655},
         {"st.local.v2.u64 [%d9], {%d1, %d2}; ld.local.v4.u32 {%r4, %r0, %r5, %r6}, [%d9];",
          {0x8877665544332211, 0},
          0x88776655},
         {"st.local.v2.u64 [%d9], {%d2, %d1}; ld.local.v4.u16 {%h4, %h0, %h5, %h6}, [%d9+8];",
          {0x8877665544332211},
          0x4433},
         {"st.local.v2.u64 [%d9], {%d2, %d1}; ld.local.v4.u8 {%h4, %h5, %h0, %h6}, [%d9+12];",
          {0x8877665544332211},
          0x77},
         {"st.local.u8 [%d9+2], %h1; cvta.local.u64 %d5, %d9; cvta.to.local.u64 %d6, %d5; ld.local.u8 %h0, "
          "[%d6+2];",
          {7},
          7}});
}

/// "setp.ge.u64": the first word of each instruction, behind its guard; and "tid.x": registers that say where
/// a thread runs.
void add_forms(std::string text, std::set<std::string>& forms) {
  std::ranges::replace_if(
      text, [](char c) { return c == ';' || c == '{' || c == '}'; }, '\n');
  const auto is_lower = [](char c) { return std::islower(static_cast<unsigned char>(c)) != 0; };
  std::istringstream lines(text);
  std::set<std::string> registers;
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.find("//"), line.size()));
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || (word.starts_with("@") && !(words >> word))) continue;
    if (word == ".reg") {
      if (words >> word >> word) registers.insert(word);
      continue;
    }
    const bool is_instruction =  // else a label, or what a call has on lines of its own
        is_lower(word[0]) && word.find_first_of(":,") == word.npos && !word.starts_with("param");
    if (is_instruction) forms.insert(word);
    if (!is_instruction || !(words >> word >> word) || word[0] != '%' || !is_lower(word[1])) continue;
    if (word.ends_with(',')) word.pop_back();
    if (!registers.contains(word) &&
        std::ranges::none_of(word, [](unsigned char c) { return std::isdigit(c) != 0; }))
      forms.insert(word.substr(1));
  }
}
/// All that stands in strings of a source.
void add_tested(const char* source, std::set<std::string>& forms) {
  std::ifstream file(std::string(LOOM_TESTS_DIR "/virtual_gpu/run/") + source);
  EXPECT_TRUE(file) << source;
  for (std::string line; std::getline(file, line);) {
    bool in_string = false;
    std::string word;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (in_string && (std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_')) {
        word += c;
        continue;
      }
      forms.insert(word);
      word.clear();
      if (c == '"') in_string = !in_string;
      if (c == '\\') ++i;
    }
  }
}

TEST(OpcodesOfImages, AllHaveUnitTests) {
  if (!cuda::has_kernels()) GTEST_SKIP() << "skipped: this build has no kernels";
  std::set<std::string> forms, tested, missing;
  for (const cuda::Compiler compiler : cuda::kCompilers) {
    if (cuda::kernels_by(compiler).empty()) continue;
    int last = -1;
    for (const cuda::KernelId& kernel : cuda::every_kernel()) {
      if (compiler == cuda::Compiler::kNvcc && kernel.op == last) continue;  // one image for all types
      last = kernel.op;
      add_forms(ptx_of({compiler, kernel.op, kernel.type}), forms);
    }
    EXPECT_GT(forms.size(), 100U);
  }
  for (const char* source : {"opcodes_test.cpp", "lanes_test.cpp", "images_opcodes_test.cpp"})
    add_tested(source, tested);
  std::ranges::set_difference(forms, tested, std::inserter(missing, missing.end()));
  EXPECT_EQ(missing, std::set<std::string>{})
      << "compilers use them; add them to the tables of images_opcodes_test.cpp";
}

}  // namespace
}  // namespace virtual_gpu::run
