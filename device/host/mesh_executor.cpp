#include "device/host/mesh_executor.hpp"

#include <algorithm>
#include <cstring>

namespace loom::device {

MeshExecutor::MeshExecutor(const Mesh& mesh, const HostJob& job)
    : mesh_(mesh), job_(job), awaited_(mesh.rank) {
  // Each rank begins with the one behind it, so that not all send to one at once.
  const auto ranks = static_cast<int>(mesh.links.size());
  for (int k = 1; k < ranks; ++k)
    if (const int rank = (mesh.rank + k) % ranks; mesh.links[static_cast<std::size_t>(rank)].send != nullptr)
      peers_.push_back({rank});
  plan_inside();
}

void MeshExecutor::Selected::move(void* context, int block, std::byte* packed, std::size_t bytes) {
  const auto& self = *static_cast<const Selected*>(context);
  self.all->move(self.all->context, self.ranks[static_cast<std::size_t>(block)], packed, bytes);
}

/// What my host's ranks owe each other is an all-to-all of its own.
void MeshExecutor::plan_inside() {
  for (const int mate : mesh_.mates) {
    const std::size_t at = static_cast<std::size_t>(mate) * job_.bytes();
    in_blocks_.push_back(
        {job_.in_gaps != nullptr ? nullptr : const_cast<std::byte*>(job_.in) + at, job_.bytes()});
    out_blocks_.push_back({job_.out_gaps != nullptr ? nullptr : job_.out + at, job_.bytes()});
  }
  inside_job_.collective = Collective::kAllToAllV;
  inside_job_.in_blocks = in_blocks_.data();
  inside_job_.out_blocks = out_blocks_.data();
  inside_job_.owns_its_block = job_.in == job_.out && job_.in_gaps == nullptr && job_.out_gaps == nullptr;
  const auto select = [&](const Gaps* all, Selected& selected, Gaps& gaps) -> const Gaps* {
    if (all == nullptr) return nullptr;
    selected = {all, mesh_.mates};
    gaps = {Selected::move, &selected};
    return &gaps;
  };
  inside_job_.in_gaps = select(job_.in_gaps, in_selected_, in_gaps_);
  inside_job_.out_gaps = select(job_.out_gaps, out_selected_, out_gaps_);
  if (mesh_.boards != nullptr)
    inside_.emplace(*mesh_.boards, inside_job_);
  else
    move_own_block(inside_job_, 0);
}

MeshExecutor::State MeshExecutor::advance() {
  bool moved = false, done = true;
  if (inside_) {
    const State state = inside_->advance();
    moved = state != State::kBlocked;
    done = state == State::kDone;
    if (done) inside_.reset();
    if (!done) awaited_ = mesh_.mates[static_cast<std::size_t>(inside_->awaited())];
  }
  for (Peer& peer : peers_) {
    moved |= send(peer);
    moved |= receive(peer);
    if (peer.sent == job_.bytes() && peer.received == job_.bytes()) continue;
    if (done) awaited_ = peer.rank;
    done = false;
  }
  return done ? State::kDone : moved ? State::kMoved : State::kBlocked;
}

bool MeshExecutor::send(Peer& peer) {
  if (peer.sent == job_.bytes()) return false;
  SendLink& link = *mesh_.links[static_cast<std::size_t>(peer.rank)].send;
  std::byte* const slot = link.try_acquire();
  if (slot == nullptr) return false;
  const std::size_t bytes = std::min(mesh_.slot_bytes, job_.bytes() - peer.sent);
  if (job_.in_gaps != nullptr)
    job_.in_gaps->move(job_.in_gaps->context, peer.rank, slot, bytes);
  else
    std::memcpy(slot, job_.in + static_cast<std::size_t>(peer.rank) * job_.bytes() + peer.sent, bytes);
  link.publish(bytes);
  peer.sent += bytes;
  return true;
}

/// In place, what comes takes the place of what has been sent.
bool MeshExecutor::receive(Peer& peer) {
  if (peer.received == peer.sent) return false;
  RecvLink& link = *mesh_.links[static_cast<std::size_t>(peer.rank)].receive;
  const std::byte* const slot = link.try_receive();
  if (slot == nullptr) return false;
  const std::size_t bytes = std::min(mesh_.slot_bytes, job_.bytes() - peer.received);
  if (job_.out_gaps != nullptr)
    job_.out_gaps->move(job_.out_gaps->context, peer.rank, const_cast<std::byte*>(slot), bytes);
  else
    std::memcpy(job_.out + static_cast<std::size_t>(peer.rank) * job_.bytes() + peer.received, slot, bytes);
  link.release();
  peer.received += bytes;
  return true;
}

}  // namespace loom::device
