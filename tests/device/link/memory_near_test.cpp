#include "device/link/memory_near.hpp"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "device/link/shared_memory.hpp"

namespace loom::device {
namespace {

struct Policy {
  int mode = -1;
  std::array<unsigned long, 16> nodes{};
  friend bool operator==(const Policy&, const Policy&) = default;

  static Policy now() {
    Policy policy;
    EXPECT_EQ(::syscall(SYS_get_mempolicy, &policy.mode, policy.nodes.data(), 1024, nullptr, 0), 0);
    return policy;
  }
  bool set() const { return ::syscall(SYS_set_mempolicy, mode, nodes.data(), 1024) == 0; }
};

int node_of(const void* address) {
  int node = -1;
  EXPECT_EQ(::syscall(SYS_get_mempolicy, &node, nullptr, 0, address, MPOL_F_NODE | MPOL_F_ADDR), 0);
  return node;
}

/// The highest of the first NUMA nodes that this thread may ask memory of; -1 where it may not choose.
int farthest_node() {
  int last = -1;
  for (int node = 0; node < 64; ++node)
    if (Policy{MPOL_PREFERRED, {1UL << node}}.set()) last = node;
  Policy{MPOL_DEFAULT}.set();
  return last;
}

class MemoryNearNode : public ::testing::Test {
 protected:
  void SetUp() override {
    if (node_ < 0) GTEST_SKIP() << "skipped: this process may not choose where its memory lies";
  }
  void TearDown() override { Policy{MPOL_DEFAULT}.set(); }

  const int node_ = farthest_node();
};

TEST_F(MemoryNearNode, IsWhereSegmentsLie) {
  const MemoryNear near(node_);
  EXPECT_EQ(Policy::now(), (Policy{MPOL_PREFERRED, {1UL << node_}}));
  const Segment segment = Segment::create(1 << 20);
  EXPECT_EQ(node_of(segment.data()), node_);
  EXPECT_EQ(node_of(segment.data() + (1 << 20) - 1), node_);
}

TEST_F(MemoryNearNode, LeavesThePolicyOfTheThreadAsItWas) {
  const unsigned long mask = 1UL << node_;
  for (const Policy& before :
       {Policy{MPOL_DEFAULT}, Policy{MPOL_BIND, {mask}}, Policy{MPOL_INTERLEAVE, {mask}},
        Policy{MPOL_INTERLEAVE | MPOL_F_STATIC_NODES, {mask}}, Policy{MPOL_PREFERRED, {mask}}}) {
    ASSERT_TRUE(before.set());
    {
      const MemoryNear near(node_);
      EXPECT_EQ(Policy::now().mode, MPOL_PREFERRED);
    }
    EXPECT_EQ(Policy::now(), before);
  }
}

TEST_F(MemoryNearNode, ChangesNothingWithoutANodeThatThereIs) {
  const Policy before{MPOL_INTERLEAVE, {1UL << node_}};
  ASSERT_TRUE(before.set());
  for (const std::optional<int> node : {std::optional<int>{}, {-1}, {1000}, {100'000}}) {
    const MemoryNear near(node);
    EXPECT_EQ(Policy::now(), before);
  }
  EXPECT_EQ(Policy::now(), before);
}

}  // namespace
}  // namespace loom::device
