#include "tests/virtual_gpu/machine/traffic.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "tests/virtual_gpu/machine/machine_cases.hpp"

namespace virtual_gpu::machine {
namespace {

using ::testing::HasSubstr;

std::uint64_t on_link(const TrafficReport& report, const Machine& machine, const std::string& from,
                      const std::string& to) {
  for (const TrafficReport::Row& row : report.rows)
    if (machine.links()[row.link].from == from && machine.links()[row.link].to == to) return row.bytes;
  return 0;
}

TEST(Traffic, CountsOnEachLinkOfARouteInTheDirectionOfTheData) {
  const Machine machine = carried("pcie-2socket.xml");
  const SharedState state(machine, "");
  Traffic traffic(machine, state);
  traffic.add(host_memory(0), gpu(0), 1000);  // a GPU reads the host's memory
  traffic.add(gpu(1), host_memory(0), 10);    // another one writes it
  const TrafficReport report = traffic.report();
  EXPECT_EQ(on_link(report, machine, "memory of CPU 0", "CPU 0"), 1000);
  EXPECT_EQ(on_link(report, machine, "CPU 0", "switch 0000:0e:00.0"), 1000);
  EXPECT_EQ(on_link(report, machine, "switch 0000:0e:00.0", "GPU 0"), 1000);
  EXPECT_EQ(on_link(report, machine, "GPU 0", "switch 0000:0e:00.0"), 0);
  EXPECT_EQ(on_link(report, machine, "switch 0000:0e:00.0", "CPU 0"), 10);
  EXPECT_EQ(on_link(report, machine, "GPU 1", "switch 0000:0e:00.0"), 10);
  EXPECT_EQ(report.rows.size(), 6);
  EXPECT_EQ(report.flows.size(), 2);
}

TEST(Traffic, TellsHowLongLinksNeed) {
  const Machine machine = carried("dgxh100.xml");
  const SharedState state(machine, "");
  Traffic traffic(machine, state);
  traffic.add(gpu(0), gpu(1), 450'000'000);  // 450 GB/s: 1 ms
  traffic.add(gpu(2), gpu(1), 450'000'000);
  const TrafficReport report = traffic.report();
  EXPECT_EQ(machine.links()[report.slowest.link].to, "GPU 1");
  EXPECT_EQ(report.slowest.bytes, 900'000'000);
  EXPECT_DOUBLE_EQ(report.slowest.us, 2000);
  EXPECT_THAT(to_string(report, machine), HasSubstr("the slowest link: NVSwitch to GPU 1, 2000.0 us\n"));
}

TEST(Traffic, SharesMemoryBetweenItsDirections) {
  const Machine machine = carried("dgxh100.xml");
  const SharedState state(machine, "");
  Traffic traffic(machine, state);
  traffic.add(gpu_memory(0), gpu(0), 3'350'000);
  traffic.add(gpu(0), gpu_memory(0), 6'700'000);
  ASSERT_EQ(traffic.report().rows.size(), 2);
  for (const TrafficReport::Row& row : traffic.report().rows) EXPECT_DOUBLE_EQ(row.us, 3);
}

TEST(Traffic, OfNothingHasNoSlowestLink) {
  const Machine machine = carried("gh200.xml");
  const SharedState state(machine, "");
  EXPECT_THAT(to_string(Traffic(machine, state).report(), machine), HasSubstr("nothing has moved"));
}

/// Each rank sends 2 * (n - 1) parts of n to the next one.
void ring_allreduce(Traffic& traffic, std::size_t ranks, std::uint64_t bytes) {
  for (std::size_t step = 0; step < 2 * (ranks - 1); ++step)
    for (std::size_t rank = 0; rank < ranks; ++rank)
      traffic.add(gpu(rank), gpu((rank + 1) % ranks), bytes / ranks);
}

TEST(RingAllReduce, OnADgxKeepsEachLinkToTheSwitchBusyForSevenFourths) {
  const Machine machine = carried("dgxh100.xml");
  const SharedState state(machine, "");
  Traffic traffic(machine, state);
  ring_allreduce(traffic, 8, 800'000'000);
  const TrafficReport report = traffic.report();
  ASSERT_EQ(report.rows.size(), 16);  // to the switch and from it
  for (const TrafficReport::Row& row : report.rows) EXPECT_EQ(row.bytes, 1'400'000'000);
  EXPECT_DOUBLE_EQ(report.slowest.us, 1'400'000 / 450.);  // 3.1 ms: 257 GB/s of message
}

TEST(RingAllReduce, OverTwoSocketsWaitsForTheLinkBetweenThem) {
  const Machine machine = carried("pcie-2socket.xml");
  const SharedState state(machine, "");
  Traffic traffic(machine, state);
  ring_allreduce(traffic, 8, 800'000'000);
  const TrafficReport report = traffic.report();
  EXPECT_EQ(on_link(report, machine, "CPU 0", "CPU 1"), 1'400'000'000);
  EXPECT_EQ(on_link(report, machine, "CPU 1", "CPU 0"), 1'400'000'000);
  EXPECT_EQ(on_link(report, machine, "GPU 0", "switch 0000:0e:00.0"), 1'400'000'000);
  // GPU 0 to 1 below the switch; from it up go 1 to 2, down 7 to 0.
  EXPECT_EQ(on_link(report, machine, "switch 0000:0e:00.0", "CPU 0"), 1'400'000'000);
  EXPECT_EQ(machine.links()[report.slowest.link].kind, Link::Kind::kSocket);
  EXPECT_DOUBLE_EQ(report.slowest.us, 1'400'000 / 22.);
}

/// Runs in a process of its own, and says whether it ended well.
bool in_a_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(SharedTraffic, IsThatOfAllThreadsAndProcesses) {
  const Machine machine = carried("dgxh100.xml");
  const Folder folder;
  const SharedState state(machine, folder.path());
  const auto add_some = [&] {
    const SharedState mine(machine, folder.path());
    Traffic traffic(machine, mine);
    const auto work = [&] {
      for (int i = 0; i < 1000; ++i) traffic.add(gpu(0), gpu(1), 3);
    };
    std::thread other(work);
    work();
    other.join();
  };
  ASSERT_TRUE(in_a_child(add_some));
  ASSERT_TRUE(in_a_child(add_some));
  EXPECT_EQ(Traffic(machine, state).bytes(gpu(0), gpu(1)), 12'000);
}

TEST(SharedTraffic, OfAnotherMachineIsRefused) {
  const Folder folder;
  const Machine machine = carried("dgxh100.xml");
  const SharedState state(machine, folder.path());
  EXPECT_THROW(SharedState(carried("dgx1v.xml"), folder.path()), Error);
  EXPECT_THROW(SharedState(carried("gh200.xml"), folder.path()), Error);
  EXPECT_THROW(SharedState(machine, "/no/such/folder"), Error);
}

TEST(SharedTraffic, IsWrittenByTheLastProcessToLeave) {
  const Machine machine = carried("gh200.xml");
  const Folder folder;
  const Environment wanted("VIRTUAL_GPU_TRAFFIC", folder.path() + "/table");
  SharedState first(machine, folder.path()), last(machine, folder.path());
  Traffic(machine, first).add(gpu(0), host_memory(0), 44'712'000);
  leave(machine, first);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/table"));
  leave(machine, last);
  std::ostringstream table;
  table << std::ifstream(folder.path() + "/table").rdbuf();
  EXPECT_THAT(table.str(), HasSubstr("the slowest link: GPU 0 to CPU 0, 100.0 us\n"));
  EXPECT_FALSE(last.leave());
}

TEST(SharedTraffic, IsWrittenEvenWhereProcessesWereKilled) {
  const Machine machine = carried("gh200.xml");
  const Folder folder;
  SharedState state(machine, folder.path());
  EXPECT_FALSE(in_a_child([&] {
    const SharedState mine(machine, folder.path());
    const SharedState::Lock held(mine);
    ::raise(SIGKILL);
  }));
  const SharedState::Lock lock(state);
  EXPECT_TRUE(state.leave());
}

}  // namespace
}  // namespace virtual_gpu::machine
