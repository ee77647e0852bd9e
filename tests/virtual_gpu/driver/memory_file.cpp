#include "tests/virtual_gpu/driver/memory_file.hpp"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/virtual_gpu/machine/clock.hpp"

namespace virtual_gpu {
namespace {

constexpr std::uint64_t kMagic = 0x7669727475616c47;
static_assert(sizeof(MemoryFile::Shared) <= kPage);

}  // namespace

std::unique_ptr<MemoryFile> MemoryFile::create(std::size_t bytes, std::size_t first, const Uuid& gpu,
                                               bool notes_written) {
  const std::size_t pages = whole_pages(first + bytes),
                    bits = notes_written ? whole_pages(memory::WrittenMap::words_for(bytes) * 8) : 0,
                    arrivals =
                        machine::keeps_time() ? whole_pages((bytes / 128 + 1) * sizeof(memory::Arrivals)) : 0;
  const int descriptor = ::memfd_create("virtual_gpu", MFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  std::unique_ptr<MemoryFile> memory(new MemoryFile(descriptor));
  memory->file_bytes_ = pages + bits + arrivals + kPage;
  if (::ftruncate(descriptor, static_cast<off_t>(memory->file_bytes_)) != 0) return nullptr;
  Shared shared{};
  shared.magic = kMagic;
  shared.bytes = bytes;
  shared.first = first;
  shared.gpu = gpu;
  shared.written_at = notes_written ? pages : 0;
  shared.arrivals_at = arrivals > 0 ? pages + bits : 0;
  if (::getrandom(&shared.cookie, sizeof(shared.cookie), 0) != sizeof(shared.cookie)) return nullptr;
  if (::pwrite(descriptor, &shared, sizeof(shared), static_cast<off_t>(memory->file_bytes_ - kPage)) !=
      sizeof(shared))
    return nullptr;
  return memory->map() ? std::move(memory) : nullptr;
}

std::unique_ptr<MemoryFile> MemoryFile::open(int file) {
  std::unique_ptr<MemoryFile> memory(new MemoryFile(file));
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0 || status.st_size < static_cast<off_t>(2 * kPage))
    return nullptr;
  std::uint64_t magic = 0;
  if (::pread(file, &magic, sizeof(magic), status.st_size - static_cast<off_t>(kPage)) != sizeof(magic) ||
      magic != kMagic)
    return nullptr;
  memory->file_bytes_ = static_cast<std::size_t>(status.st_size);
  return memory->map() ? std::move(memory) : nullptr;
}

bool MemoryFile::map() {
  void* const mapped = ::mmap(nullptr, file_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) return false;
  mapped_ = static_cast<std::byte*>(mapped);
  shared_ = reinterpret_cast<Shared*>(mapped_ + file_bytes_ - kPage);
  if (shared_->written_at != 0)
    written_ =
        std::make_unique<memory::WrittenMap>(reinterpret_cast<std::uint64_t*>(mapped_ + shared_->written_at));
  return true;
}

std::size_t MemoryFile::mapped_bytes() const {
  return whole_pages(first() + bytes());
}

MemoryFile::~MemoryFile() {
  if (mapped_ != nullptr) ::munmap(mapped_, file_bytes_);
  if (file_ >= 0) ::close(file_);
}

}  // namespace virtual_gpu
