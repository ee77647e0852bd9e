// Memory that processes share by handles: this one and driver_peer.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>

#include "driver_fixture.hpp"
#include "peer.hpp"

namespace virtual_gpu {
namespace {

struct Handle {
  unsigned char bytes[64];
};

class Ipc : public DriverTest {
 protected:
  /// Of the peer's memory.
  Handle handle_of(const std::string& address) {
    EXPECT_EQ(peer_.ask("handle " + address), kSuccess);
    Handle handle{};
    for (std::size_t i = 0; i < 64; ++i)
      handle.bytes[i] = static_cast<unsigned char>(std::stoi(peer_.value.substr(2 * i, 2), nullptr, 16));
    return handle;
  }
  std::string allocate_there() {
    EXPECT_EQ(peer_.ask("alloc 1000"), kSuccess);
    return peer_.value;
  }
  int open(const Handle& handle, Address& at, unsigned flags = kLazyPeerAccess) const {
    return call("cuIpcOpenMemHandle_v2", &at, handle, flags);
  }
  int read(Address from) const {
    unsigned char found = 0;
    const int result = call("cuMemcpyDtoH_v2", static_cast<void*>(&found), from, std::size_t{1});
    return result == kSuccess ? found : -result;
  }
  Variable shared_{"VIRTUAL_GPU_SHARED", "ipc_test"};
  Peer peer_;
};

TEST_F(Ipc, IsOneMemoryInBothProcesses) {
  const std::string theirs = allocate_there();
  Address mine = 0, again = 0;
  const Handle handle = handle_of(theirs);
  ASSERT_EQ(open(handle, mine), kSuccess);
  EXPECT_EQ(peer_.ask("fill " + theirs + " 77 1000"), kSuccess);
  EXPECT_EQ(read(mine + 999), 77);
  EXPECT_EQ(read(mine + 1000), -kInvalidValue) << "it ends where theirs does";
  call("cuMemsetD8_v2", mine, '\x21', std::size_t{1});
  call("cuCtxSynchronize");
  EXPECT_EQ(peer_.ask("read " + theirs), kSuccess);
  EXPECT_EQ(peer_.value, "33");
  EXPECT_EQ(open(handle, again), kSuccess) << "opened twice, it is one mapping";
  EXPECT_EQ(again, mine);
  EXPECT_EQ(release(mine), kInvalidValue) << "it is closed, not freed";
  EXPECT_EQ(call("cuIpcCloseMemHandle", mine), kSuccess);
  EXPECT_EQ(read(mine), 33) << "still open once";
  EXPECT_EQ(call("cuIpcCloseMemHandle", mine), kSuccess);
  EXPECT_EQ(call("cuIpcCloseMemHandle", mine), kInvalidValue);
  EXPECT_EQ(read(mine), -kInvalidValue);
}

TEST_F(Ipc, HandlesAreOfWholeMemoryOfTheDeviceAlone) {
  Handle handle{};
  const auto get = [&](Address address) { return call("cuIpcGetMemHandle", &handle, address); };
  const Address memory = allocate(100);
  EXPECT_EQ(get(memory + 4), kInvalidValue);
  Address other = 0;
  call("cuMemAllocManaged", &other, std::size_t{8}, 1U);
  EXPECT_EQ(get(other), kInvalidValue);
  call("cuMemAllocAsync", &other, std::size_t{8}, legacy_);
  EXPECT_EQ(get(other), kInvalidValue);
  EXPECT_EQ(release(other), kSuccess);
  EXPECT_EQ(get(address(allocate_ints(1))), kInvalidValue);
  EXPECT_EQ(get(memory), kSuccess);
  EXPECT_EQ(open(handle, other), kInvalidContext) << "in the process that it is of";
  EXPECT_EQ(open(handle, other, 0), kInvalidValue) << "the flag is needed";
}

TEST_F(Ipc, HandlesOfFreedMemoryLeadNowhere) {
  const std::string first = allocate_there();
  const Handle old = handle_of(first);
  EXPECT_EQ(peer_.ask("free " + first), kSuccess);
  const std::string second = allocate_there();
  EXPECT_EQ(second, first);
  const Handle fresh = handle_of(second);
  EXPECT_NE(std::memcmp(old.bytes, fresh.bytes, 64), 0);
  Address mine = 0;
  EXPECT_EQ(open(old, mine), kInvalidValue);
  EXPECT_EQ(open(fresh, mine), kSuccess);
  EXPECT_EQ(call("cuIpcCloseMemHandle", mine), kSuccess);
}

TEST_F(Ipc, MemoryThatItsOwnerFreesIsPoisonedHere) {
  const std::string theirs = allocate_there();
  Address mine = 0;
  ASSERT_EQ(open(handle_of(theirs), mine), kSuccess);
  EXPECT_EQ(peer_.ask("free " + theirs), kSuccess);
  EXPECT_EQ(read(mine), -kIllegalAddress);
  EXPECT_EQ(call("cuIpcCloseMemHandle", mine), kSuccess);
}

TEST_F(Ipc, MayFailAtEachStep) {
  const Handle handle = handle_of(allocate_there());
  Handle unused{};
  Address mine = 0;
  int supported = -1;
  const Address memory = allocate(8);
  {
    const Variable fails("VIRTUAL_GPU_NO_IPC", "get");
    EXPECT_EQ(call("cuIpcGetMemHandle", &unused, memory), kNotSupported);
    call("cuDeviceGetAttribute", &supported, 125, 0);
    EXPECT_EQ(supported, 1);
  }
  {
    const Variable fails("VIRTUAL_GPU_NO_IPC", "open");
    EXPECT_EQ(open(handle, mine), kNotSupported);
  }
  const Variable fails("VIRTUAL_GPU_NO_IPC", "attribute");
  call("cuDeviceGetAttribute", &supported, 125, 0);
  EXPECT_EQ(supported, 0);
}

TEST(Variables, SayWhichCallsFail) {
  const Variable fails("VIRTUAL_GPU_FAIL", "cuMemFree:0:700,cuMemAlloc:1:2");
  Peer peer;
  EXPECT_EQ(peer.ask("alloc 8"), kSuccess);
  EXPECT_EQ(peer.ask("free " + peer.value), 700);
  EXPECT_EQ(peer.ask("alloc 8"), 2);
}

TEST(Variables, MakeTheKernelRefuseFilesOfProcesses) {
  EXPECT_EQ(Peer().ask("pidfd"), 0);
  const Variable refuses("VIRTUAL_GPU_NO_PIDFD", "1");
  EXPECT_EQ(Peer().ask("pidfd"), EPERM);
}

TEST(Variables, GiveProcessesTheSameGpusOrNot) {
  {
    const Variable one("VIRTUAL_GPU_SHARED", "name");
    Peer first, second;
    first.ask("uuid");
    second.ask("uuid");
    EXPECT_EQ(first.value, second.value);
  }
  Peer first, second;
  first.ask("uuid");
  second.ask("uuid");
  EXPECT_NE(first.value, second.value);
}

/// What processes with the same GPUs have in common lies with the job, as mpirun tells.
TEST(Variables, GiveProcessesOfAJobTheSameStateAndLeaveNothing) {
  const std::string folder = ::testing::TempDir() + "/virtual_gpu_job_" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  const Variable job("PMIX_SERVER_TMPDIR", folder.c_str());
  {
    Peer alone;
    EXPECT_EQ(alone.ask("uuid"), kSuccess);
    EXPECT_EQ(files(), 0) << "its GPUs are its own";
    const Variable name("VIRTUAL_GPU_SHARED", "name");
    Peer first;
    auto second = std::make_unique<Peer>();
    EXPECT_EQ(first.ask("uuid"), kSuccess);
    EXPECT_EQ(second->ask("uuid"), kSuccess);
    EXPECT_EQ(files(), 1);
    second.reset();
    EXPECT_EQ(files(), 1);
  }
  EXPECT_EQ(files(), 0);
  std::filesystem::remove(folder);
}

TEST(Variables, ThatNameNoFolderLeaveNoGpu) {
  const Variable state("VIRTUAL_GPU_STATE", "/no/such/folder");
  EXPECT_NE(Peer().ask("uuid"), kSuccess);
}

}  // namespace
}  // namespace virtual_gpu
