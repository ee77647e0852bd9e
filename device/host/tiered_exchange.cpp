#include "device/host/tiered_exchange.hpp"

#include "device/host/tiered_exchange_code.hpp"

namespace loom::device {

template class TieredExchangeOf<ImmediateArea>;

}  // namespace loom::device
