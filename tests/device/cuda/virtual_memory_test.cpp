// Memory of a GPU that is shared as a file descriptor, on a driver without a GPU (tests/virtual_gpu), which
// checks the order of calls. Within one process; between processes: tests/mpi.
#include "device/cuda/virtual_memory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "virtual_device.hpp"

namespace loom::device::cuda {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::size_t kBytes = 3'000'000;

std::size_t open_files() {
  std::size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

class VirtualMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override { files_ = open_files(); }
  VirtualMemory create() const { return VirtualMemory::create(*driver_, 0, kBytes); }
  VirtualMemory attach(const MemoryFile& file) const {
    return VirtualMemory::attach(*driver_, 0, ::getpid(), file);
  }
  void expect_nothing() const {
    EXPECT_EQ(cuda_.counts().allocations, 0U);
    EXPECT_EQ(cuda_.counts().handles, 0U);
    EXPECT_EQ(cuda_.counts().reservations, 0U);
    EXPECT_EQ(open_files(), files_);
  }
  static Bytes some_bytes() {
    Bytes bytes(kBytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 1000);
    return bytes;
  }

  VirtualDevice cuda_;
  std::unique_ptr<Driver> driver_ = Driver::open(VIRTUAL_GPU_LIBRARY, false);
  std::size_t files_ = 0;
};

TEST_F(VirtualMemoryTest, IsOneMemoryAtEveryMapping) {
  const Bytes bytes = some_bytes();
  {
    const VirtualMemory mine = create();
    const MemoryFile file = mine.file();
    EXPECT_GE(file.bytes, kBytes);
    EXPECT_NE(::fcntl(file.file.fd, F_GETFD) & FD_CLOEXEC, 0);
    const VirtualMemory attached = attach(file);
    EXPECT_NE(attached.data(), mine.data());
    EXPECT_EQ(cuda_.counts().handles, 0U);  // the mappings suffice
    cuda_.write(mine.data(), bytes);
    EXPECT_EQ(cuda_.read(attached.data(), bytes.size()), bytes);
  }
  expect_nothing();
}

TEST_F(VirtualMemoryTest, StaysWhileItIsMapped) {
  const Bytes bytes = some_bytes();
  {
    auto mine = std::make_unique<VirtualMemory>(create());
    cuda_.write(mine->data(), bytes);
    const VirtualMemory attached = attach(mine->file());
    mine.reset();
    EXPECT_EQ(cuda_.read(attached.data(), bytes.size()), bytes);
  }
  expect_nothing();
}

TEST_F(VirtualMemoryTest, BelongsToNoContext) {
  {
    const VirtualMemory mine = create();
    ASSERT_TRUE(driver_->owner_of(mine.data()));
    EXPECT_EQ(driver_->owner_of(mine.data())->device, 0);
    EXPECT_FALSE(driver_->is_in_a_context(mine.data()));
  }
  expect_nothing();
}

TEST_F(VirtualMemoryTest, CannotBeAttachedOnceItsFileIsClosed) {
  const int other = ::dup(0);  // else the number of the closed file is given to the next one
  VirtualMemory mine = create();
  const MemoryFile file = mine.file();
  mine.close_file();
  ::close(other);
  EXPECT_LT(mine.file().file.fd, 0);
  try {
    attach(file);
    FAIL() << "it can";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnreachable);
  }
}

TEST_F(VirtualMemoryTest, LeavesNothingBehindWhereAnythingFails) {
  for (const char* function : {"cuMemGetAllocationGranularity", "cuMemCreate", "cuMemAddressReserve",
                               "cuMemMap", "cuMemSetAccess", "cuMemExportToShareableHandle"}) {
    SCOPED_TRACE(function);
    cuda_.fail(function, 801);
    EXPECT_THROW(create(), Error);
    cuda_.fail(function, 0);
    expect_nothing();
  }
  for (const char* function :
       {"cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    SCOPED_TRACE(function);
    {
      const VirtualMemory mine = create();
      cuda_.fail(function, 801);
      EXPECT_THROW(attach(mine.file()), Error);
      cuda_.fail(function, 0);
    }
    expect_nothing();
  }
}

}  // namespace
}  // namespace loom::device::cuda
