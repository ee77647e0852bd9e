#include "device/link/link.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::device {

void LinkInCall::throw_different(const CallNote& its, const std::string& peer) const {
  throw Error(code_of_difference(its, note_),
              differ_in_size(its, note_)
                  ? loom::format("{} has {} bytes in a call in which this rank has {}.", peer, its.bytes(),
                                 note_.bytes())
                  : loom::format("{} is in another collective call than this rank.", peer));
}

}  // namespace loom::device
