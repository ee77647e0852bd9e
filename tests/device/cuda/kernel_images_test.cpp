// The kernels of this build: that they are there, as text (what PTX they are, and how they compute), and
// which of them a driver takes (tests/virtual_gpu).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/format.hpp"
#include "device/cuda/gpu_stream.hpp"
#include "device/cuda/images.hpp"
#include "tests/device/cuda/every_kernel.hpp"
#include "tests/device/cuda/virtual_device.hpp"

namespace loom::device::cuda {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

bool has_kernels_by(Compiler compiler) {
  return !kernels_by(compiler).empty();
}

/// What of PTX matters here.
struct Ptx {
  std::string version, target;
  std::vector<std::string> entries;
  std::size_t bounded_to_512_threads = 0, at_least_two_blocks = 0;  ///< entries with these bounds
  std::vector<std::vector<std::string>> opcodes;                    ///< "add.rn.f32" as its parts

  explicit Ptx(std::istream&& text) {
    for (std::string line; std::getline(text, line);) read(line);
  }
  std::size_t count(const std::vector<std::string>& opcode) const {
    return static_cast<std::size_t>(std::ranges::count(opcodes, opcode));
  }

 private:
  void read(const std::string& line) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word.starts_with("//")) return;
    if (word.starts_with("@")) words >> word;  // a guard
    if (word == ".version") words >> version;
    if (word == ".target") words >> target;
    if (word == ".visible" && words >> word && word == ".entry" && words >> word)
      entries.push_back(word.substr(0, word.find('(')));
    if (word == ".maxntid") bounded_to_512_threads += line == ".maxntid 512, 1, 1" || line == ".maxntid 512";
    if (word == ".minnctapersm") at_least_two_blocks += line.find(" 2") != line.npos;
    if (std::islower(static_cast<unsigned char>(word[0]))) add_opcode(word.substr(0, word.find(';')));
  }
  void add_opcode(const std::string& opcode) {
    std::vector<std::string>& parts = opcodes.emplace_back();
    std::istringstream in(opcode);
    for (std::string part; std::getline(in, part, '.');) parts.push_back(part);
  }
};

Ptx ptx_by_clang(const KernelId& kernel) {
  return Ptx(std::istringstream(kernel_image(Compiler::kClang, kernel.op, kernel.type)));
}

/// Rounded each, and subnormal numbers kept, as on the host.
void check_arithmetic(const Ptx& ptx) {
  const std::set<std::string> floats = {"f16", "bf16", "f16x2", "bf16x2", "f32", "f64"};
  for (const auto& parts : ptx.opcodes) {
    const std::string& what = parts[0];
    EXPECT_NE(what, "fma");
    if (!floats.contains(parts.back())) continue;
    EXPECT_NE(what, "mad");
    if (what == "add" || what == "sub" || what == "mul") {
      EXPECT_EQ(parts, (std::vector<std::string>{what, "rn", parts.back()}));
    }
  }
}

TEST(KernelImages, AreOfTheOperationsAndTypesThatAGpuSupports) {
  std::set<std::pair<int, int>> found, right = {{kMove, static_cast<int>(Type::kUint8)}};
  for (const KernelId& kernel : every_kernel()) found.emplace(kernel.op, static_cast<int>(kernel.type));
  for (int op = 0; op < kOpCount; ++op)
    for (int type = 0; type < kTypeCount; ++type)
      if (Gpu::supports(static_cast<Op>(op), static_cast<Type>(type)))
        right.emplace(op, static_cast<int>(kernel_type(op, static_cast<Type>(type))));
  EXPECT_EQ(found, right);
}

TEST(KernelImages, AreThereForEveryKernel) {
  for (const Compiler compiler : kCompilers)
    for (const KernelId& kernel : every_kernel())
      EXPECT_EQ(kernel_image(compiler, kernel.op, kernel.type) != nullptr, has_kernels_by(compiler))
          << kernels_by(compiler) << ", operation " << kernel.op << ", type "
          << static_cast<int>(kernel.type);
  EXPECT_EQ(has_kernels(), has_kernels_by(Compiler::kNvcc) || has_kernels_by(Compiler::kClang));
}

class ClangsKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_kernels_by(Compiler::kClang)) GTEST_SKIP() << "skipped: this build has no kernels by clang";
  }
};

TEST_F(ClangsKernels, AreTwoInEachImageOfThePtxThatIsPromised) {
  for (const KernelId& kernel : every_kernel()) {
    const Ptx ptx = ptx_by_clang(kernel);
    EXPECT_EQ(kernels_by(Compiler::kClang),
              loom::format("clang PTX {} for {} and later", ptx.version, ptx.target));
    const int type = static_cast<int>(kernel.type);
    EXPECT_THAT(ptx.entries, UnorderedElementsAre(loom::format("loom_combine_{}_{}", kernel.op, type),
                                                  loom::format("loom_collective_{}_{}", kernel.op, type)));
    EXPECT_EQ(ptx.bounded_to_512_threads, 2U);
    EXPECT_EQ(ptx.at_least_two_blocks, 1U);  // of collectives
  }
}

TEST_F(ClangsKernels, RoundAsTheHostDoes) {
  for (const KernelId& kernel : every_kernel()) {
    SCOPED_TRACE(loom::format("operation {}, type {}", kernel.op, static_cast<int>(kernel.type)));
    check_arithmetic(ptx_by_clang(kernel));
  }
  const Ptx products = ptx_by_clang({static_cast<int>(Op::kProd), Type::kComplexDouble});
  const std::size_t sums = products.count({"add", "rn", "f64"}),
                    differences = products.count({"sub", "rn", "f64"});
  EXPECT_GT(sums, 0U);
  EXPECT_EQ(differences, sums);
  EXPECT_EQ(products.count({"mul", "rn", "f64"}), 2 * (sums + differences));
}

/// What nvcc made of each architecture on the way to its image.
TEST(NvccsKernels, RoundAsTheHostDoes) {
  if (!has_kernels_by(Compiler::kNvcc)) GTEST_SKIP() << "skipped: this build has no kernels by nvcc";
  for (int op = 0; op < kKernelOps; ++op) {
    SCOPED_TRACE(op);
    int texts = 0;
    for (const auto& file :
         std::filesystem::directory_iterator(loom::format("{}/nvcc_{}", LOOM_IMAGES_DIR, op))) {
      if (file.path().extension() != ".ptx") continue;
      ++texts;
      const Ptx ptx(std::ifstream(file.path()));
      check_arithmetic(ptx);
      EXPECT_THAT(kernels_by(Compiler::kNvcc), HasSubstr(ptx.target));
      for (const KernelId& kernel : every_kernel()) {
        if (kernel.op != op) continue;
        for (const char* kind : {"combine", "collective"})
          EXPECT_THAT(ptx.entries,
                      Contains(loom::format("loom_{}_{}_{}", kind, op, static_cast<int>(kernel.type))));
      }
      EXPECT_EQ(ptx.bounded_to_512_threads, 2U * kTypeCount);
      EXPECT_EQ(ptx.at_least_two_blocks, 1U * kTypeCount);
    }
    EXPECT_GT(texts, 0);
  }
}

class KernelLoading : public ::testing::Test {
 protected:
  /// The virtual driver compiles PTX and runs no machine code: its GPUs are of the architecture of nvcc's PTX.
  static void SetUpTestSuite() {
    const std::string nvccs(kernels_by(Compiler::kNvcc));  // "nvcc 13.0 for sm_80, sm_90 and later"
    if (const auto last = nvccs.rfind("sm_"); last != nvccs.npos)
      ::setenv("VIRTUAL_GPU_CAPABILITY", std::to_string(std::stoi(nvccs.substr(last + 3))).c_str(), 1);
  }
  void SetUp() override {
    if (!has_kernels()) GTEST_SKIP() << "skipped: this build has no kernels";
  }
  void TearDown() override {
    for (const char* image : {"machine code", "PTX"}) cuda_.fail(image, 0);
  }
  /// Whether a sum of two numbers is right.
  bool adds() {
    Gpu gpu(*driver_, owner_);
    int* const at = reinterpret_cast<int*>(gpu.allocate(2 * sizeof(int)));
    const int operands[2] = {20, 3};
    int sum = 0;
    gpu.copy(at, operands, sizeof(operands));
    const CombineArgs args{.operands = 2, .results = 1, .count = 1, .in = {at, at + 1}, .out = {at}};
    GpuStream stream(gpu);
    stream.combine(Op::kSum, Type::kInt32, args);
    stream.synchronize();
    gpu.copy(&sum, at, sizeof(sum));
    gpu.release(reinterpret_cast<std::byte*>(at));
    return sum == 23;
  }

  VirtualDevice cuda_;
  std::unique_ptr<Driver> driver_ = open_virtual();
  Owner owner_{cuda_.context(0), 0};
};

TEST_F(KernelLoading, TakesClangsWhereTheDriverRefusesNvccs) {
  cuda_.fail("machine code", 209);
  if (!has_kernels_by(Compiler::kClang)) GTEST_SKIP() << "skipped: this build has no kernels by clang";
  EXPECT_TRUE(adds());
}

TEST_F(KernelLoading, TakesNvccsWhereTheDriverRefusesClangs) {
  cuda_.fail("PTX", 222);
  if (!has_kernels_by(Compiler::kNvcc)) GTEST_SKIP() << "skipped: this build has no kernels by nvcc";
  EXPECT_TRUE(adds());
}

/// CUDA 12.2 compiles PTX up to 8.2, CUDA 13.0 up to 9.0.
TEST_F(KernelLoading, TakesWhatTheDriverIsNewEnoughFor) {
  const bool nvccs_is_newer = has_kernels_by(Compiler::kNvcc) && kernels_by(Compiler::kNvcc) >= "nvcc 13";
  for (const auto& [version, takes_nvccs] : {std::pair("12020", !nvccs_is_newer), std::pair("13000", true)}) {
    SCOPED_TRACE(version);
    ::setenv("VIRTUAL_GPU_DRIVER_VERSION", version, 1);
    if (has_kernels_by(Compiler::kClang) || takes_nvccs) {
      EXPECT_TRUE(adds());
    }
    cuda_.fail("PTX", 222);  // clang's
    if (has_kernels_by(Compiler::kNvcc) && takes_nvccs) {
      EXPECT_TRUE(adds());
    } else {
      EXPECT_THROW(adds(), Error);
    }
    cuda_.fail("PTX", 0);
  }
  ::unsetenv("VIRTUAL_GPU_DRIVER_VERSION");
}

TEST_F(KernelLoading, SaysWhyTheDriverTakesNoneInTheOrderOfTheAttempts) {
  cuda_.fail("machine code", 209);
  cuda_.fail("PTX", 222);
  try {
    adds();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    std::vector<std::string> right;
    for (const auto& [compiler, number] :
         {std::pair(Compiler::kNvcc, 209), std::pair(Compiler::kClang, 222)}) {
      const char* meaning = nullptr;
      cuda_.call("cuGetErrorString", number, &meaning);
      if (has_kernels_by(compiler))
        right.push_back(loom::format("CUDA's driver fails with error {} ({}) while it loads kernels by {}.",
                                     number, meaning, kernels_by(compiler)));
    }
    EXPECT_EQ(error.what(), loom::join(right, " "));
  }
}

TEST_F(KernelLoading, AsksTheDriverHowManyBlocksFit) {
  Gpu gpu(*driver_, owner_);
  EXPECT_EQ(gpu.resident_blocks(Op::kSum, Type::kFloat), 2U * 132);  // of a multiprocessor
  EXPECT_EQ(gpu.resident_blocks({}, Type::kUint8), 2U * 132);
}

}  // namespace
}  // namespace loom::device::cuda
