#include "device/link/link.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace loom::device {

void LinkInCall::throw_different(const CallNote& its, const std::string& peer) const {
  throw Error(code_of_difference(its, note_),
              differ_in_size(its, note_)
                  ? fmt::format("{} has {} bytes in a call in which this rank has {}.", peer, its.bytes(),
                                note_.bytes())
                  : fmt::format("{} is in another collective call than this rank.", peer));
}

}  // namespace loom::device
