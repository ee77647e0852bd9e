#include "component/communicator/broken_by.hpp"

namespace loom {

void BrokenBy::set(const Error& cause) {
  const MutexLock lock(mutex_);
  cause_.emplace(cause);
  is_set_.store(true, std::memory_order_release);
}

void BrokenBy::throw_it() const {
  const MutexLock lock(mutex_);
  throw Error(*cause_);
}

}  // namespace loom
