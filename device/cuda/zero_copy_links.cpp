#include "device/cuda/zero_copy_links.hpp"

#include <utility>

#include "base/error.hpp"

namespace loom::device::cuda {

ZeroCopyLinks::ZeroCopyLinks(GpuStream& stream, LaunchWordsPool& words, std::span<std::byte* const> bounce,
                             std::size_t bounce_bytes, std::vector<ZeroCopyBoard*> boards, int self)
    : stream_(stream),
      bounce_(bounce.begin(), bounce.end()),
      bounce_bytes_(bounce_bytes),
      boards_(std::move(boards)),
      self_(self),
      buffers_(stream.gpu(), static_cast<int>(boards_.size()), self),
      pool_(words),
      words_(words.take()) {}

ZeroCopyLinks::~ZeroCopyLinks() {
  pool_.give_back(words_);
}

std::optional<int> ZeroCopyLinks::behind(StepFlag ZeroCopyBoard::*flag) const {
  for (int rank = 0; rank < size(); ++rank)
    if ((board(rank).*flag).value() < step_) return rank;
  return {};
}

void ZeroCopyLinks::start(std::optional<Op> op, Type type, CombineArgs args) {
  args.words = {.arrived = words_.arrived, .ended = words_.ended, .launch = launches_ + 1};
  stream_.combine(op, type, args);
  ++launches_;
}

bool ZeroCopyLinks::has_ended() {
  // A kernel that has faulted writes no word. To ask the driver takes as long as many looks.
  constexpr unsigned kLooksPerQuery = 256;
  const auto is_there = [this] { return steps::load_acquire(words_.ended) == launches_; };
  if (is_there()) return true;
  if (++looks_ % kLooksPerQuery != 0 || !stream_.is_idle()) return false;
  if (is_there()) return true;
  throw Error(ErrorCode::kDevice, "A kernel has ended and has not said so.");
}

}  // namespace loom::device::cuda
