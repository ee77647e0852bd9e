#include "device/host/immediate_exchange.hpp"

#include <fmt/format.h>

#include "device/host/immediate_exchange_code.hpp"

namespace loom::device {
namespace immediate {

void gave_up(int rank) {
  throw Error(ErrorCode::kGivenUp, fmt::format("Rank {} gave up on this communicator.", rank));
}

}  // namespace immediate

template class ImmediateExchangeOf<ImmediateArea>;

}  // namespace loom::device
