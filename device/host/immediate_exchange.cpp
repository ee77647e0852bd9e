#include "device/host/immediate_exchange.hpp"

#include "base/format.hpp"
#include "device/host/immediate_exchange_code.hpp"

namespace loom::device {
namespace immediate {

void gave_up(int rank) {
  throw Error(ErrorCode::kGivenUp, loom::format("Rank {} gave up on this communicator.", rank));
}

}  // namespace immediate

template class ImmediateExchangeOf<ImmediateArea>;

}  // namespace loom::device
