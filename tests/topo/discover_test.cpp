#include "topo/discover.hpp"

#include <gtest/gtest.h>
#include <sched.h>

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

}  // namespace
}  // namespace loom::topo
