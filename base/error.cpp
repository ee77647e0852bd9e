#include "base/error.hpp"

#include <cerrno>
#include <system_error>

namespace loom {

Error system_error(const std::string& what, int errnum) {
  const auto code = errnum == ENOMEM || errnum == ENOSPC ? ErrorCode::kOutOfMemory : ErrorCode::kSystem;
  return Error(code, what + ": " + std::generic_category().message(errnum));
}

}  // namespace loom
