// A set-up in which one rank has no memory, at each of its allocations in turn: no rank waits for it, and all
// come to the same outcome. Replaces operator new, so it is a program of its own. Ranks are threads.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <ostream>

#include "allreduce_cases.hpp"

namespace {

// Of this thread: allocations until one fails, and then the rest until memory is back. 0: none fails.
thread_local std::size_t allocations_left = 0;
thread_local bool fails_on = false, has_failed = false;

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (allocations_left > 0 && --allocations_left == 0) {
    has_failed = true;
    if (fails_on) allocations_left = 1;
    throw std::bad_alloc();
  }
  const std::size_t whole = (std::max(bytes, std::size_t{1}) + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, whole);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
// Where one of these is inlined and operator new is not, GCC sees memory of another function freed.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace loom::test {
namespace {

/// What of a program's first calls a rank has come through.
enum class Came { kNowhere, kToACommunicator, kThroughACall };

/// While it lives the k-th allocation of this thread fails; `on`: and all after it.
struct Failing {
  Failing(std::size_t k, bool on) {
    has_failed = false;
    fails_on = on;
    allocations_left = k;
  }
  ~Failing() { allocations_left = 0; }
};

struct Program {
  const char* name;
  bool two_hosts;
  device::Collective collective;
  const char* tune = kHierAtOnce;
  friend void PrintTo(const Program& program, std::ostream* to) { *to << program.name; }
};
class OutOfMemory : public ::testing::TestWithParam<Program> {};

/// What earlier communicators have learned and left is not used.
void forget_group(Rank& self) {
  const auto members = self.all_gather(self.process().number());
  self.process().groups().keep(members, std::make_shared<Group>());
}

Came come_about(Rank& self, const device::Call& call) {
  const auto communicator = self.connect();
  if (!communicator) return Came::kNowhere;
  try {
    return communicator->perform(call) ? Came::kThroughACall : Came::kToACommunicator;
  } catch (const std::exception&) {  // the set-up is over: a call has failed, which the others see
    return Came::kThroughACall;
  }
}

TEST_P(OutOfMemory, OfOneRankAtAnyPointOfTheSetUpEndsItOnAll) {
  Job job{.ranks = GetParam().two_hosts ? 4 : 3};
  job.parameters.tune = GetParam().tune;
  if (GetParam().two_hosts) job.host = [](int rank) { return "host" + std::to_string(rank / 2); };
  std::size_t failures = 0;
  job.run([&](Rank& self) {
    std::vector<float> in(200'000), out(in.size());
    device::Call call{.collective = GetParam().collective,
                      .in = bytes_of(in),
                      .out = bytes_of(out),
                      .count = in.size() / static_cast<std::size_t>(self.size()),
                      .type = device::Type::kFloat,
                      .op = device::Op::kSum};
    if (call.collective == device::Collective::kBarrier) call = {};
    for (const int unlucky : {0, self.size() - 1})
      for (const bool on : {false, true}) {
        // A rank that has no memory at all any more cannot send that it gives up: between hosts its
        // neighbours find that out by themselves, after kNetworkTrialSeconds.
        if (on && GetParam().two_hosts) continue;
        bool failed = true;
        for (std::size_t k = 1; failed; ++k) {
          forget_group(self);
          Came mine{};
          {
            const Failing failing(self.rank() == unlucky ? k : 0, on);
            mine = come_about(self, call);
          }
          failed = self.all_gather<int>(has_failed)[static_cast<std::size_t>(unlucky)] != 0;
          const std::vector<Came> all = self.all_gather(mine);
          ASSERT_THAT(all, ::testing::Each(mine)) << "allocation " << k << (on ? " and all after it" : "");
          if (self.rank() == 0) failures += failed;
          EXPECT_TRUE(failed || mine == Came::kThroughACall);
        }
      }
  });
  EXPECT_GT(failures, 200U);
}

INSTANTIATE_TEST_SUITE_P(Programs, OutOfMemory,
                         ::testing::Values(Program{"OneHost", false, device::Collective::kBarrier},
                                           Program{"TwoHosts", true, device::Collective::kBarrier},
                                           Program{"TreesOfTwoHosts", true, device::Collective::kBroadcast,
                                                   "all:dbt,allreduce:0-1:hier"},
                                           Program{"AllToAllOfTwoHosts", true,
                                                   device::Collective::kAllToAll}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace loom::test
