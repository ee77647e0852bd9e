#include "device/cuda/virtual_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "device/cuda/driver_interface.hpp"

namespace loom::device::cuda {
namespace {

using Result = int;
using Address = std::uint64_t;

struct Functions {
  Result (*granularity)(std::size_t*, const AllocationProperties*, int);
  Result (*create)(AllocationHandle*, std::size_t, const AllocationProperties*, unsigned long long);
  Result (*release)(AllocationHandle);
  Result (*reserve)(Address*, std::size_t, std::size_t, Address, unsigned long long);
  Result (*free)(Address, std::size_t);
  Result (*map)(Address, std::size_t, std::size_t, AllocationHandle, unsigned long long);
  Result (*unmap)(Address, std::size_t);
  Result (*set_access)(Address, std::size_t, const AccessDescription*, std::size_t);
  Result (*to_file)(void*, AllocationHandle, int, unsigned long long);
  Result (*from_file)(AllocationHandle*, void*, int);

  explicit Functions(const Driver& driver) {
    driver.find(granularity, "cuMemGetAllocationGranularity");
    driver.find(create, "cuMemCreate");
    driver.find(release, "cuMemRelease");
    driver.find(reserve, "cuMemAddressReserve");
    driver.find(free, "cuMemAddressFree");
    driver.find(map, "cuMemMap");
    driver.find(unmap, "cuMemUnmap");
    driver.find(set_access, "cuMemSetAccess");
    driver.find(to_file, "cuMemExportToShareableHandle");
    driver.find(from_file, "cuMemImportFromShareableHandle");
  }
};

class File {
 public:
  explicit File(int fd = -1) : fd_(fd) {}
  ~File() { close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  void take(int fd) noexcept {
    close();
    fd_ = fd;
  }
  void close() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

}  // namespace

class VirtualMemory::Mapping {
 public:
  Mapping(const Driver& driver, int device) : driver_(driver), functions_(driver) { location_.id = device; }
  ~Mapping() {
    if (mapped_) functions_.unmap(address_, bytes_);
    if (reserved_) functions_.free(address_, bytes_);
    if (allocated_) functions_.release(allocation_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void create(std::size_t bytes) {
    AllocationProperties properties;
    properties.location = location_;
    std::size_t unit = 0;
    check(functions_.granularity(&unit, &properties, kMinimumGranularity), "asked for a unit of memory");
    bytes_ = (bytes + unit - 1) / unit * unit;
    check(functions_.create(&allocation_, bytes_, &properties, 0), "memory of a GPU is allocated");
    allocated_ = true;
    map();
    int fd = -1;
    check(functions_.to_file(&fd, allocation_, kFileDescriptorHandle, 0),
          "memory of a GPU becomes a file descriptor");
    file_.take(fd);
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    giver_.emplace(fd);
    release();
  }
  void attach(std::int64_t pid, const MemoryFile& file) {
    bytes_ = file.bytes;
    const File taken(take_file(pid, file.file));
    void* const as_pointer = reinterpret_cast<void*>(static_cast<std::intptr_t>(taken.fd()));
    check(functions_.from_file(&allocation_, as_pointer, kFileDescriptorHandle),
          "another process's memory of a GPU is opened");
    allocated_ = true;
    map();
    release();
  }

  std::byte* data() const noexcept {
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address_));
  }
  MemoryFile file() const noexcept {
    return {.file = giver_ ? giver_->file() : PassedFile{}, .bytes = bytes_};
  }
  void close_file() noexcept {
    giver_.reset();
    file_.close();
  }

 private:
  void check(Result result, const char* doing) const {
    if (result != 0) throw driver_.error(doing, result);
  }
  void map() {
    check(functions_.reserve(&address_, bytes_, 0, 0, 0), "addresses for memory of a GPU are reserved");
    reserved_ = true;
    check(functions_.map(address_, bytes_, 0, allocation_, 0), "memory of a GPU is mapped");
    mapped_ = true;
    const AccessDescription access{.location = location_};
    check(functions_.set_access(address_, bytes_, &access, 1), "memory of a GPU is made accessible");
  }
  /// A mapping stays without its handle.
  void release() {
    allocated_ = false;
    check(functions_.release(allocation_), "a handle of a GPU's memory is released");
  }

  const Driver& driver_;
  const Functions functions_;
  MemoryLocation location_;
  AllocationHandle allocation_ = 0;
  bool allocated_ = false;  ///< allocation_ is to be released
  Address address_ = 0;
  std::size_t bytes_ = 0;
  bool reserved_ = false, mapped_ = false;
  File file_;
  std::optional<FileGiver> giver_;  ///< of file_
};

VirtualMemory::VirtualMemory(std::unique_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
VirtualMemory::~VirtualMemory() = default;
VirtualMemory::VirtualMemory(VirtualMemory&&) noexcept = default;

VirtualMemory VirtualMemory::create(const Driver& driver, int device, std::size_t bytes) {
  auto mapping = std::make_unique<Mapping>(driver, device);
  mapping->create(bytes);
  return VirtualMemory(std::move(mapping));
}

VirtualMemory VirtualMemory::attach(const Driver& driver, int device, std::int64_t pid,
                                    const MemoryFile& file) {
  auto mapping = std::make_unique<Mapping>(driver, device);
  mapping->attach(pid, file);
  return VirtualMemory(std::move(mapping));
}

std::byte* VirtualMemory::data() const noexcept {
  return mapping_->data();
}
MemoryFile VirtualMemory::file() const noexcept {
  return mapping_->file();
}
void VirtualMemory::close_file() noexcept {
  mapping_->close_file();
}

}  // namespace loom::device::cuda
