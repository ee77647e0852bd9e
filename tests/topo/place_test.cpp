#include "topo/place.hpp"

#include <gtest/gtest.h>

namespace loom::topo {
namespace {

constexpr HostId kA{1, 1}, kB{2, 2};

const GpuInfo& gpu(const Host& host, std::size_t i) {
  return host.system.node(host.system.gpus()[i]).gpu();
}

int numa_of(const Host& host, std::size_t i) {
  return host.system.node(host.system.node(host.system.gpus()[i]).parent).cpu().numa_id;
}

TEST(Hosts, AreGroupedInOrderOfTheirLowestRank) {
  const std::vector<Place> places = {{kB, 0, 0, 2}, {kA, 0, 0, 2}, {kB, 1, 4, 2}, {kA, 0, 2, 2}};
  const std::vector<Host> hosts = hosts_of(places);
  ASSERT_EQ(hosts.size(), 2);
  EXPECT_EQ(hosts[0].id, kB);
  ASSERT_EQ(hosts[0].system.gpus().size(), 2);
  EXPECT_EQ(gpu(hosts[0], 1).rank, 2);
  EXPECT_EQ(numa_of(hosts[0], 1), 1);
  EXPECT_EQ(gpu(hosts[1], 0).rank, 1);
  EXPECT_EQ(gpu(hosts[1], 1).first_cpu, 2);
}

TEST(Host, IsTheSameAloneAndAmongAll) {
  const std::vector<Place> places = {{kB, 0, 0, 2}, {kA, 0, 0, 2}, {kB, 1, 4, 2}, {kA, 0, 2, 2}};
  for (const int rank : {0, 1, 2, 3}) {
    const Host host = host_of(places, rank);
    EXPECT_EQ(host.id, places[static_cast<std::size_t>(rank)].host);
    EXPECT_EQ(host.system, hosts_of(places)[static_cast<std::size_t>(rank % 2)].system);
  }
}

TEST(Host, IsOversubscribedWhenRanksOutnumberTheCpusOfTheirBinding) {
  const auto oversubscribed_by = [](const std::vector<Place>& places) {
    return oversubscribed(hosts_of(places).at(0).system);
  };
  EXPECT_FALSE(oversubscribed_by({{kA, 0, 0, 2}, {kA, 0, 0, 2}}));  // unbound, two CPUs
  EXPECT_TRUE(oversubscribed_by({{kA, 0, 0, 2}, {kA, 0, 0, 2}, {kA, 0, 0, 2}}));
  EXPECT_FALSE(oversubscribed_by({{kA, 0, 0, 1}, {kA, 0, 1, 1}}));  // one core each
  EXPECT_TRUE(oversubscribed_by({{kA, 0, 0, 1}, {kA, 0, 0, 1}}));   // the same core
}

}  // namespace
}  // namespace loom::topo
