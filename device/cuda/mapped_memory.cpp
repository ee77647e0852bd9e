#include "device/cuda/mapped_memory.hpp"

#include <sys/mman.h>

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::device::cuda {

struct MappedMemory::Pages {
  /// Shared with children, for a private page that one of them has is copied by whom writes it next: then the
  /// GPU and this process would no longer see the same one.
  explicit Pages(std::size_t of)
      : bytes(of), at(::mmap(nullptr, of, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (at == MAP_FAILED)
      throw Error(ErrorCode::kOutOfMemory,
                  loom::format("There are no {} bytes for links between GPUs of different hosts.", bytes));
  }
  ~Pages() {
    if (may_go) ::munmap(at, bytes);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::size_t bytes;
  void* at;
  bool may_go = true;  ///< CUDA has them locked no longer
};

MappedMemory::MappedMemory(Gpu& gpu, std::size_t bytes) : gpu_(gpu), pages_(std::make_shared<Pages>(bytes)) {
  on_gpu_ = gpu_.map(on_host().get(), bytes);
}

MappedMemory::~MappedMemory() {
  pages_->may_go = gpu_.unmap(on_host().get());
}

std::shared_ptr<std::byte> MappedMemory::on_host() const noexcept {
  return {pages_, static_cast<std::byte*>(pages_->at)};
}

}  // namespace loom::device::cuda
