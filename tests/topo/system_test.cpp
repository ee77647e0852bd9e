#include "topo/system.hpp"

#include <gtest/gtest.h>

namespace loom::topo {
namespace {

constexpr HostId kA{1, 1}, kB{2, 2};

TEST(Hosts, AreGroupedInOrderOfTheirLowestRank) {
  const std::vector<Place> places = {{kB, 0, 0, 2}, {kA, 0, 0, 2}, {kB, 1, 4, 2}, {kA, 0, 2, 2}};
  const std::vector<System> hosts = hosts_of(places);
  ASSERT_EQ(hosts.size(), 2);
  EXPECT_EQ(hosts[0].host, kB);
  ASSERT_EQ(hosts[0].gpus.size(), 2);
  EXPECT_EQ(hosts[0].gpus[1].rank, 2);
  EXPECT_EQ(hosts[0].gpus[1].numa_node, 1);
  EXPECT_EQ(hosts[1].gpus[0].rank, 1);
  EXPECT_EQ(hosts[1].gpus[1].first_cpu, 2);
}

TEST(System, IsOversubscribedWhenRanksOutnumberTheCpusOfTheirBinding) {
  const auto system = [](std::vector<Gpu> gpus) { return System{kA, std::move(gpus)}; };
  EXPECT_FALSE(system({{0, 0, 0, 2}, {1, 0, 0, 2}}).oversubscribed());  // unbound, two CPUs
  EXPECT_TRUE(system({{0, 0, 0, 2}, {1, 0, 0, 2}, {2, 0, 0, 2}}).oversubscribed());
  EXPECT_FALSE(system({{0, 0, 0, 1}, {1, 0, 1, 1}}).oversubscribed());  // one core each
  EXPECT_TRUE(system({{0, 0, 0, 1}, {1, 0, 0, 1}}).oversubscribed());   // the same core
}

}  // namespace
}  // namespace loom::topo
