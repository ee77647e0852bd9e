#include "device/host/single_copy_executor.hpp"

#include <cstring>

#include "device/host/peer_memory.hpp"

namespace loom::device {

SingleCopyExecutor::SingleCopyExecutor(Boards& boards, std::span<const std::int64_t> pids, const HostJob& job)
    : boards_(boards), pids_(pids), job_(job) {
  if (job.collective != Collective::kAllToAll || job.in != job.out) return;
  const std::size_t bytes = static_cast<std::size_t>(boards.size()) * job.bytes();
  operand_copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::memcpy(operand_copy_.get(), job.in, bytes);
  job_.in = operand_copy_.get();
}

SingleCopyExecutor::State SingleCopyExecutor::advance() {
  if (round_ == kRounds) return State::kDone;
  if (!ready()) return State::kBlocked;
  if (round_ == 0 && !is_reader()) std::memcpy(boards_.to_write(), &job_.in, sizeof(job_.in));
  if (round_ == 1) read_operands();
  boards_.publish();
  return ++round_ == kRounds ? State::kDone : State::kMoved;
}

bool SingleCopyExecutor::is_reader() const {
  return job_.collective == Collective::kBroadcast && boards_.self() != job_.root;
}

/// As in a BoardExecutor: who only reads waits for the root alone, and writes nothing to its board.
bool SingleCopyExecutor::ready() {
  for (int rank = 0; rank < boards_.size(); ++rank) {
    if (rank == boards_.self() || (is_reader() && rank != job_.root)) continue;
    awaited_ = rank;
    if (!boards_.is_level(rank)) return false;
  }
  return true;
}

/// A block from what the rank has told to be its operand.
void SingleCopyExecutor::read(int rank, std::byte* to, std::size_t offset) const {
  const std::byte* operand;
  std::memcpy(&operand, boards_.to_read(rank), sizeof(operand));
  read_peer_memory(pids_[static_cast<std::size_t>(rank)], to, operand + offset, job_.bytes());
}

void SingleCopyExecutor::read_operands() {
  const int self = boards_.self();
  if (job_.collective == Collective::kBroadcast) {
    if (is_reader()) read(job_.root, job_.out, 0);
    return;
  }
  const std::size_t mine = static_cast<std::size_t>(self) * job_.bytes();
  const std::size_t offset = job_.collective == Collective::kAllToAll ? mine : 0;
  for (int k = 1; k < boards_.size(); ++k) {
    const int peer = (self + k) % boards_.size();  // not all from the same one at a time
    read(peer, job_.out + static_cast<std::size_t>(peer) * job_.bytes(), offset);
  }
  if (job_.in + offset != job_.out + mine) std::memcpy(job_.out + mine, job_.in + offset, job_.bytes());
}

}  // namespace loom::device
