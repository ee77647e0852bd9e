#include "device/host/single_copy_executor.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "device/host/peer_memory.hpp"

namespace loom::device {
namespace {

constexpr std::size_t kStepBytes = 16 * 1024;  // of a block on its way into a buffer with gaps

}  // namespace

SingleCopyExecutor::SingleCopyExecutor(Boards& boards, std::span<const std::int64_t> pids, const HostJob& job)
    : boards_(boards), pids_(pids), job_(job), operand_(job.in_gaps == nullptr ? job.in : nullptr) {
  if (job.collective != Collective::kAllToAll || operand_ == nullptr || job.in != job.out) return;
  const std::size_t bytes = static_cast<std::size_t>(boards.size()) * job.bytes();
  operand_copy_.reset(new (std::nothrow) std::byte[bytes]);
  if (operand_copy_) std::memcpy(operand_copy_.get(), job.in, bytes);
  operand_ = operand_copy_.get();
}

SingleCopyExecutor::State SingleCopyExecutor::advance() {
  if (by_boards_) return by_boards_->advance();
  if (round_ == kRounds) return State::kDone;
  if (!ready()) return State::kBlocked;
  if (round_ == 0 && !is_reader()) std::memcpy(boards_.to_write(), &operand_, sizeof(operand_));
  if (round_ == 1) {
    if (!all_readable()) return by_boards_.emplace(boards_, job_).advance();
    read_operands();
  }
  if (++round_ == kRounds) return State::kDone;  // see Board
  boards_.publish();
  return State::kMoved;
}

bool SingleCopyExecutor::is_reader() const {
  return job_.collective == Collective::kBroadcast && boards_.self() != job_.root;
}

/// As in a BoardExecutor: who only reads waits for the root alone, writes nothing to its board, and has
/// nobody to wait for once it has read.
bool SingleCopyExecutor::ready() {
  for (int rank = 0; rank < boards_.size(); ++rank) {
    if (rank == boards_.self() || (is_reader() && (rank != job_.root || round_ != 1))) continue;
    awaited_ = rank;
    if (!(round_ == 0 ? boards_.is_past(rank) : boards_.is_level(rank))) return false;
  }
  return true;
}

/// What the rank has told to be its operand.
const std::byte* SingleCopyExecutor::operand_of(int rank) const {
  const std::byte* operand;
  std::memcpy(&operand, boards_.to_read(rank), sizeof(operand));
  return operand;
}

/// The same answer on every rank.
bool SingleCopyExecutor::all_readable() const {
  if (job_.collective == Collective::kBroadcast) return operand_of(job_.root) != nullptr;
  for (int rank = 0; rank < boards_.size(); ++rank)
    if (operand_of(rank) == nullptr) return false;
  return true;
}

/// A block of the rank's operand to one of my output.
void SingleCopyExecutor::read(int rank, int block, std::size_t offset) const {
  const std::byte* const from = operand_of(rank) + offset;
  const auto pid = pids_[static_cast<std::size_t>(rank)];
  if (job_.out_gaps == nullptr) {
    read_peer_memory(pid, job_.out + static_cast<std::size_t>(block) * job_.bytes(), from, job_.bytes());
    return;
  }
  std::byte step[kStepBytes];
  for (std::size_t at = 0; at < job_.bytes(); at += kStepBytes) {
    const std::size_t bytes = std::min(kStepBytes, job_.bytes() - at);
    read_peer_memory(pid, step, from + at, bytes);
    job_.out_gaps->move(job_.out_gaps->context, block, step, bytes);
  }
}

void SingleCopyExecutor::read_operands() {
  const int self = boards_.self();
  if (job_.collective == Collective::kBroadcast) {
    if (is_reader()) read(job_.root, 0, 0);
    return;
  }
  const std::size_t mine = static_cast<std::size_t>(self) * job_.bytes();
  const std::size_t offset = job_.collective == Collective::kAllToAll ? mine : 0;
  for (int k = 1; k < boards_.size(); ++k) {
    const int peer = (self + k) % boards_.size();  // not all from the same one at a time
    read(peer, peer, offset);
  }
  if (job_.out_gaps != nullptr)
    job_.out_gaps->move(job_.out_gaps->context, self, const_cast<std::byte*>(operand_ + offset),
                        job_.bytes());
  else if (operand_ + offset != job_.out + mine)
    std::memcpy(job_.out + mine, operand_ + offset, job_.bytes());
}

}  // namespace loom::device
