#include "device/host/direct_exchange.hpp"

#include <fmt/format.h>

#include "device/host/direct_exchange_code.hpp"

namespace loom::device {
namespace direct {

void gave_up(int rank) {
  throw Error(ErrorCode::kGivenUp, fmt::format("Rank {} gave up on this communicator.", rank));
}

}  // namespace direct

template class DirectExchangeOf<DirectArea>;

}  // namespace loom::device
