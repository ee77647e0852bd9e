#include "tests/virtual_gpu/machine/machine.hpp"

#include <gmock/gmock.h>

#include "tests/virtual_gpu/machine/machine_cases.hpp"

namespace virtual_gpu::machine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kGen4 = 16 * 16 / 8. * 128 / 130, kGen5 = 2 * kGen4;

std::vector<std::string> way(const Machine& machine, Place from, Place to) {
  std::vector<std::string> nodes;
  for (const std::size_t link : machine.route(from, to).links) {
    if (nodes.empty()) nodes.push_back(machine.links()[link].from);
    nodes.push_back(machine.links()[link].to);
  }
  return nodes;
}

TEST(Machine, TakesGpusFromTheFile) {
  const Machine machine = carried("pcie-2socket.xml");
  ASSERT_EQ(machine.gpus().size(), 8);
  ASSERT_EQ(machine.sockets().size(), 2);
  const Gpu& gpu = machine.gpus()[5];
  EXPECT_EQ(gpu.bus_id.to_string(), "0000:82:00.0");
  EXPECT_EQ(gpu.name, "NVIDIA L40S (virtual)");
  EXPECT_EQ(gpu.capability, 89);
  EXPECT_EQ(gpu.multiprocessors, 142);
  EXPECT_EQ(gpu.memory_bytes, 48ull << 30);
  EXPECT_EQ(gpu.socket, 1);
  EXPECT_EQ(gpu.device_id, 0x26b9);
}

TEST(Machine, HasTwoGpusOnPcieWithoutAFile) {
  const Machine machine = Machine::from_environment();
  ASSERT_EQ(machine.gpus().size(), 2);
  EXPECT_EQ(machine.peers(0, 1), Peers::kPcie);
  EXPECT_EQ(machine.peers(0, 0), Peers::kNone);
  EXPECT_THAT(way(machine, gpu(0), gpu(1)), ElementsAre("GPU 0", "CPU 0", "GPU 1"));
  EXPECT_DOUBLE_EQ(machine.route(gpu(0), gpu(1)).gbps, kGen5);
}

TEST(Machine, ReadsTheFileOfTheEnvironment) {
  const Environment file("VIRTUAL_GPU_MACHINE", LOOM_TEST_DATA "/dgxh100.xml");
  EXPECT_EQ(Machine::from_environment().gpus().size(), 8);
}

TEST(Machine, RefusesAHostThatIsNoNumber) {
  const Environment host("VIRTUAL_GPU_HOST", "1st");
  EXPECT_THROW(Machine::from_environment(), Error);
}

TEST(Machine, GivesGpusUuidsThatStayAndDifferBetweenHosts) {
  const std::string path = LOOM_TEST_DATA "/dgxh100.xml";
  const auto uuid = [&](std::size_t index, std::size_t host) {
    return to_string(Machine::from_file(path, host).gpus()[index].uuid);
  };
  EXPECT_EQ(uuid(0, 0), uuid(0, 0));
  EXPECT_NE(uuid(0, 0), uuid(1, 0));
  EXPECT_NE(uuid(0, 0), uuid(0, 1));
  EXPECT_THAT(uuid(0, 0),
              ::testing::MatchesRegex("GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
}

TEST(Routes, GoOverAMeshOfNvlinksWhereGpusAreJoined) {
  const Machine machine = carried("dgx1v.xml");
  EXPECT_THAT(way(machine, gpu(0), gpu(2)), ElementsAre("GPU 0", "GPU 2"));
  EXPECT_DOUBLE_EQ(machine.route(gpu(0), gpu(2)).gbps, 25);  // one link
  EXPECT_DOUBLE_EQ(machine.route(gpu(6), gpu(0)).gbps, 50);  // two, between sockets
  EXPECT_DOUBLE_EQ(machine.route(gpu(6), gpu(0)).latency_ns, 350);
  EXPECT_EQ(machine.peers(0, 6), Peers::kNvlink);
}

TEST(Routes, GoOverPcieAndSocketsWhereTheyAreNot) {
  const Machine machine = carried("dgx1v.xml");
  EXPECT_THAT(way(machine, gpu(0), gpu(5)),
              ElementsAre("GPU 0", "switch 0000:04:00.0", "CPU 0", "CPU 1", "switch 0000:83:00.0", "GPU 5"));
  EXPECT_DOUBLE_EQ(machine.route(gpu(0), gpu(5)).gbps, 6);  // between two Broadwell
  EXPECT_DOUBLE_EQ(machine.route(gpu(0), gpu(5)).latency_ns, 115 + 275 + 70 + 275 + 115);
  EXPECT_EQ(machine.peers(0, 5), Peers::kNoneBySocket);
}

TEST(Routes, GoThroughNvlinkSwitches) {
  const Machine a100 = carried("dgxa100.xml"), h100 = carried("dgxh100.xml");
  EXPECT_THAT(way(a100, gpu(1), gpu(6)), ElementsAre("GPU 1", "NVSwitch", "GPU 6"));
  EXPECT_DOUBLE_EQ(a100.route(gpu(1), gpu(6)).gbps, 12 * 25);
  EXPECT_DOUBLE_EQ(h100.route(gpu(1), gpu(6)).gbps, 18 * 25);
  EXPECT_DOUBLE_EQ(h100.route(gpu(1), gpu(6)).latency_ns, 2 * 225);
  EXPECT_EQ(h100.peers(1, 6), Peers::kNvlink);
}

TEST(Routes, GoThroughTheLowestSwitchOrSocketThatTwoGpusShare) {
  const Machine machine = carried("pcie-2socket.xml");
  EXPECT_THAT(way(machine, gpu(0), gpu(1)), ElementsAre("GPU 0", "switch 0000:0e:00.0", "GPU 1"));
  EXPECT_THAT(way(machine, gpu(0), gpu(2)),
              ElementsAre("GPU 0", "switch 0000:0e:00.0", "CPU 0", "switch 0000:2e:00.0", "GPU 2"));
  EXPECT_DOUBLE_EQ(machine.route(gpu(0), gpu(1)).gbps, kGen4);
  EXPECT_DOUBLE_EQ(machine.route(gpu(0), gpu(2)).gbps, kGen4);
  EXPECT_DOUBLE_EQ(machine.route(gpu(0), gpu(4)).gbps, 22);  // between two Sapphire Rapids
  EXPECT_EQ(machine.route(gpu(0), gpu(4)).links.size(), 5);
  EXPECT_EQ(machine.peers(0, 1), Peers::kPcie);
  EXPECT_EQ(machine.peers(0, 4), Peers::kPcie);
}

TEST(Routes, BeginAndEndInMemory) {
  const Machine machine = carried("dgxh100.xml");
  EXPECT_THAT(way(machine, gpu_memory(0), gpu(0)), ElementsAre("memory of GPU 0", "GPU 0"));
  EXPECT_THAT(way(machine, gpu_memory(0), gpu_memory(3)),
              ElementsAre("memory of GPU 0", "GPU 0", "NVSwitch", "GPU 3", "memory of GPU 3"));
  EXPECT_THAT(machine.route(gpu(0), gpu(0)).links, IsEmpty());
  EXPECT_DOUBLE_EQ(machine.route(gpu_memory(0), gpu(0)).gbps, 3350);
  EXPECT_DOUBLE_EQ(machine.route(gpu_memory(0), gpu_memory(3)).latency_ns, 270 + 2 * 225 + 270);
}

TEST(Routes, PassMemoryTwiceForACopyWithinIt) {
  const Machine machine = carried("dgxh100.xml");
  EXPECT_THAT(way(machine, gpu_memory(0), gpu_memory(0)),
              ElementsAre("memory of GPU 0", "GPU 0", "memory of GPU 0"));
  EXPECT_DOUBLE_EQ(machine.route(gpu_memory(0), gpu_memory(0)).gbps, 3350 / 2.);
}

TEST(Routes, LeadToTheMemoryOfEachSocket) {
  const Machine machine = carried("pcie-2socket.xml");
  EXPECT_THAT(way(machine, host_memory(0), gpu(0)),
              ElementsAre("memory of CPU 0", "CPU 0", "switch 0000:0e:00.0", "GPU 0"));
  EXPECT_THAT(way(machine, gpu(0), host_memory(1)),
              ElementsAre("GPU 0", "switch 0000:0e:00.0", "CPU 0", "CPU 1", "memory of CPU 1"));
  EXPECT_DOUBLE_EQ(machine.route(host_memory(0), gpu(0)).gbps, kGen4);
  EXPECT_DOUBLE_EQ(machine.route(gpu(0), host_memory(1)).gbps, 22);
}

TEST(Routes, TakeC2cToTheHostRatherThanPcie) {
  const Machine machine = carried("gh200.xml");
  EXPECT_THAT(way(machine, gpu_memory(0), host_memory(0)),
              ElementsAre("memory of GPU 0", "GPU 0", "CPU 0", "memory of CPU 0"));
  EXPECT_DOUBLE_EQ(machine.route(gpu(0), host_memory(0)).gbps, 447.12);
}

TEST(Routes, OfPlacesThatAreNotThereThrow) {
  const Machine machine = carried("gh200.xml");
  EXPECT_THROW(machine.route(gpu(1), gpu(0)), std::out_of_range);
  EXPECT_THROW(machine.route(gpu(0), host_memory(1)), std::out_of_range);
}

TEST(PcieRates, FollowFromGenerationAndWidth) {
  EXPECT_DOUBLE_EQ(pcie_gbps("2.5 GT/s PCIe", 16), 4);
  EXPECT_DOUBLE_EQ(pcie_gbps("5 GT/s", 8), 4);
  EXPECT_NEAR(pcie_gbps("8.0 GT/s PCIe", 16), 15.754, 0.001);
  EXPECT_NEAR(pcie_gbps("16 GT/s", 8), 15.754, 0.001);
  EXPECT_DOUBLE_EQ(pcie_gbps("64.0 GT/s PCIe", 16), 118);
  EXPECT_NEAR(pcie_gbps("", 0), 15.754, 0.001);
}

TEST(Processors, AreKnownInBothWaysOfWritingTheirFamily) {
  const Processor rome{"x86_64", "AuthenticAMD", 143, 49}, also_rome{"x86_64", "AuthenticAMD", 23, 49},
      genoa{"x86_64", "AuthenticAMD", 25, 17}, also_genoa{"x86_64", "AuthenticAMD", 175, 17};
  EXPECT_DOUBLE_EQ(host_memory_gbps(rome), 204.8);
  EXPECT_DOUBLE_EQ(host_memory_gbps(also_rome), 204.8);
  EXPECT_DOUBLE_EQ(host_memory_gbps(genoa), 460.8);
  EXPECT_DOUBLE_EQ(host_memory_gbps(also_genoa), 460.8);
}

TEST(BusIds, AreReadInAllFormsInUse) {
  EXPECT_EQ(BusId::parse("0009:01:00.0"), (BusId{9, 1, 0, 0}));
  EXPECT_EQ(BusId::parse("00000000:1A:1F.7"), (BusId{0, 0x1a, 0x1f, 7}));
  EXPECT_EQ(BusId::parse("1a:00.0"), (BusId{0, 0x1a, 0, 0}));
  EXPECT_EQ(BusId::parse("0000:1a:00"), (BusId{0, 0x1a, 0, 0}));
  for (const char* wrong :
       {"", "0000:1a", "0000:1a:00.", "0000:1a:00.0x", "0000:1a1:00.0", "x:1a:00.0", "ffffffff:ff:ff.0"})
    EXPECT_FALSE(BusId::parse(wrong)) << wrong;
}

class VisibleGpus : public ::testing::Test {
 protected:
  std::vector<std::size_t> with(const std::string& value) const {
    return visible_gpus(machine_.gpus(), value.c_str());
  }
  std::string uuid(std::size_t index) const { return to_string(machine_.gpus()[index].uuid); }
  Machine machine_ = carried("dgxh100.xml");
};

TEST_F(VisibleGpus, AreAllWhereNothingIsSaidAndNoneWhereNothingIsNamed) {
  EXPECT_THAT(visible_gpus(machine_.gpus(), nullptr), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(with(""), IsEmpty());
  EXPECT_THAT(with("-1"), IsEmpty());
  EXPECT_THAT(with("NoDevFiles"), IsEmpty());
}
TEST_F(VisibleGpus, ComeInTheOrderOfTheList) {
  EXPECT_THAT(with("2,1"), ElementsAre(2, 1));
  EXPECT_THAT(with(" 7"), ElementsAre(7));
}
TEST_F(VisibleGpus, EndBeforeTheFirstEntryThatIsNotValid) {
  EXPECT_THAT(with("0,2,-1,1"), ElementsAre(0, 2));
  EXPECT_THAT(with("0,8,1"), ElementsAre(0));
  EXPECT_THAT(with("3,,1"), ElementsAre(3));
}
TEST_F(VisibleGpus, AreNamedByUuidOrItsBeginning) {
  EXPECT_THAT(with(uuid(3) + "," + uuid(1)), ElementsAre(3, 1));
  EXPECT_THAT(with(uuid(5).substr(0, 12)), ElementsAre(5));
  EXPECT_THAT(with(uuid(5) + "0"), IsEmpty());
  EXPECT_THAT(with("GPU-"), IsEmpty());  // the beginning of them all
}
TEST_F(VisibleGpus, AreNamedInOneFormOnly) {
  EXPECT_THAT(with(uuid(3) + ",1"), ElementsAre(3));
  EXPECT_THAT(with("1," + uuid(3)), ElementsAre(1));
}
TEST_F(VisibleGpus, AreNoneWhereOneIsNamedTwice) {
  EXPECT_THAT(with("0,1,0"), IsEmpty());
  EXPECT_THAT(with(uuid(3) + "," + uuid(3).substr(0, 12)), IsEmpty());
}

}  // namespace
}  // namespace virtual_gpu::machine
