#include "component/select/tune.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const char* text) {
  try {
    Tune::parse(text, "coll_loom_tune");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadInput);
    return error.what();
  }
  return "no error";
}

TEST(Tune, SaysWhatIsWrongWhereAndWhatThereIs) {
  EXPECT_THAT(
      error_of("allreduce:ring,bcst:ring"),
      HasSubstr(
          "coll_loom_tune: \"bcst:ring\": There is no collective \"bcst\". There are: all, allreduce, "));
  EXPECT_THAT(error_of("bcast:rings"),
              HasSubstr("There is no algorithm \"rings\". There are: table, fallback, staged, copy, "));
  EXPECT_THAT(error_of("bcast:8k-4k:ring"), HasSubstr("\"8k-4k\" is no range of sizes"));
  EXPECT_THAT(error_of("bcast:8k-8k:ring"), HasSubstr("is no range of sizes"));
  EXPECT_THAT(error_of("bcast:8x-9k:ring"), HasSubstr("is no range of sizes"));
  EXPECT_THAT(error_of("bcast:-1-9k:ring"), HasSubstr("is no range of sizes"));
  EXPECT_THAT(error_of("bcast:1-99999999999g:ring"), HasSubstr("is no range of sizes"));
  EXPECT_THAT(error_of("bcast:1k:ring"), HasSubstr("is no range of sizes"));
  EXPECT_THAT(error_of("ring"), HasSubstr("A rule is COLLECTIVE:ALGORITHM"));
  EXPECT_THAT(error_of("bcast:0-8k:ring:x"), HasSubstr("A rule is COLLECTIVE:ALGORITHM"));
  EXPECT_THAT(error_of("scan:ring"), HasSubstr("ring does not carry scan."));
  for (const char* const right :
       {"", " , \n# nothing\n", "all:ring", "all:fallback", "scan:table", " bcast : 0 - inf : dbt "})
    EXPECT_EQ(error_of(right), "no error") << right;
}

TEST(Tune, KnowsSizes) {
  const Tune tune =
      Tune::parse("bcast:1k-2K:ring,bcast:3m-4g:ring,all:1-inf:fallback,reduce:5-6:ring", "test");
  EXPECT_THAT(tune.limits(device::Collective::kBroadcast),
              ElementsAre(1024, 2048, 3 << 20, std::size_t{4} << 30, 1));
}

TEST(Tune, HasAMarkThatTellsRulesApart) {
  EXPECT_EQ(Tune().mark(), 0U);
  EXPECT_EQ(Tune::parse(" bcast:ring # one", "a").mark(), Tune::parse("bcast:0-inf:ring", "b").mark());
  const char* const texts[] = {"bcast:ring",      "bcast:dbt",         "bcast:table",          "reduce:ring",
                               "bcast:0-8k:ring", "bcast:8k-inf:ring", "bcast:ring,bcast:ring"};
  for (const char* const a : texts)
    for (const char* const b : texts)
      EXPECT_EQ(Tune::parse(a, "").mark() == Tune::parse(b, "").mark(), a == b) << a << ", " << b;
  // The file's rules come first.
  Tune both = Tune::parse("bcast:ring", "file");
  both.append(Tune::parse("bcast:dbt", "coll_loom_tune"));
  EXPECT_EQ(both.mark(), Tune::parse("bcast:ring,bcast:dbt", "").mark());
  EXPECT_EQ(both.wanted(device::Collective::kBroadcast, 1, [](Algorithm) { return true; }), Algorithm::kDbt);
}

TEST(Tune, SaysWhyARuleHasNoEffect) {
  const Tune tune = Tune::parse(
      "all:ring,bcast:cico,all:single_copy,alltoall:pairwise,all:fallback,all:table", "coll_loom_tune");
  const Conditions one_host{.shape = {4, 1, 4}, .single_copy = true}, three{.shape = {6, 3, 2}, .hier = true};
  EXPECT_THAT(tune.without_effect(one_host),
              ElementsAre("coll_loom_tune: \"all:ring\" has no effect: it is for several hosts",
                          "coll_loom_tune: \"alltoall:pairwise\" has no effect: it is for several hosts"));
  EXPECT_THAT(tune.without_effect(three),
              ElementsAre("coll_loom_tune: \"bcast:cico\" has no effect: it is for ranks of one host",
                          "coll_loom_tune: \"all:single_copy\" has no effect: it is for ranks of one host"));
}

TEST(Tune, SaysWhyARuleForGpusHasNoEffect) {
  const Tune tune =
      Tune::parse("all:cico,bcast:kernel,all:zero_copy,allreduce:kernel_tree,all:staged", "coll_loom_tune");
  const Conditions one_host{.shape = {4, 1, 4}}, three{.shape = {6, 3, 2}};
  EXPECT_THAT(tune.without_effect(one_host), ElementsAre());
  const auto line = [](const char* rule) {
    return loom::format(
        "coll_loom_tune: \"{}\" has no effect: it is for calls that stay on GPUs, and there are none.", rule);
  };
  EXPECT_THAT(tune.without_effect(one_host, "there are none"),
              ElementsAre(line("bcast:kernel"), line("all:zero_copy"), line("allreduce:kernel_tree")));
  EXPECT_THAT(tune.without_effect(three, "there are none"), Contains(line("bcast:kernel")));
  EXPECT_THAT(tune.without_effect(three),
              ElementsAre("coll_loom_tune: \"all:cico\" has no effect: it is for ranks of one host",
                          "coll_loom_tune: \"all:zero_copy\" has no effect: it is for ranks of one host"));
}

constexpr auto kAll = device::Collective::kAllreduce, kBcast = device::Collective::kBroadcast;

Algorithm on_gpus(const Tune& tune, device::Collective collective, std::size_t bytes,
                  std::optional<Algorithm> impossible = {}) {
  return tune.on_devices(collective, bytes, [&](Algorithm algorithm) { return algorithm != impossible; });
}

TEST(Tune, LeavesBuffersOnGpusToWhatIsFaster) {
  EXPECT_EQ(on_gpus({}, kAll, 1), Algorithm::kKernel);
  EXPECT_EQ(on_gpus({}, kAll, 1, Algorithm::kKernel), Algorithm::kZeroCopy);
  const auto with = [](Algorithm faster, std::optional<Algorithm> possible) {
    return Tune().on_devices(
        kAll, 1, [&](Algorithm algorithm) { return algorithm == possible.value_or(algorithm); }, faster);
  };
  EXPECT_EQ(with(Algorithm::kZeroCopy, {}), Algorithm::kZeroCopy);
  EXPECT_EQ(with(Algorithm::kZeroCopy, Algorithm::kKernel), Algorithm::kKernel);
  EXPECT_EQ(with(Algorithm::kZeroCopy, Algorithm::kKernelRing), Algorithm::kStaged);
  // Rules for host memory are for staged copies.
  const Tune host = Tune::parse("all:cico,all:table", "test");
  EXPECT_EQ(on_gpus(host, kAll, 1), Algorithm::kKernel);
  EXPECT_FALSE(host.has_rule_on_devices(kAll, 1));
}

TEST(Tune, TellsWhatIsForBuffersOnGpus) {
  const Tune tune = Tune::parse("all:staged,allreduce:64k-inf:kernel,bcast:kernel,bcast:zero_copy", "test");
  EXPECT_EQ(on_gpus(tune, kAll, 64 << 10), Algorithm::kKernel);
  EXPECT_EQ(on_gpus(tune, kAll, 64 << 10, Algorithm::kKernel), Algorithm::kStaged);  // by the rule before it
  EXPECT_EQ(on_gpus(tune, kAll, (64 << 10) - 1), Algorithm::kStaged);
  EXPECT_EQ(on_gpus(tune, kBcast, 1), Algorithm::kZeroCopy);
  EXPECT_EQ(on_gpus(tune, kBcast, 1, Algorithm::kZeroCopy), Algorithm::kKernel);
  EXPECT_EQ(on_gpus(tune, device::Collective::kAllGather, 1), Algorithm::kStaged);
  EXPECT_TRUE(tune.has_rule_on_devices(kAll, 1));
  EXPECT_TRUE(tune.names(Algorithm::kZeroCopy));
  EXPECT_TRUE(Tune::parse("all:zero_copy,bcast:kernel_tree", "test").may_use_kernels());
  EXPECT_TRUE(Tune::parse("all:staged,allgatherv:kernel_ring", "test").may_use_kernels());
  EXPECT_FALSE(Tune::parse("all:staged", "test").may_use_kernels());
  EXPECT_FALSE(tune.names(Algorithm::kRing));
  // A rule that cannot be met is none.
  EXPECT_EQ(on_gpus(Tune::parse("all:zero_copy", "test"), kAll, 1, Algorithm::kZeroCopy), Algorithm::kKernel);
  EXPECT_EQ(on_gpus(Tune::parse("all:kernel", "test"), kAll, 1, Algorithm::kKernel), Algorithm::kZeroCopy);
  EXPECT_TRUE(tune.has_rule_on_devices(kAll, 64 << 10, Algorithm::kKernel));
  EXPECT_FALSE(tune.has_rule_on_devices(kAll, 64 << 10, Algorithm::kZeroCopy));
  EXPECT_TRUE(tune.has_rule_on_devices(kAll, 64 << 10, Algorithm::kStaged));
  // What the fallback component carries it gets in host memory.
  EXPECT_EQ(on_gpus(Tune::parse("all:fallback", "test"), kAll, 1), Algorithm::kStaged);
  EXPECT_EQ(on_gpus(Tune::parse("all:fallback,allreduce:kernel", "test"), kAll, 1), Algorithm::kKernel);
  // "table" leaves the choice to loom.
  const Tune table = Tune::parse("all:fallback,bcast:table", "test");
  EXPECT_EQ(on_gpus(table, kBcast, 1), Algorithm::kKernel);
  EXPECT_FALSE(table.has_rule_on_devices(kBcast, 1));
  EXPECT_EQ(on_gpus(table, kAll, 1), Algorithm::kStaged);
}

TEST(Tune, TellsWhichAlgorithmsOnGpusSomeCallMayUse) {
  const auto may = [](const char* text, Algorithm algorithm) {
    return Tune::parse(text, "test").may_use_on_devices(algorithm);
  };
  EXPECT_TRUE(may("", Algorithm::kKernel));
  EXPECT_TRUE(may("", Algorithm::kZeroCopy));
  EXPECT_FALSE(may("all:staged", Algorithm::kKernel));
  EXPECT_FALSE(may("all:kernel,all:fallback", Algorithm::kKernel));
  EXPECT_TRUE(may("allreduce:staged", Algorithm::kKernel));
  EXPECT_TRUE(may("all:staged,bcast:1m-2m:kernel", Algorithm::kKernel));
  EXPECT_FALSE(may("all:staged,bcast:1m-2m:kernel,bcast:staged", Algorithm::kKernel));
  EXPECT_FALSE(may("all:zero_copy", Algorithm::kKernel));
  EXPECT_TRUE(may("all:zero_copy", Algorithm::kZeroCopy));
  EXPECT_TRUE(may("all:kernel", Algorithm::kZeroCopy));  // alltoall
  EXPECT_FALSE(may("all:kernel,all:zero_copy", Algorithm::kKernel));
  // What cannot be used at all leaves calls to the other one, if the rules do.
  EXPECT_TRUE(Tune::parse("all:zero_copy", "test").may_use_on_devices(Algorithm::kKernel, true, false));
  EXPECT_TRUE(Tune::parse("allreduce:kernel", "test").may_use_on_devices(Algorithm::kZeroCopy, false));
  EXPECT_FALSE(
      Tune::parse("all:staged,allreduce:kernel", "test").may_use_on_devices(Algorithm::kZeroCopy, false));
}

}  // namespace
}  // namespace loom
