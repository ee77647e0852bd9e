#include <gmock/gmock.h>

#include <string>

#include "tests/virtual_gpu/ptx/module.hpp"

namespace virtual_gpu::ptx {
namespace {

using What = Operand::What;

const std::string kHead = ".version 9.0\n.target sm_90\n.address_size 64\n";

Module parse_body(const std::string& body) {
  return parse(kHead + ".visible .entry k()\n{\n" + body + "\n}\n");
}

TEST(PtxParser, ReadsTheHead) {
  const Module module = parse(".version 8.4\n.target sm_70, texmode_independent\n.address_size 64\n");
  EXPECT_EQ(module.major, 8U);
  EXPECT_EQ(module.minor, 4U);
  EXPECT_EQ(module.target, "sm_70");
  EXPECT_EQ(module.address_bits, 64U);
}

TEST(PtxParser, ReadsParametersAndDirectivesOfAKernel) {
  const Module module = parse(kHead +
                              ".visible .entry k(\n.param .u64 .ptr .global .align 16 a,\n"
                              ".param .align 8 .b8 b[88]\n)\n.maxntid 512, 1, 1\n.minnctapersm 2\n{ ret; }");
  ASSERT_EQ(module.functions.size(), 1U);
  const Function& k = module.functions[0];
  EXPECT_TRUE(k.is_entry);
  EXPECT_EQ(k.parameters, 2U);
  EXPECT_EQ(k.variables[0].bytes, 8U);
  EXPECT_EQ(k.variables[0].align, 8U);
  EXPECT_EQ(k.variables[1].bytes, 88U);
  EXPECT_EQ(k.variables[1].align, 8U);
  EXPECT_EQ(k.most_threads, (std::array<unsigned, 3>{512, 1, 1}));
  EXPECT_EQ(k.least_blocks, 2U);
}

TEST(PtxParser, JoinsADeclarationAndItsDefinition) {
  const Module module = parse(kHead +
                              ".func (.param .b32 r) f(.param .b64 a);\n"
                              ".func (.param .b32 r) f(.param .b64 b)\n.noreturn\n{ ret; }\n");
  ASSERT_EQ(module.functions.size(), 1U);
  EXPECT_TRUE(module.functions[0].has_body);
  EXPECT_EQ(module.functions[0].results, 1U);
  EXPECT_EQ(module.functions[0].parameters, 1U);
  EXPECT_EQ(module.functions[0].variables[1].name, "b");
}

TEST(PtxParser, ReadsVariablesWithInitialValues) {
  const Module module = parse(kHead +
                              ".global .align 4 .b8 bytes[4] = {1, 2, 0xff};\n"
                              ".const .f32 half = 0f3F000000;\n.visible .global .v2 .u32 two[3];\n"
                              ".extern .shared .align 16 .b8 dynamic[];\n.shared .u64 words[2];\n");
  ASSERT_EQ(module.variables.size(), 5U);
  EXPECT_THAT(module.variables[0].initial,
              ::testing::ElementsAre(std::byte{1}, std::byte{2}, std::byte{0xff}, std::byte{0}));
  EXPECT_THAT(module.variables[1].initial,
              ::testing::ElementsAre(std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0x3f}));
  EXPECT_EQ(module.variables[2].bytes, 24U);
  EXPECT_EQ(module.variables[3].bytes, 0U);
  EXPECT_EQ(module.variables[3].space, Space::kShared);
  EXPECT_EQ(module.variables[4].bytes, 16U);
}

TEST(PtxParser, ReadsEveryKindOfOperand) {
  const Module module = parse_body(
      ".reg .pred %p<3>; .reg .b32 %r<4>; .reg .f32 %f; .local .b8 depot[16];\n"
      "@!%p1 mov.b64 {%r0, _}, -3;\n"
      "barrier.red.or.pred %p0, 0x10, %r1, !%p1;\n"
      "ld.param.v2.u32 {%r1, %r2}, [%r3+-8];\n"
      "st.local.f32 [depot+4], 0f3F800000;\n"
      "mov.u32 %r0, %tid.x; mov.f64 %r0, 1.5e1; mov.u64 %r0, 0d4000000000000000; bra.uni done;\n"
      "done: ret;");
  const auto& code = module.functions[0].instructions;
  ASSERT_EQ(code.size(), 9U);
  EXPECT_EQ(code[0].line, 7);
  EXPECT_EQ(code[0].text, "@!%p1 mov.b64 {%r0, _}, -3");
  ASSERT_TRUE(code[0].guard);
  EXPECT_TRUE(code[0].guard->negated);
  EXPECT_EQ(code[0].guard->index, 1U);
  ASSERT_EQ(code[0].operands[0].what, What::kVector);
  EXPECT_EQ(code[0].operands[0].elements[0].index, 3U);
  EXPECT_EQ(code[0].operands[0].elements[1].what, What::kSink);
  EXPECT_EQ(code[0].operands[1].bits, static_cast<std::uint64_t>(-3));

  EXPECT_THAT(code[1].modifiers, ::testing::ElementsAre("red", "or", "pred"));
  EXPECT_EQ(code[1].operands[1].bits, 16U);
  EXPECT_TRUE(code[1].operands[3].negated);

  EXPECT_TRUE(code[2].operands[1].is_address);
  EXPECT_EQ(code[2].operands[1].offset, -8);
  EXPECT_EQ(code[3].operands[0].what, What::kVariable);
  EXPECT_EQ(code[3].operands[0].offset, 4);
  EXPECT_EQ(code[3].operands[1].what, What::kFloat32);
  EXPECT_EQ(code[3].operands[1].bits, 0x3f800000U);
  EXPECT_EQ(code[4].operands[1].name, "%tid.x");
  EXPECT_EQ(code[5].operands[1].bits, 0x402e000000000000U);
  EXPECT_EQ(code[6].operands[1].bits, 0x4000000000000000U);
  EXPECT_EQ(code[7].operands[0].name, "done");
  EXPECT_EQ(module.functions[0].labels.at("done"), 8U);
}

TEST(PtxParser, DeclaresRegistersAnewInInnerScopes) {
  const Module module = parse_body(
      ".reg .b32 %r<2>;\n{ .reg .b64 %r<3>; mov.b64 %r1, 0; }\n{ .reg .b16 t; mov.b16 t, 0; }\nmov.b32 %r1, "
      "0;");
  const Function& k = module.functions[0];
  EXPECT_EQ(k.registers[k.instructions[0].operands[0].index].bits, 64U);
  EXPECT_EQ(k.registers[k.instructions[1].operands[0].index].bits, 16U);
  EXPECT_EQ(k.registers[k.instructions[2].operands[0].index].bits, 32U);
}

TEST(PtxParser, ReadsCalls) {
  const Module module = parse_body(
      "{ // callseq 0\n.param .b64 param0;\n.param .b32 retval0;\ncall.uni (retval0),\n f,\n "
      "(\nparam0\n);\n}\n"
      "call g;");
  const auto& code = module.functions[0].instructions;
  ASSERT_EQ(code.size(), 2U);
  EXPECT_EQ(code[0].operands[0].what, What::kList);
  EXPECT_EQ(code[0].operands[0].elements[0].index, 1U);
  EXPECT_EQ(code[0].operands[1].name, "f");
  EXPECT_EQ(code[0].operands[2].elements[0].index, 0U);
  EXPECT_EQ(code[1].operands[0].name, "g");
}

TEST(PtxParser, SkipsWhatSaysNothingAboutTheProgram) {
  const Module module =
      parse(kHead +
            ".file 1 \"a.cu\"\n.entry k() { .pragma \"nounroll\"; .loc 1 2 3, function_name x, "
            "inlined_at 1 2 3\n/* a\ncomment */ ret; // ;\n}\n.section .debug { .b8 1, {2} x: }\n");
  EXPECT_EQ(module.functions[0].instructions.size(), 1U);
  EXPECT_EQ(module.functions[0].instructions[0].line, 7);
}

struct Mistake {
  std::string text;  ///< of a kernel's body, from line 6 on
  int line;
  std::string says;
};
TEST(PtxParser, NamesTheLineOfAMistake) {
  const Mistake mistakes[] = {{"ret", 7, "unexpected '}'"},
                              {"\n.reg .b31 %r;", 7, "cannot be of type .b31"},
                              {".reg .b32 %r<2>; .reg .b32 %r<3>;", 6, "there already"},
                              {".local .b8 a[3]; .local .b8 a[3];", 6, "there already"},
                              {"L: ret;\nL: ret;", 7, "label L is there"},
                              {"@x ret;", 6, "a guard is a predicate"},
                              {".reg .b32 r;\n@r ret;", 7, "a guard is a predicate"},
                              {"mov.b32 x, 0f3F80;", 6, "'0f3F80' is not a number"},
                              {"mov.b32 x, 0x1ffffffffffffffff;", 6, "is not a number"},
                              {"ld.b32 x, [y];", 6, "y is no address"},
                              {"\n\n#", 8, "unexpected '#'"},
                              {"/* never", 6, "no end"},
                              {".weird 3;", 6, "unknown directive .weird"},
                              {".local .align 3 .b8 a[3];", 6, "power of two"},
                              {".local .b8 a[];", 6, "no size"},
                              {".local .b8 a[1] = {1, 2};", 6, "more initial values"},
                              {".global .b8 a;", 6, "outside of functions"}};
  for (const Mistake& mistake : mistakes) {
    try {
      parse_body(mistake.text);
      ADD_FAILURE() << "accepted: " << mistake.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.line(), mistake.line) << mistake.text << ": " << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr(mistake.says)) << mistake.text;
    }
  }
  EXPECT_THROW(parse(".target sm_90\n"), Error);
  EXPECT_THROW(parse(kHead + ".address_size 32\n"), Error);
  EXPECT_THROW(parse(kHead + ".entry k();"), Error);
  EXPECT_THROW(parse(kHead + ".entry k() {}\n.entry k() {}"), Error);
  EXPECT_THROW(parse(kHead + ".func f() .unknown {}"), Error);
  EXPECT_THROW(parse(kHead + ".global .u64 p = generic(k);"), Error);
}

}  // namespace
}  // namespace virtual_gpu::ptx
