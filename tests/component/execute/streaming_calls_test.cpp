// Which algorithms let operands come and results leave while they perform a call; ranks are threads.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/component/allreduce_cases.hpp"

namespace loom::test {
namespace {

/// Counts what it is told; all of the operand is there.
class Counting final : public device::Streaming {
 public:
  Counting(const std::vector<int>& in, const std::vector<int>& out)
      : in_(reinterpret_cast<const std::byte*>(in.data())),
        out_(reinterpret_cast<const std::byte*>(out.data())),
        bytes_(in.size() * sizeof(int)) {}
  void need(const std::byte* first, std::size_t bytes) override {
    if (first >= in_ && first < in_ + bytes_) needed += bytes;
  }
  void need_all() override { ++whole; }
  void have(const std::byte* first, std::size_t bytes) noexcept override {
    if (first >= out_ && first < out_ + bytes_) had += bytes;
  }
  std::size_t needed = 0, had = 0;
  int whole = 0;

 private:
  const std::byte *in_, *out_;
  std::size_t bytes_;
};

struct Way {
  const char* name;
  std::vector<int> host_of;  ///< by rank
  const char* tune;
  bool knows;
  std::size_t count = 1'000'003;
};

class StreamingOfCalls : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override { setenv("UCX_TLS", "tcp,self", 1); }
};

TEST_P(StreamingOfCalls, IsUsedByThoseWhoKnowOfIt) {
  const Way& way = GetParam();
  Job job{.ranks = static_cast<int>(way.host_of.size()), .host = [&](int rank) {
            return "host" + std::to_string(way.host_of[static_cast<std::size_t>(rank)]);
          }};
  job.parameters.tune = way.tune;
  job.run([&](Rank& self) {
    const auto communicator = self.connect();
    ASSERT_NE(communicator, nullptr);
    for (int call = 0; call < 3; ++call) {
      const std::vector<int> in = operands<int>(self.rank(), way.count, call);
      std::vector<int> out(way.count, -1);
      Counting streaming(in, out);
      ASSERT_TRUE(communicator->perform({.collective = device::Collective::kAllreduce,
                                         .in = reinterpret_cast<const std::byte*>(in.data()),
                                         .out = bytes_of(out),
                                         .count = way.count,
                                         .type = device::Type::kInt32,
                                         .op = device::Op::kSum,
                                         .streaming = &streaming}));
      EXPECT_EQ(out, expected_sum<int>(self.size(), way.count, call));
      const std::size_t bytes = way.count * sizeof(int);
      if (way.knows) {
        EXPECT_EQ(streaming.whole, 0);
        EXPECT_GE(streaming.needed, bytes);
        EXPECT_EQ(streaming.had, bytes);
      } else {
        EXPECT_EQ(streaming.whole, 1);
        EXPECT_EQ(streaming.had, 0U) << "of what is not final, maybe";
      }
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Of, StreamingOfCalls,
                         ::testing::Values(Way{"Cico", {0, 0, 0}, "all:cico", true},
                                           Way{"SingleCopy", {0, 0, 0}, "all:single_copy", false},
                                           Way{"Immediate", {0, 0, 0}, "", false, 100},
                                           Way{"SplitRails", {0, 1, 0, 1}, "all:ring", true},
                                           Way{"FlatRing", {0, 1, 0}, "all:ring", true},
                                           Way{"Dbt", {0, 1, 2, 3}, "all:dbt", true},
                                           Way{"Hier", {0, 1, 0, 1}, kHierAtOnce, false, 5000}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace loom::test
