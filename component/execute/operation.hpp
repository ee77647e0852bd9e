// operation.hpp -- one call on its way: the executor that performs it, and how far it has come. A blocking
// call is an operation that is driven at once; a request leaves its operation to the progress engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>

#include "component/execute/adopted_broadcast.hpp"
#include "component/select/select.hpp"
#include "device/cuda/kernel_executor.hpp"
#include "device/cuda/zero_copy_executor.hpp"
#include "device/host/cico_blocks_executor.hpp"
#include "device/host/cico_executor.hpp"
#include "device/host/cico_scan_executor.hpp"
#include "device/host/dbt_executor.hpp"
#include "device/host/hier_executor.hpp"
#include "device/host/lane_exchange.hpp"
#include "device/host/pairwise_executor.hpp"
#include "device/host/single_copy_executor.hpp"
#include "device/host/split_rail_executor.hpp"
#include "device/host/tiered_cico_executor.hpp"

namespace loom {

/// What performs a call; nothing before its turn has come. Execution::make_executor() makes them all.
using Executor =
    std::variant<std::monostate, device::CicoExecutor, device::SingleCopyExecutor, device::CicoBlocksExecutor,
                 device::CicoScanExecutor, device::LaneExchangeExecutor, device::HierExecutor,
                 device::SplitRailExecutor, device::RootedExecutor, device::DbtExecutor,
                 device::PairwiseExecutor, device::TieredCicoExecutor, device::cuda::ZeroCopyExecutor,
                 device::cuda::KernelExecutor>;

using State = device::RingExecutor::State;

struct Operation {
  device::Call call;
  Algorithm algorithm;
  const device::cuda::ProgramMark* after = nullptr;  ///< of executors on GPUs; nullptr: made when they begin
  Executor executor = {};
  /// In place of `call`, once the root was seen to have another size.
  std::unique_ptr<AdoptedBroadcast> adopted = {};
  bool executed = false;              ///< the result is in place, but what was sent may not have left
  std::optional<int> not_quiet = {};  ///< then: the rank that has not taken all of it
  std::uint64_t released = 0;         ///< and how much the peers had, when last looked

  /// Ready to be performed again.
  void reset() noexcept {
    executor.emplace<std::monostate>();
    adopted.reset();
    executed = false;
  }
};

}  // namespace loom
