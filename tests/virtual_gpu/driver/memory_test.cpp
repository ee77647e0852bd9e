// Memory of the virtual driver: where it is, who may touch it, and copies of it.
#include <sys/mman.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "driver_fixture.hpp"

namespace virtual_gpu {
namespace {

class Memory : public DriverTest {
 protected:
  std::byte* at(Address address) const { return reinterpret_cast<std::byte*>(address); }
  template <class T>
  T attribute(int which, Address address) const {
    T value{};
    EXPECT_EQ(call("cuPointerGetAttribute", static_cast<void*>(&value), which, address), kSuccess);
    return value;
  }
  static std::vector<std::byte> bytes(std::size_t count, int first) {
    std::vector<std::byte> result(count);
    for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<std::byte>(first + static_cast<int>(i));
    return result;
  }
};

TEST_F(Memory, OfADeviceIsNotForTheCpu) {
  const Address memory = allocate(4096);
  volatile std::byte* const read = at(memory);
  EXPECT_DEATH(static_cast<void>(read[0]), "");
  EXPECT_DEATH(*at(memory) = std::byte{1}, "");
}

TEST_F(Memory, ManagedAndPageLockedMemoryIsForBoth) {
  Address managed = 0;
  EXPECT_EQ(call("cuMemAllocManaged", &managed, std::size_t{100}, 0U), kInvalidValue) << "flags are needed";
  EXPECT_EQ(call("cuMemAllocManaged", &managed, std::size_t{100}, 1U), kSuccess);
  *at(managed) = std::byte{3};
  int* const locked = allocate_ints(25);
  EXPECT_EQ(copy(address(locked), managed, 1, legacy_), kSuccess);
  synchronize(legacy_);
  EXPECT_EQ(locked[0] & 255, 3);
  Address of_device = 0;
  EXPECT_EQ(call("cuMemHostGetDevicePointer_v2", &of_device, static_cast<void*>(locked + 1), 0U), kSuccess);
  EXPECT_EQ(of_device, address(locked + 1));
  EXPECT_EQ(call("cuMemFreeHost", reinterpret_cast<void*>(managed)), kInvalidValue);
  EXPECT_EQ(release(address(locked)), kInvalidValue);
  EXPECT_EQ(call("cuMemFreeHost", static_cast<void*>(locked)), kSuccess);
  EXPECT_EQ(release(managed), kSuccess);
}

TEST_F(Memory, IsAsLargeAsTheDevice) {
  Address memory = 0;
  std::size_t free = 0, total = 0, less = 0;
  EXPECT_EQ(call("cuMemAlloc_v2", &memory, std::size_t{0}), kInvalidValue);
  EXPECT_EQ(call("cuMemGetInfo_v2", &free, &total), kSuccess);
  EXPECT_EQ(total, std::size_t{81920} << 20);
  EXPECT_EQ(free, total);
  EXPECT_EQ(call("cuMemAlloc_v2", &memory, total + 1), kOutOfMemory);
  memory = allocate(1000);
  call("cuMemGetInfo_v2", &less, &total);
  EXPECT_EQ(less, free - 1000);
  release(memory);
  call("cuMemGetInfo_v2", &less, &total);
  EXPECT_EQ(less, free);
}

TEST_F(Memory, IsAlignedTo256BytesAndNoMore) {
  EXPECT_EQ(allocate(1000) % 512, 256U);
  EXPECT_EQ(allocate(8192) % 4096, 0U);
}

TEST_F(Memory, IsNotZeroAtFirst) {
  const Address memory = allocate(1000);
  EXPECT_NE(cuda_.read(at(memory), 1000), std::vector<std::byte>(1000));
}

TEST_F(Memory, AddressesAreUsedAgainAndIdsAreNot) {
  const Address memory = allocate(100);
  const auto id = attribute<std::uint64_t>(7, memory);
  EXPECT_NE(id, 0U);
  EXPECT_EQ(release(memory), kSuccess);
  EXPECT_EQ(release(memory), kInvalidValue);
  EXPECT_EQ(allocate(200), memory);
  EXPECT_NE(attribute<std::uint64_t>(7, memory), id);
}

TEST_F(Memory, FreeingWaitsForTheContext) {
  const Address memory = allocate(100);
  Gate gate(*this, stream(kNonBlocking));
  std::atomic<bool> freed{false};
  std::thread other([&] {
    call("cuCtxPushCurrent_v2", context_);
    release(memory);
    freed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(freed);
  gate.open();
  other.join();
  EXPECT_TRUE(freed);
}

TEST_F(Memory, OfPoolsIsFreedInItsStream) {
  void* const s = stream(kNonBlocking);
  Address memory = 0;
  EXPECT_EQ(call("cuMemAllocAsync", &memory, std::size_t{100}, s), kSuccess);
  EXPECT_EQ(attribute<void*>(1, memory), nullptr) << "of no context";
  EXPECT_EQ(call("cuMemFreeAsync", allocate(8), s), kInvalidValue);
  {
    Gate gate(*this, s);
    EXPECT_EQ(call("cuMemFreeAsync", memory, s), kSuccess);
    EXPECT_EQ(call("cuMemFreeAsync", memory, s), kInvalidValue) << "twice";
    EXPECT_EQ(attribute<std::size_t>(12, memory), 100U);
  }
  std::uint64_t id = 0;
  EXPECT_EQ(call("cuPointerGetAttribute", static_cast<void*>(&id), 7, memory), kInvalidValue);
}

TEST_F(Memory, PointersSayWhatTheyPointTo) {
  const Address memory = allocate(1000);
  EXPECT_EQ(attribute<void*>(1, memory + 999), context_);
  EXPECT_EQ(attribute<unsigned>(2, memory), kDeviceMemory);
  EXPECT_EQ(attribute<int>(9, memory), 0);
  EXPECT_EQ(attribute<Address>(11, memory + 500), memory);
  EXPECT_EQ(attribute<std::size_t>(12, memory + 500), 1000U);
  EXPECT_FALSE(attribute<bool>(8, memory));
  int* const locked = allocate_ints(10);
  EXPECT_EQ(attribute<unsigned>(2, address(locked)), kHostMemory);
  int value = 0;
  EXPECT_EQ(call("cuPointerGetAttribute", static_cast<void*>(&value), 2, memory + 1000), kInvalidValue)
      << "beyond the end";
  EXPECT_EQ(call("cuPointerGetAttribute", static_cast<void*>(&value), 4, memory), kInvalidValue)
      << "the host has no address for it";
  // Several at a time: an unknown address is no error.
  void* owner = this;
  unsigned type = 9;
  int device = 9;
  const int which[] = {1, 2, 9};
  void* const out[] = {static_cast<void*>(&owner), &type, &device};
  EXPECT_EQ(call("cuPointerGetAttributes", 3U, &which[0], &out[0], address(&type)), kSuccess);
  EXPECT_EQ(owner, nullptr);
  EXPECT_EQ(type, 0U);
  EXPECT_EQ(device, -2);
  Address begin = 0;
  std::size_t size = 0;
  EXPECT_EQ(call("cuMemGetAddressRange_v2", &begin, &size, memory + 7), kSuccess);
  EXPECT_EQ(begin, memory);
  EXPECT_EQ(size, 1000U);
  EXPECT_EQ(call("cuMemGetAddressRange_v2", &begin, &size, address(&type)), kNotFound);
}

TEST_F(Memory, OfTheHostIsRegisteredOnce) {
  std::vector<int> memory(1000);
  const auto add = [&](int* where, std::size_t count, unsigned flags) {
    return call("cuMemHostRegister_v2", static_cast<void*>(where), count * sizeof(int), flags);
  };
  const auto remove = [&](int* where) { return call("cuMemHostUnregister", static_cast<void*>(where)); };
  EXPECT_EQ(remove(memory.data()), kNotRegistered);
  EXPECT_EQ(add(memory.data(), 500, 0), kSuccess);
  EXPECT_EQ(add(memory.data() + 499, 10, 0), kAlreadyRegistered);
  EXPECT_EQ(add(memory.data() + 500, 10, kDeviceMap), kSuccess);
  EXPECT_EQ(remove(memory.data() + 1), kNotRegistered) << "not where it begins";
  Address of_device = 0;
  EXPECT_EQ(call("cuMemHostGetDevicePointer_v2", &of_device, static_cast<void*>(memory.data()), 0U),
            kInvalidValue)
      << "not mapped";
  EXPECT_EQ(call("cuMemHostGetDevicePointer_v2", &of_device, static_cast<void*>(memory.data() + 500), 0U),
            kSuccess);
  EXPECT_EQ(cuda_.counts().registered, 510 * sizeof(int));
  EXPECT_EQ(remove(memory.data()), kSuccess);
  EXPECT_EQ(remove(memory.data() + 500), kSuccess);
}

TEST_F(Memory, CopiesGoEverywhere) {
  const Address one = allocate(300), two = allocate(300);
  const auto values = bytes(300, 5);
  EXPECT_EQ(call("cuMemcpyHtoD_v2", one, static_cast<const void*>(values.data()), std::size_t{300}),
            kSuccess);
  EXPECT_EQ(call("cuMemcpyDtoD_v2", two, one + 100, std::size_t{200}), kSuccess);
  EXPECT_EQ(cuda_.read(at(two), 200), bytes(200, 105));
  EXPECT_EQ(call("cuMemsetD16_v2", two, static_cast<unsigned short>(0x0201), std::size_t{100}), kSuccess);
  EXPECT_EQ(cuda_.read(at(two), 2), bytes(2, 1));
  EXPECT_EQ(call("cuMemsetD32_v2", two + 2, 0U, std::size_t{1}), kInvalidValue) << "not aligned";
}

TEST_F(Memory, CopiesEndWhereMemoryDoes) {
  const Address memory = allocate(300);
  std::vector<std::byte> host(400);
  EXPECT_EQ(call("cuMemcpyDtoH_v2", static_cast<void*>(host.data()), memory, std::size_t{301}),
            kInvalidValue);
  EXPECT_EQ(copy(memory + 200, address(host.data()), 101, legacy_), kInvalidValue);
  EXPECT_EQ(copy(memory + 200, address(host.data()), 100, legacy_), kSuccess);
  EXPECT_EQ(
      call("cuMemcpyHtoD_v2", address(host.data()), static_cast<const void*>(host.data()), std::size_t{1}),
      kInvalidValue)
      << "the host's memory is no device's";
  EXPECT_EQ(call("cuMemcpyHtoD_v2", memory, reinterpret_cast<const void*>(memory), std::size_t{1}),
            kInvalidValue)
      << "a device's memory is not the host's";
  EXPECT_EQ(call("cuMemsetD8Async", memory, '\0', std::size_t{301}, legacy_), kInvalidValue);
  release(memory);
  EXPECT_EQ(call("cuMemcpyDtoH_v2", static_cast<void*>(host.data()), memory, std::size_t{1}), kInvalidValue);
}

TEST_F(Memory, CopiesOfRowsLeaveWhatIsBetween) {
  const Address memory = allocate(100);
  call("cuMemsetD8_v2", memory, '\1', std::size_t{100});
  const auto values = bytes(20, 50);
  Copy2D form{};
  form.src_type = kHostMemory;
  form.src_host = values.data();
  form.src_pitch = 5;
  form.dst_type = kUnifiedMemory;
  form.dst_device = memory;
  form.dst_pitch = 10;
  form.dst_x = 2;
  form.dst_y = 1;
  form.width = 3;
  form.height = 4;
  EXPECT_EQ(call("cuMemcpy2D_v2", const_cast<const Copy2D*>(&form)), kSuccess);
  const auto found = cuda_.read(at(memory), 100);
  for (std::size_t i = 0; i < 100; ++i) {
    const std::size_t row = i / 10, column = i % 10;
    const bool copied = row >= 1 && row < 5 && column >= 2 && column < 5;
    EXPECT_EQ(found[i], copied ? static_cast<std::byte>(50 + (row - 1) * 5 + column - 2) : std::byte{1}) << i;
  }
  form.width = 6;
  EXPECT_EQ(call("cuMemcpy2D_v2", const_cast<const Copy2D*>(&form)), kInvalidValue) << "wider than the pitch";
  form.width = 3;
  form.height = 10;
  EXPECT_EQ(call("cuMemcpy2D_v2", const_cast<const Copy2D*>(&form)), kInvalidValue) << "beyond the end";
}

TEST_F(Memory, AnAsynchronousCopyOfPageLockedMemoryReadsItLater) {
  void* const s = stream(kNonBlocking);
  int* const locked = allocate_ints(1);
  const Address memory = allocate(4);
  *locked = 1;
  {
    Gate gate(*this, s);
    EXPECT_EQ(copy(memory, address(locked), 4, s), kSuccess);
    *locked = 2;
  }
  int found = 0;
  call("cuMemcpyDtoH_v2", static_cast<void*>(&found), memory, std::size_t{4});
  EXPECT_EQ(found, 2);
}

TEST_F(Memory, AnAsynchronousCopyOfPageableMemoryReadsItAtOnce) {
  void* const s = stream(kNonBlocking);
  int plain = 1, found = 0;
  const Address memory = allocate(4);
  {
    Gate gate(*this, s);
    EXPECT_EQ(copy(memory, address(&plain), 4, s), kSuccess);
    plain = 2;
  }
  call("cuMemcpyDtoH_v2", static_cast<void*>(&found), memory, std::size_t{4});
  EXPECT_EQ(found, 1);
}

TEST_F(Memory, AnAsynchronousCopyToPageableMemoryIsDoneWhenItReturns) {
  const Address memory = allocate(4);
  int found = 0;
  for (int i = 1; i < 20; ++i) {
    call("cuMemsetD32Async", memory, static_cast<unsigned>(i), std::size_t{1}, legacy_);
    EXPECT_EQ(copy(address(&found), memory, 4, legacy_), kSuccess);
    EXPECT_EQ(found, i);
  }
}

TEST_F(Memory, AFillOfManagedMemoryIsDoneWhenItReturns) {
  Address memory = 0;
  ASSERT_EQ(call("cuMemAllocManaged", &memory, std::size_t{4}, 1U), kSuccess);
  for (unsigned i = 1; i < 20; ++i) {
    EXPECT_EQ(call("cuMemsetD32_v2", memory, i, std::size_t{1}), kSuccess);
    EXPECT_EQ(query(legacy_), kSuccess) << i;
  }
  EXPECT_EQ(release(memory), kSuccess);
}

TEST_F(Memory, CopiesAreCounted) {
  const auto before = cuda_.counts();
  const Address memory = allocate(100);
  int* const locked = allocate_ints(25);
  copy(memory, address(locked), 100, legacy_);
  void* const second = cuda_.context(1);
  call("cuCtxPushCurrent_v2", second);
  copy(memory, address(locked), 50, legacy_);
  synchronize(legacy_);
  const auto after = cuda_.counts();
  EXPECT_EQ(after.copies - before.copies, 2U);
  EXPECT_EQ(after.bytes - before.bytes, 150U);
  EXPECT_EQ(after.synchronisations - before.synchronisations, 1U);
  EXPECT_EQ(after.foreign_context - before.foreign_context, 1U) << "memory of the host belongs to all";
  EXPECT_EQ(after.allocations - before.allocations, 2U);
}

class VirtualMemory : public Memory {
 protected:
  static constexpr std::size_t kUnit = std::size_t{2} << 20;
  static AllocationProperties properties() {
    AllocationProperties result;
    result.type = result.handle_types = 1;
    result.location = {1, 0};
    return result;
  }
  int create(std::uint64_t* handle, std::size_t bytes, const AllocationProperties& of = properties()) const {
    return call("cuMemCreate", handle, bytes, &of, 0ULL);
  }
  Address reserve(std::size_t bytes) const {
    Address address = 0;
    EXPECT_EQ(call("cuMemAddressReserve", &address, bytes, std::size_t{0}, Address{0}, 0ULL), kSuccess);
    return address;
  }
  int map(Address at, std::size_t bytes, std::uint64_t handle) const {
    return call("cuMemMap", at, bytes, std::size_t{0}, handle, 0ULL);
  }
  int set_access(Address at, std::size_t bytes, int flags, int device = 0) const {
    const AccessDescription access{{1, device}, flags};
    return call("cuMemSetAccess", at, bytes, &access, std::size_t{1});
  }
  Variable offered_{"VIRTUAL_GPU_VIRTUAL_MEMORY", "1"};
};

TEST_F(Memory, VirtualMemoryIsNotThereUnlessItIsOffered) {
  const Variable not_offered("VIRTUAL_GPU_VIRTUAL_MEMORY", "0");
  std::size_t unit = 0;
  AllocationProperties properties;
  EXPECT_EQ(call("cuMemGetAllocationGranularity", &unit, &properties, 0), kNotSupported);
}

TEST_F(VirtualMemory, IsMadeOfUnits) {
  std::uint64_t handle = 0;
  EXPECT_EQ(create(&handle, kUnit + 1), kInvalidValue);
  EXPECT_EQ(create(&handle, 0), kInvalidValue);
  AllocationProperties other = properties();
  other.location.id = 2;
  EXPECT_EQ(create(&handle, kUnit, other), kInvalidValue) << "no such device";
  other = properties();
  other.type = 0;
  EXPECT_EQ(create(&handle, kUnit, other), kInvalidValue) << "not pinned";
  Address address = 0;
  EXPECT_EQ(call("cuMemAddressReserve", &address, kUnit, std::size_t{3}, Address{0}, 0ULL), kInvalidValue);
  EXPECT_EQ(call("cuMemAddressReserve", &address, kUnit - 1, std::size_t{0}, Address{0}, 0ULL),
            kInvalidValue);
  EXPECT_EQ(create(&handle, kUnit), kSuccess);
  EXPECT_EQ(call("cuMemRelease", handle), kSuccess);
  EXPECT_EQ(call("cuMemRelease", handle), kInvalidValue);
}

TEST_F(VirtualMemory, IsAccessibleToTheDevicesThatAreNamed) {
  std::uint64_t handle = 0;
  ASSERT_EQ(create(&handle, kUnit), kSuccess);
  const Address range = reserve(2 * kUnit);
  EXPECT_EQ(range % kUnit, 0U);
  EXPECT_EQ(map(range + 1, kUnit, handle), kInvalidValue);
  EXPECT_EQ(map(range, 2 * kUnit, handle), kInvalidValue) << "larger than the memory";
  EXPECT_EQ(map(range + 2 * kUnit, kUnit, handle), kInvalidValue) << "beyond the addresses";
  EXPECT_EQ(map(range + kUnit, kUnit, handle), kSuccess);
  EXPECT_EQ(map(range + kUnit, kUnit, handle), kInvalidValue) << "there is a mapping";
  const auto fill = [&] { return call("cuMemsetD8Async", range + kUnit, '\7', std::size_t{10}, legacy_); };
  EXPECT_EQ(fill(), kInvalidValue);
  EXPECT_EQ(set_access(range, 2 * kUnit, 3), kInvalidValue) << "half of it is not mapped";
  EXPECT_EQ(set_access(range + kUnit, kUnit, 1), kSuccess);
  EXPECT_EQ(fill(), kInvalidValue) << "to be read alone";
  EXPECT_EQ(set_access(range + kUnit, kUnit, 3, 1), kSuccess);
  EXPECT_EQ(fill(), kInvalidValue) << "another device may write it";
  EXPECT_EQ(set_access(range + kUnit, kUnit, 3), kSuccess);
  EXPECT_EQ(fill(), kSuccess);
  EXPECT_EQ(cuda_.read(at(range + kUnit), 10), std::vector<std::byte>(10, std::byte{7}));
  EXPECT_EQ(attribute<void*>(1, range + kUnit), nullptr);
  EXPECT_EQ(call("cuMemAddressFree", range, 2 * kUnit), kInvalidValue) << "it is mapped";
  EXPECT_EQ(release(range + kUnit), kInvalidValue);
  EXPECT_EQ(call("cuMemUnmap", range, 2 * kUnit), kInvalidValue) << "more than is mapped";
  EXPECT_EQ(call("cuMemUnmap", range + kUnit, kUnit), kSuccess);
  EXPECT_EQ(call("cuMemAddressFree", range, kUnit), kInvalidValue) << "a part of it";
  EXPECT_EQ(call("cuMemAddressFree", range, 2 * kUnit), kSuccess);
  call("cuMemRelease", handle);
}

TEST_F(VirtualMemory, OutlivesItsHandleAndItsFile) {
  std::uint64_t handle = 0, imported = 0;
  ASSERT_EQ(create(&handle, kUnit), kSuccess);
  int file = -1;
  EXPECT_EQ(call("cuMemExportToShareableHandle", static_cast<void*>(&file), handle, 2, 0ULL), kInvalidValue);
  ASSERT_EQ(call("cuMemExportToShareableHandle", static_cast<void*>(&file), handle, 1, 0ULL), kSuccess);
  const auto as_pointer = [](int descriptor) { return reinterpret_cast<void*>(std::intptr_t{descriptor}); };
  EXPECT_EQ(call("cuMemImportFromShareableHandle", &imported, as_pointer(0), 1), kInvalidValue)
      << "another file";
  ASSERT_EQ(call("cuMemImportFromShareableHandle", &imported, as_pointer(file), 1), kSuccess);
  ::close(file);
  const Address one = reserve(kUnit), two = reserve(kUnit);
  EXPECT_EQ(map(one, kUnit, handle), kSuccess);
  EXPECT_EQ(map(two, kUnit, imported), kSuccess);
  EXPECT_EQ(call("cuMemRelease", handle), kSuccess);
  EXPECT_EQ(call("cuMemRelease", imported), kSuccess);
  EXPECT_EQ(cuda_.counts().handles, 0U);
  set_access(one, kUnit, 3);
  set_access(two, kUnit, 3);
  cuda_.write(at(one), bytes(100, 3));
  EXPECT_EQ(call("cuMemUnmap", one, kUnit), kSuccess);
  EXPECT_EQ(cuda_.read(at(two), 100), bytes(100, 3));
  EXPECT_EQ(call("cuMemUnmap", two, kUnit), kSuccess);
  for (const Address range : {one, two}) call("cuMemAddressFree", range, kUnit);
  EXPECT_EQ(cuda_.counts().reservations, 0U);
}

TEST_F(VirtualMemory, IsNotUnmappedUnderACopy) {
  std::uint64_t handle = 0;
  ASSERT_EQ(create(&handle, kUnit), kSuccess);
  const Address range = reserve(kUnit);
  map(range, kUnit, handle);
  set_access(range, kUnit, 3);
  void* const s = stream(kNonBlocking);
  {
    Gate gate(*this, s);
    call("cuMemsetD8Async", range, '\7', std::size_t{10}, s);
    EXPECT_EQ(call("cuMemUnmap", range, kUnit), kInvalidValue);
  }
  EXPECT_EQ(call("cuMemUnmap", range, kUnit), kSuccess);
  call("cuMemAddressFree", range, kUnit);
  call("cuMemRelease", handle);
}

}  // namespace
}  // namespace virtual_gpu
