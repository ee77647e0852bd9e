// Compiled as counted_accesses.cpp says.
#include "tests/cores/loom_calls.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "device/host/cico_blocks_executor.hpp"
#include "device/host/cico_scan_executor.hpp"
#include "device/host/single_copy_executor.hpp"

namespace loom::cores {
namespace {

using device::Collective;

bool has_block_for_each(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
}
bool has_block_of_each(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kAllToAll;
}

device::CallFamily family_of(Way way) {
  if (way == Way::kSingleCopy) return device::CallFamily::kSingleCopy;
  return way == Way::kCico ? device::CallFamily::kCico : device::CallFamily::kTieredCico;
}

/// Element i of what a rank has.
std::uint64_t value(std::uint64_t call, std::size_t rank, std::size_t i) {
  return call << 40 | static_cast<std::uint64_t>(rank) << 20 | i;
}

}  // namespace

device::Tiers tiers_of(const World& world, int most) {
  std::vector<device::TierPlace> places;
  for (int rank = 0; rank < world.ranks(); ++rank)
    places.push_back({world.core(rank).cache, world.core(rank).numa_node});
  return {places, most};
}

LoomRanks::LoomRanks(World& world, const device::Tiers& tiers)
    : world_(world), pids_(static_cast<std::size_t>(world.ranks())), buffers_(pids_.size()) {
  std::vector<device::ImmediateArea*> areas;
  std::vector<device::CicoBuffer*> cico;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    areas.push_back(world.make<device::ImmediateArea>());
    cico.push_back(world.make<device::CicoBuffer>());
  }
  std::vector<device::GroupsBuffer*> of_groups;
  for (int rank = 0; rank < world.ranks() && device::CicoGroups::members_of(world.ranks()) > 1; ++rank)
    of_groups.push_back(world.make<device::GroupsBuffer>());
  for (int rank = 0; rank < world.ranks(); ++rank) {
    if (!of_groups.empty())
      groups_.push_back(std::make_unique<device::CicoGroups>(of_groups, tiers, rank, false));
    immediate_.push_back(std::make_unique<device::ImmediateExchange>(areas, rank));
    tiered_.push_back(std::make_unique<device::TieredExchange>(*immediate_.back(), tiers));
    cico_.push_back(std::make_unique<device::CicoBuffers>(cico, rank));
  }
}

void LoomRanks::fill(Collective collective, std::size_t count, bool others_read) {
  const auto ranks = static_cast<std::size_t>(world_.ranks());
  const std::size_t in = count * (has_block_for_each(collective) ? ranks : 1),
                    out = count * (has_block_of_each(collective) ? ranks : 1);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Buffers& buffers = buffers_[rank];
    buffers.own_in.resize(others_read ? 0 : in);
    buffers.own_out.resize(others_read ? 0 : out);
    if (others_read) {
      buffers.in = reinterpret_cast<std::uint64_t*>(world_.allocate(in * sizeof(std::uint64_t)));
      buffers.out = reinterpret_cast<std::uint64_t*>(world_.allocate(out * sizeof(std::uint64_t)));
    } else {
      buffers.in = buffers.own_in.data();
      buffers.out = buffers.own_out.data();
    }
    for (std::size_t i = 0; i < in; ++i) buffers.in[i] = value(call_, rank, i);
  }
}

void LoomRanks::check(Collective collective, std::size_t count) const {
  const auto ranks = static_cast<std::size_t>(world_.ranks());
  for (std::size_t rank = 0; rank < ranks && collective != Collective::kBarrier; ++rank) {
    if (rank == 0 ? collective == Collective::kBroadcast : collective == Collective::kReduce) continue;
    for (std::size_t from = 0; from < (has_block_of_each(collective) ? ranks : 1); ++from)
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = has_block_for_each(collective) ? rank * count + i : i;
        std::uint64_t expected = value(call_, from, at);
        const std::size_t operands = collective == Collective::kScan ? rank + 1 : ranks;
        for (std::size_t other = 1; other < operands && device::is_reduction(collective); ++other)
          expected += value(call_, other, at);
        if (buffers_[rank].out[from * count + i] != expected)
          throw Error(ErrorCode::kInternal, loom::format("Rank {} has a wrong result.", rank));
      }
  }
}

Counts LoomRanks::call(Way way, Collective collective, std::size_t bytes) {
  ++call_;
  const std::size_t count = bytes / sizeof(std::uint64_t);
  fill(collective, count, way == Way::kSingleCopy);
  const Counts counts = world_.run([&](int rank) {
    Buffers& buffers = buffers_[static_cast<std::size_t>(rank)];
    device::Call call{.collective = collective, .count = count, .type = device::Type::kUint64};
    call.in = reinterpret_cast<const std::byte*>(buffers.in);
    call.out = reinterpret_cast<std::byte*>(buffers.out);
    if (way == Way::kSingleCopy)
      world_.write(call.in, bytes * (has_block_for_each(collective) ? pids_.size() : 1));
    perform(rank, way, call);
  });
  check(collective, count);
  return counts;
}

/// As Execution::perform() does for a blocking call.
void LoomRanks::perform(int rank, Way way, const device::Call& call) {
  static const device::WaitPolicy policy{.progress = {}, .check_peers = {}, .oversubscribed = true};
  device::Waiter waiter(policy);
  device::ImmediateExchange& immediate = *immediate_[static_cast<std::size_t>(rank)];
  if (way == Way::kImmediate) return immediate.perform(call, waiter);
  if (way == Way::kTiered) return tiered_[static_cast<std::size_t>(rank)]->perform(call, waiter);
  immediate.announce(call, family_of(way), waiter);
  drive(rank, way, call);
}

void LoomRanks::drive(int rank, Way way, const device::Call& call) {
  device::CicoBuffers& cico = *cico_[static_cast<std::size_t>(rank)];
  const auto to_the_end = [&](auto&& executor) {
    using State = device::RingExecutor::State;
    for (State state = executor.advance(); state != State::kDone; state = executor.advance())
      if (state == State::kBlocked) world_.wait();
  };
  if (way == Way::kSingleCopy)
    to_the_end(device::SingleCopyExecutor(cico, pids_, call));
  else if (way == Way::kTieredCico)
    to_the_end(device::TieredCicoExecutor(*groups_[static_cast<std::size_t>(rank)], call));
  else if (call.collective == Collective::kBarrier)
    to_the_end(device::CicoBlocksExecutor(cico, call));
  else if (call.collective == Collective::kScan)
    to_the_end(device::CicoScanExecutor(cico, call));
  else
    to_the_end(device::CicoExecutor(cico, call, false));
}

}  // namespace loom::cores
