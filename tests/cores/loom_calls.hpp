// loom_calls.hpp -- calls by loom's own executors on the ranks of a World.
#pragma once

#include <memory>
#include <vector>

#include "device/host/cico_executor.hpp"
#include "device/host/tiered_cico_executor.hpp"
#include "device/host/tiered_exchange.hpp"
#include "tests/cores/world.hpp"

namespace loom::cores {

/// How loom carries a call.
enum class Way { kImmediate, kTiered, kCico, kTieredCico, kSingleCopy };

/// The ranks of one communicator, with the memory that loom gives them.
class LoomRanks {
 public:
  LoomRanks(World& world, const device::Tiers& tiers);

  /// A call of `bytes`, of the message or of a block (whole elements of 8 bytes; 0 for a barrier), with rank
  /// 0 as the root. Reductions add integers. Throws Error where a result is wrong.
  Counts call(Way way, device::Collective collective, std::size_t bytes);

 private:
  struct Buffers {
    std::vector<std::uint64_t> own_in, own_out;  ///< the rank's alone
    std::uint64_t *in, *out;
  };
  void perform(int rank, Way way, const device::Call& call);
  void drive(int rank, Way way, const device::Call& call);
  void fill(device::Collective collective, std::size_t count, bool others_read);
  void check(device::Collective collective, std::size_t count) const;

  World& world_;
  std::vector<std::unique_ptr<device::ImmediateExchange>> immediate_;
  std::vector<std::unique_ptr<device::TieredExchange>> tiered_;
  std::vector<std::unique_ptr<device::CicoBuffers>> cico_;
  std::vector<std::unique_ptr<device::CicoGroups>> groups_;  ///< empty: there are none
  std::vector<std::int64_t> pids_;
  std::vector<Buffers> buffers_;
  std::uint64_t call_ = 0;
};

/// By what the ranks of the World share.
device::Tiers tiers_of(const World& world, int most);

}  // namespace loom::cores
