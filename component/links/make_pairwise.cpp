// make_pairwise.cpp -- links between every two ranks of different hosts, for all-to-alls. The first call
// that needs them makes them: most programs never do.
#include "component/communicator.hpp"
#include "component/links/shared_layout.hpp"
#include "component/setup/byte_stream.hpp"
#include "device/link/memory_near.hpp"

namespace loom {

/// True on every rank or on none.
bool Communicator::has_pairwise() {
  if (linking_) return false;
  if (links_.pairwise_state == LinkState::kNotMade) {
    linking_ = true;
    const bool made = meet(bootstrap_, process_, [&](Agreement& agreement) { make_pairwise(agreement); });
    linking_ = false;
    if (!made) links_.drop_pairwise();
    links_.pairwise_state = made ? LinkState::kReady : LinkState::kFailed;
  }
  return links_.pairwise_state == LinkState::kReady;
}

void Communicator::make_pairwise(Agreement& agreement) {
  const GatheredBytes handles = agreement.all_gather_bytes(make_pairwise_ends());
  join_all(links_.pairwise(), [&](int rank) { return ByteReader(handles[rank]); });
  agreement.agree();
  try {
    try_network(links_.pairwise(), {});
  } catch (...) {
    abandon_all(links_.pairwise());  // nobody need wait for this rank's words
    throw;
  }
  agreement.agree();
}

/// Makes this rank's ends; returns what the others need of them.
std::vector<std::byte> Communicator::make_pairwise_ends() {
  links_.of(LinkKind::kPairwise) = {spec_of(LinkKind::kPairwise), *group_, rank_};
  ucx_transport::Transport& transport = network();
  const device::MemoryNear near(process_.numa_node());
  ByteWriter writer;
  make_all(links_.pairwise(), transport, group_->names, writer);
  return writer.take();
}

device::PairwiseLinks Communicator::pairwise() {
  return {.links = links_.of(LinkKind::kPairwise).view(),
          .slot_bytes = kPairwiseFifo.slot_bytes,
          .cico = links_.cico ? &*links_.cico : nullptr,
          .mates = group_->placement.ranks_of(group_->placement.node_of(rank_)),
          .rank = rank_};
}

}  // namespace loom
