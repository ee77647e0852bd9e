// memory_file.hpp -- device memory as a file that processes can share: the bytes, which of them were ever
// written, and what all who map it have to know.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tests/virtual_gpu/memory/arrivals.hpp"
#include "tests/virtual_gpu/memory/space.hpp"

namespace virtual_gpu {

using Uuid = std::array<std::byte, 16>;

class MemoryFile {
 public:
  /// At the end of the file.
  struct Shared {
    std::uint64_t magic, cookie;
    std::uint64_t bytes, first;
    Uuid gpu;
    std::uint64_t written_at;          ///< 0: nobody notes what is written
    std::uint64_t arrivals_at;         ///< 0: nobody keeps virtual time
    std::atomic<std::uint32_t> freed;  ///< its owner has freed it
    std::uint32_t exportable;          ///< of virtual memory
    memory::LineLocks locks;
  };

  /// nullptr: there is no memory. first: at which byte of a page the memory begins.
  static std::unique_ptr<MemoryFile> create(std::size_t bytes, std::size_t first, const Uuid& gpu,
                                            bool notes_written);
  /// Takes the file descriptor in any case. nullptr: it is no such file.
  static std::unique_ptr<MemoryFile> open(int file);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int file() const { return file_; }
  std::size_t bytes() const { return shared_->bytes; }
  /// Where this process may reach it.
  std::byte* data() const { return mapped_ + first(); }
  Shared& shared() const { return *shared_; }
  memory::WrittenMap* written() const { return written_.get(); }
  /// By lines of 128 bytes; nullptr: nobody keeps virtual time.
  memory::Arrivals* arrivals() const {
    return shared_->arrivals_at == 0 ? nullptr
                                     : reinterpret_cast<memory::Arrivals*>(mapped_ + shared_->arrivals_at);
  }
  /// Whole pages, and where in them the memory begins.
  std::size_t mapped_bytes() const;
  std::size_t first() const { return shared_->first; }

 private:
  explicit MemoryFile(int file) : file_(file) {}
  bool map();

  int file_;
  std::size_t file_bytes_ = 0;
  std::byte* mapped_ = nullptr;
  Shared* shared_ = nullptr;
  std::unique_ptr<memory::WrittenMap> written_;
};

inline constexpr std::size_t kPage = 4096;
constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace virtual_gpu
