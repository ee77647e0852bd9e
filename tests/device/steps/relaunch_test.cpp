// Step code that leaves and is launched again, by turns that are drawn from a seed: rings in any order, trees
// of any shape, channels of any weights, blocks of any lengths.
#include "tests/device/steps/turns.hpp"

#include "tests/device/steps/step_calls.hpp"

namespace loom::device::steps {
namespace {

/// How often kernels were launched. The result is right.
unsigned check_by_turns(HostWorld& world, const Call& call, Residence residence, std::uint64_t seed) {
  SCOPED_TRACE(about(call) << ", seed " << seed);
  Buffers<int> buffers(call);
  const unsigned launches = perform_by_turns<Sum, int>(world, call, buffers.in, buffers.out, residence, seed);
  EXPECT_GT(launches, 0U) << "no end";
  buffers.check();
  return launches;
}

Call call_of(const Way& way, int size, std::size_t count, bool in_place, std::mt19937_64& random) {
  Call call{way.algorithm,
            way.protocol,
            size,
            static_cast<int>(random() % static_cast<unsigned>(size)),
            count,
            sizeof(int),
            find_reduce(Op::kSum, Type::kInt32),
            in_place};
  if ((call.has_blocks() || call.exchanges()) && random() % 2 == 0)  // the v forms
    call.counts = random_counts(random, call, count);
  call.slice_bytes = random_slice(random);
  return call;
}

/// Every way in a world of random channels; `calls` in a row, so that counters go on.
unsigned check_every_way(int size, unsigned patience, Residence residence, std::uint64_t seed, int calls) {
  std::mt19937_64 random(seed);
  const int channels = 1 + static_cast<int>(random() % 3);
  HostWorld world(size, 1, small_form(128 * (1 + random() % 3), 2 + random() % 3),
                  random_channels(random, size, channels));
  world.be_patient(patience);
  unsigned launches = 0;
  for (const Way& way : every_way(size))
    for (int i = 0; i < calls; ++i) {
      const std::size_t count = random() % (random() % 3 == 0 ? 20 : 500);
      const Call call = call_of(way, size, count, random() % 2 == 0, random);
      launches += check_by_turns(world, call, residence, random());
      if (::testing::Test::HasFatalFailure()) return launches;
    }
  return launches;
}

/// One thread alone: the thread sanitizer has nothing to find, and takes long to change stacks.
class Relaunches : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "skipped: steps_test's other tests have threads";
#endif
  }
};

TEST_F(Relaunches, AreNotNeededWhereKernelsArePatient) {
  for (int size = 2; size <= 17; ++size) {
    SCOPED_TRACE(size);
    check_every_way(size, 0, Residence::kAll, static_cast<unsigned>(size), 1);
  }
}

TEST_F(Relaunches, GoOnWhereKernelsHaveLeft) {
  for (const int size : {2, 3, 4, 7, 12})
    for (const unsigned patience : {1U, 3U})
      EXPECT_GT(
          check_every_way(size, patience, Residence::kAll, 100 * patience + static_cast<unsigned>(size), 2),
          200U);
}

/// Two ranks that share a GPU where only one kernel runs at a time; streams that are served in any order.
TEST_F(Relaunches, BringKernelsToTheirEndThatNeverRunTogether) {
  for (const int size : {2, 3, 5, 9})
    EXPECT_GT(check_every_way(size, 2, Residence::kOne, 1000 + static_cast<unsigned>(size), 2), 200U);
}

}  // namespace
}  // namespace loom::device::steps
