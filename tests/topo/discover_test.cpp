#include "topo/discover.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>

namespace loom::topo {
namespace {

TEST(HostId, DiffersByHostNameAndIsStable) {
  EXPECT_EQ(host_id("a"), host_id("a"));
  EXPECT_NE(host_id("a"), host_id("b"));
}

TEST(Machine, PlacesTheThreadWhereItIsBound) {
  const Machine machine;
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before)) last = cpu;
  EXPECT_EQ(machine.place_of_this_thread({}).cpu_count, CPU_COUNT(&before));

  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const Place place = machine.place_of_this_thread({});
  EXPECT_EQ(place.first_cpu, last);
  EXPECT_EQ(place.cpu_count, 1);
  EXPECT_GE(place.numa_node, 0);
  sched_setaffinity(0, sizeof(before), &before);
}

/// Of a thread that is bound, on such a machine.
int first_of_cache_on(const char* machine) {
  setenv("HWLOC_SYNTHETIC", machine, 1);
  setenv("HWLOC_THISSYSTEM", "1", 1);  // that it asks this machine for the binding
  const Machine synthetic;
  unsetenv("HWLOC_SYNTHETIC");
  unsetenv("HWLOC_THISSYSTEM");
  return synthetic.place_of_this_thread({}).first_of_cache;
}

TEST(Machine, SaysWhichRanksShareALastLevelCache) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(1, &one);
  if (sched_setaffinity(0, sizeof(one), &one) != 0) GTEST_SKIP() << "this machine has no CPU 1";
  EXPECT_EQ(first_of_cache_on("l3:2 l2:2 core:1 pu:1"), 0);
  EXPECT_EQ(first_of_cache_on("l3:4 core:1 pu:1"), 1);
  EXPECT_EQ(first_of_cache_on("l2:1 core:4 pu:1"), 0) << "the last one there is";
  EXPECT_EQ(first_of_cache_on("core:4 pu:1"), 1) << "none is known";
  CPU_SET(0, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(first_of_cache_on("l3:2 l2:2 core:1 pu:1"), 0);
  EXPECT_EQ(first_of_cache_on("l3:4 core:1 pu:1"), Place::kSeveralCaches);
  EXPECT_EQ(first_of_cache_on("core:4 pu:1"), Place::kSeveralCaches);
  sched_setaffinity(0, sizeof(before), &before);
}

/// Which NUMA node the thread is bound to on a machine of so many, with a CPU each; bound to CPU 0, or not.
std::optional<int> numa_node_on(const char* machine, bool bound) {
  setenv("HWLOC_SYNTHETIC", machine, 1);
  setenv("HWLOC_THISSYSTEM", "1", 1);  // that it asks this machine for the binding
  const Machine synthetic;
  unsetenv("HWLOC_SYNTHETIC");
  unsetenv("HWLOC_THISSYSTEM");
  cpu_set_t before, one;
  EXPECT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  if (bound) sched_setaffinity(0, sizeof(one), &one);
  const std::optional<int> node = synthetic.numa_node_of_this_thread();
  sched_setaffinity(0, sizeof(before), &before);
  return node;
}

TEST(Machine, KnowsTheNumaNodeOfAThreadThatIsBoundToOneOfSeveral) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  if (!CPU_ISSET(0, &allowed) || !CPU_ISSET(1, &allowed)) GTEST_SKIP() << "skipped: needs CPUs 0 and 1";
  EXPECT_EQ(numa_node_on("numa:2 pu:1", true), 0);
  EXPECT_EQ(numa_node_on("numa:2(indexes=1,0) pu:1", true), 1);
  EXPECT_EQ(numa_node_on("numa:2 pu:1", false), std::nullopt);
  EXPECT_EQ(numa_node_on("numa:1 pu:2", true), std::nullopt);
}

}  // namespace
}  // namespace loom::topo
