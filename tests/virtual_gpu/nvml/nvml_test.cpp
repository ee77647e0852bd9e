#include <dlfcn.h>
#include <gmock/gmock.h>

#include <fstream>

#include "tests/virtual_gpu/machine/machine_cases.hpp"
#include "tests/virtual_gpu/nvml/nvml_interface.hpp"

namespace virtual_gpu::nvml {
namespace {

/// The library as a program finds it, for one machine.
class Nvml : public ::testing::Test {
 protected:
  Nvml() { EXPECT_NE(library_, nullptr) << ::dlerror(); }
  template <class Function, class... Arguments>
  auto call(const char* name, Arguments... arguments) const {
    auto* const function = reinterpret_cast<Function*>(::dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(name);
    return function(arguments...);
  }
  ~Nvml() override {
    while (call<Result()>("nvmlShutdown") == kSuccess) {
    }
  }
  void start(const std::string& file) {
    const machine::Environment named("VIRTUAL_GPU_MACHINE", LOOM_TEST_DATA "/" + file);
    ASSERT_EQ(call<Result()>("nvmlInit_v2"), kSuccess);
  }
  Device gpu(unsigned index) const {
    Device device = nullptr;
    EXPECT_EQ((call<Result(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2", index, &device)), kSuccess);
    return device;
  }
  /// Of functions that take a GPU and a link; -1 - result where they fail.
  template <class Number = unsigned>
  int of_link(const char* function, unsigned index, unsigned link) const {
    Number number{};
    const Result result = call<Result(Device, unsigned, Number*)>(function, gpu(index), link, &number);
    return result == kSuccess ? static_cast<int>(number) : -1 - result;
  }
  int capability(unsigned link, NvLinkCapability which) const {
    unsigned number = 0;
    const Result result = call<Result(Device, unsigned, int, unsigned*)>(
        "nvmlDeviceGetNvLinkCapability", gpu(0), link, static_cast<int>(which), &number);
    return result == kSuccess ? static_cast<int>(number) : -1 - result;
  }
  std::string far_bus_id(unsigned index, unsigned link) const {
    PciInfo info{};
    EXPECT_EQ((call<Result(Device, unsigned, PciInfo*)>("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu(index),
                                                        link, &info)),
              kSuccess);
    return info.bus_id;
  }
  int p2p(unsigned from, unsigned to, P2pIndex index) const {
    int status = -1;
    EXPECT_EQ((call<Result(Device, Device, int, int*)>("nvmlDeviceGetP2PStatus", gpu(from), gpu(to),
                                                       static_cast<int>(index), &status)),
              kSuccess);
    return status;
  }
  /// -1 - result where it fails.
  int field(unsigned index, unsigned id, unsigned scope = 0) const {
    FieldValue value{};
    value.field_id = id, value.scope_id = scope;
    EXPECT_EQ((call<Result(Device, int, FieldValue*)>("nvmlDeviceGetFieldValues", gpu(index), 1, &value)),
              kSuccess);
    return value.result == kSuccess ? static_cast<int>(value.value.as_unsigned) : -1 - value.result;
  }

 private:
  void* const library_ = ::dlopen(LOOM_VIRTUAL_NVML, RTLD_NOW);
};

constexpr int failed(Result result) {
  return -1 - result;
}

TEST_F(Nvml, AnswersNothingBeforeItIsInitialisedAndAfterTheLastShutdown) {
  unsigned count = 0;
  const auto count_gpus = [&] { return call<Result(unsigned*)>("nvmlDeviceGetCount_v2", &count); };
  EXPECT_EQ(count_gpus(), kUninitialized);
  EXPECT_EQ(call<Result()>("nvmlShutdown"), kUninitialized);
  EXPECT_STREQ((call<const char*(Result)>("nvmlErrorString", kUninitialized)), "Uninitialized");
  start("dgxh100.xml");
  start("dgxh100.xml");
  EXPECT_EQ(count_gpus(), kSuccess);
  EXPECT_EQ(count, 8);
  EXPECT_EQ(call<Result()>("nvmlShutdown"), kSuccess);
  EXPECT_EQ(count_gpus(), kSuccess);
  EXPECT_EQ(call<Result()>("nvmlShutdown"), kSuccess);
  EXPECT_EQ(count_gpus(), kUninitialized);
}

TEST_F(Nvml, CannotBeInitialisedWithAWrongFile) {
  const machine::Environment named("VIRTUAL_GPU_MACHINE", "/no/such/file");
  EXPECT_EQ(call<Result()>("nvmlInit_v2"), kDriverNotLoaded);
}

TEST_F(Nvml, FindsGpusByIndexBusIdAndUuid) {
  start("pcie-2socket.xml");
  Device device = nullptr;
  const auto by_bus_id = [&](const char* id) {
    return call<Result(const char*, Device*)>("nvmlDeviceGetHandleByPciBusId_v2", id, &device);
  };
  EXPECT_EQ(by_bus_id("00000000:82:00.0"), kSuccess);
  EXPECT_EQ(device, gpu(5));
  EXPECT_EQ(by_bus_id("0000:83:00.0"), kNotFound);
  EXPECT_EQ(by_bus_id(nullptr), kInvalidArgument);
  unsigned index = 0;
  EXPECT_EQ((call<Result(Device, unsigned*)>("nvmlDeviceGetIndex", gpu(5), &index)), kSuccess);
  EXPECT_EQ(index, 5);
  char uuid[96];
  EXPECT_EQ((call<Result(Device, char*, unsigned)>("nvmlDeviceGetUUID", gpu(3), uuid, 96u)), kSuccess);
  EXPECT_EQ(uuid, machine::to_string(machine::carried("pcie-2socket.xml").gpus()[3].uuid));
  EXPECT_EQ((call<Result(const char*, Device*)>("nvmlDeviceGetHandleByUUID", uuid, &device)), kSuccess);
  EXPECT_EQ(device, gpu(3));
  uuid[5] ^= 1;
  EXPECT_EQ((call<Result(const char*, Device*)>("nvmlDeviceGetHandleByUUID", uuid, &device)), kNotFound);
  EXPECT_EQ((call<Result(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2", 8u, &device)),
            kInvalidArgument);
}

TEST_F(Nvml, DescribesAGpu) {
  start("dgxh100.xml");
  char name[96];
  EXPECT_EQ((call<Result(Device, char*, unsigned)>("nvmlDeviceGetName", gpu(0), name, 96u)), kSuccess);
  EXPECT_STREQ(name, "NVIDIA H100 80GB HBM3 (virtual)");
  EXPECT_EQ((call<Result(Device, char*, unsigned)>("nvmlDeviceGetName", gpu(0), name, 31u)),
            kInsufficientSize);
  int major = 0, minor = 0;
  EXPECT_EQ((call<Result(Device, int*, int*)>("nvmlDeviceGetCudaComputeCapability", gpu(0), &major, &minor)),
            kSuccess);
  EXPECT_EQ(10 * major + minor, 90);
  PciInfo info{};
  EXPECT_EQ((call<Result(Device, PciInfo*)>("nvmlDeviceGetPciInfo_v3", gpu(7), &info)), kSuccess);
  EXPECT_STREQ(info.bus_id, "00000000:C2:00.0");
  EXPECT_STREQ(info.bus_id_legacy, "0000:C2:00.0");
  EXPECT_EQ(info.bus, 0xc2);
  EXPECT_EQ(info.device_id, 0x233010de);
  unsigned now = 1, next = 1;
  EXPECT_EQ((call<Result(Device, unsigned*, unsigned*)>("nvmlDeviceGetMigMode", gpu(0), &now, &next)),
            kSuccess);
  EXPECT_EQ(now + next, 0);
}

TEST_F(Nvml, RefusesWhatIsNoGpuAndNoPlaceForAnAnswer) {
  start("dgxh100.xml");
  unsigned number = 0;
  const auto index_of = [&](Device device, unsigned* out) {
    return call<Result(Device, unsigned*)>("nvmlDeviceGetIndex", device, out);
  };
  EXPECT_EQ(index_of(nullptr, &number), kInvalidArgument);
  EXPECT_EQ(index_of(&number, &number), kInvalidArgument);
  EXPECT_EQ(index_of(gpu(0), nullptr), kInvalidArgument);
  EXPECT_EQ((call<Result(Device, int, FieldValue*)>("nvmlDeviceGetFieldValues", gpu(0), 0, nullptr)),
            kInvalidArgument);
}

TEST_F(Nvml, TellsNvlinksOfAMesh) {
  start("dgx1v.xml");  // GPU 0: one link each to 07 and 0a, two to 0b and 89
  std::vector<std::string> far;
  for (unsigned link = 0; link < 6; ++link) {
    EXPECT_EQ(of_link("nvmlDeviceGetNvLinkState", 0, link), 1);
    EXPECT_EQ(of_link("nvmlDeviceGetNvLinkVersion", 0, link), 2);
    EXPECT_EQ(of_link<int>("nvmlDeviceGetNvLinkRemoteDeviceType", 0, link), kRemoteGpu);
    EXPECT_EQ(capability(link, NvLinkCapability::kPeers), 1);
    EXPECT_EQ(capability(link, NvLinkCapability::kHost), 0);
    far.push_back(far_bus_id(0, link).substr(9, 2));
  }
  EXPECT_THAT(far, ::testing::ElementsAre("07", "0A", "0B", "0B", "89", "89"));
  EXPECT_EQ(of_link("nvmlDeviceGetNvLinkState", 0, 6), failed(kInvalidArgument));
  EXPECT_EQ(capability(0, static_cast<NvLinkCapability>(6)), failed(kInvalidArgument));
  EXPECT_EQ(field(0, kFieldNvLinkCount), 6);
  EXPECT_EQ(field(0, kFieldNvLinkMbps), 25'000);
}

TEST_F(Nvml, TellsNvlinksToSwitches) {
  start("dgxh100.xml");
  for (unsigned link = 0; link < 18; ++link)
    EXPECT_EQ(of_link<int>("nvmlDeviceGetNvLinkRemoteDeviceType", 3, link), kRemoteSwitch);
  EXPECT_EQ(far_bus_id(3, 5), "00000000:04:00.0");  // after five to 03
  EXPECT_EQ(of_link("nvmlDeviceGetNvLinkVersion", 3, 0), 4);
}

TEST_F(Nvml, HasNoNvlinksWhereThereAreNone) {
  start("pcie-2socket.xml");
  EXPECT_EQ(of_link("nvmlDeviceGetNvLinkState", 0, 0), failed(kNotSupported));
  EXPECT_EQ(of_link("nvmlDeviceGetNvLinkState", 0, 18), failed(kInvalidArgument));
  EXPECT_EQ(field(0, kFieldNvLinkCount), 0);
  EXPECT_EQ(field(0, kFieldC2cCount), failed(kNotSupported));
  unsigned now = 0, next = 0;
  EXPECT_EQ((call<Result(Device, unsigned*, unsigned*)>("nvmlDeviceGetMigMode", gpu(0), &now, &next)),
            kNotSupported);
}

TEST_F(Nvml, TellsC2cLinks) {
  start("gh200.xml");
  EXPECT_EQ(field(0, kFieldC2cCount), 10);
  EXPECT_EQ(field(0, kFieldC2cStatus, 9), 1);
  EXPECT_EQ(field(0, kFieldC2cMbps, 9), 44712);
  EXPECT_EQ(field(0, kFieldC2cMbps, 10), failed(kInvalidArgument));
  EXPECT_EQ(field(0, 1), failed(kNotSupported));
}

TEST_F(Nvml, TellsPeersAndWhyOthersAreNone) {
  start("dgx1v.xml");
  for (const P2pIndex index : {P2pIndex::kRead, P2pIndex::kWrite, P2pIndex::kNvLink, P2pIndex::kAtomics})
    EXPECT_EQ(p2p(0, 6, index), kP2pOk);
  EXPECT_EQ(p2p(0, 5, P2pIndex::kRead), kP2pNotBySocket);
  EXPECT_EQ(p2p(0, 5, P2pIndex::kNvLink), kP2pNotSupported);
  EXPECT_EQ(p2p(0, 0, P2pIndex::kRead), kP2pOk);
  int status = 0;
  const auto ask = [&](Device to, int index) {
    return call<Result(Device, Device, int, int*)>("nvmlDeviceGetP2PStatus", gpu(0), to, index, &status);
  };
  EXPECT_EQ(ask(gpu(1), 5), kInvalidArgument);
  EXPECT_EQ(ask(nullptr, 0), kInvalidArgument);
}

TEST_F(Nvml, TellsPeersOverPcieAndThatGeforceHasNone) {
  start("pcie-2socket.xml");
  EXPECT_EQ(p2p(0, 7, P2pIndex::kWrite), kP2pOk);
  EXPECT_EQ(p2p(0, 7, P2pIndex::kPci), kP2pOk);
  EXPECT_EQ(p2p(0, 7, P2pIndex::kAtomics), kP2pNotSupported);
  ASSERT_EQ(call<Result()>("nvmlShutdown"), kSuccess);
  const machine::Folder folder;
  std::ofstream(folder.path() + "/geforce.xml") << R"(<system version="1"><cpu numaid="0" arch="x86_64">
    <pci busid="0000:10:00.0" device="0x2684"><gpu dev="0" sm="89"/></pci>
    <pci busid="0000:11:00.0" device="0x2684"><gpu dev="1" sm="89"/></pci></cpu></system>)";
  const machine::Environment named("VIRTUAL_GPU_MACHINE", folder.path() + "/geforce.xml");
  ASSERT_EQ(call<Result()>("nvmlInit_v2"), kSuccess);
  EXPECT_EQ(p2p(0, 1, P2pIndex::kRead), kP2pNotByChipset);
}

TEST_F(Nvml, FailsWhereItIsAskedTo) {
  {
    const machine::Environment failing("VIRTUAL_GPU_FAIL", "nvmlInit:0:18");
    EXPECT_EQ(call<Result()>("nvmlInit_v2"), 18);
  }
  {
    const machine::Environment failing("VIRTUAL_GPU_FAIL", "cuInit:0:1,nvmlDeviceGetCount:2:15");
    start("gh200.xml");
  }
  unsigned count = 0;
  for (const Result expected : {kSuccess, kSuccess, 15, 15})
    EXPECT_EQ((call<Result(unsigned*)>("nvmlDeviceGetCount_v2", &count)), expected);
  EXPECT_EQ(call<Result()>("nvmlShutdown"), kSuccess);
  const machine::Environment wrong("VIRTUAL_GPU_FAIL", "nvmlInit");
  EXPECT_EQ(call<Result()>("nvmlInit_v2"), kDriverNotLoaded);
}

}  // namespace
}  // namespace virtual_gpu::nvml
