#include "device/cuda/kernel_links.hpp"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "device/schedule/divide_up.hpp"

namespace loom::device::cuda {
namespace {

/// Fruitless looks at a flag before a kernel leaves; each takes about a microsecond (an estimate, not
/// measured).
constexpr unsigned kPatience = 1 << 14;

std::size_t whole_lines(std::size_t elems, std::size_t elem_bytes) {
  constexpr std::size_t kLine = 128;
  const std::size_t line = std::max<std::size_t>(1, kLine / elem_bytes);
  return divide_up(elems, line) * line;
}

}  // namespace

std::optional<KernelWay> kernel_way(Collective collective, std::size_t bytes, int ranks, bool may_ll128,
                                    int most_channels) {
  using steps::Algorithm;
  using steps::Protocol;
  // Estimates, not measured: up to which size latency counts most, and how many bytes keep a block busy.
  constexpr std::size_t kMostOneShot = 64 * 1024, kMostTwoShot = 2 * 1024 * 1024, kMostLL128 = 512 * 1024;
  constexpr std::size_t kBytesPerChannel = 32 * 1024;
  if (ranks < 2 || ranks > steps::kMostPairwise) return {};
  const int channels = static_cast<int>(
      std::clamp<std::size_t>(bytes / kBytesPerChannel, 1, static_cast<std::size_t>(most_channels)));
  const Protocol of_rings = may_ll128 && bytes <= kMostLL128 ? Protocol::kLL128 : Protocol::kSimple;
  const Protocol of_pairs = may_ll128 ? Protocol::kLL128 : Protocol::kLL;
  switch (collective) {
    case Collective::kAllreduce:
      if (bytes <= kMostOneShot) return KernelWay{Algorithm::kOneShot, Protocol::kLL, channels};
      if (bytes <= kMostTwoShot) return KernelWay{Algorithm::kTwoShot, of_pairs, channels};
      return KernelWay{Algorithm::kAllreduceRing, Protocol::kSimple, channels};
    case Collective::kReduceScatter:
      return KernelWay{Algorithm::kReduceScatterRing, of_rings, channels};
    case Collective::kAllGather:
      return KernelWay{Algorithm::kAllGatherRing, of_rings, channels};
    case Collective::kBroadcast:
      return KernelWay{Algorithm::kBroadcastChain, of_rings, channels};
    case Collective::kReduce:
      return KernelWay{Algorithm::kReduceChain, of_rings, channels};
    default:
      return {};
  }
}

steps::Task divide(const KernelWay& way, std::size_t count, std::size_t elem_bytes, int size) {
  using steps::Algorithm;
  const auto ranks = static_cast<std::size_t>(size);
  const bool blocks =
                 way.algorithm == Algorithm::kReduceScatterRing || way.algorithm == Algorithm::kAllGatherRing,
             shares = way.algorithm == Algorithm::kAllreduceRing || way.algorithm == Algorithm::kTwoShot;
  steps::Task task;
  task.algorithm = way.algorithm;
  task.protocol = way.protocol;
  task.size = size;
  task.count = blocks ? count * ranks : count;
  task.chunk = shares ? whole_lines(divide_up(count, ranks), elem_bytes) : count;
  return task;
}

std::size_t kernel_bytes(int ranks, int channels) {
  return steps::Layout(kernel_form(), ranks, steps::plain_channels(ranks, channels)).bytes(channels);
}

KernelLinks::KernelLinks(GpuStream& stream, int rank, std::span<std::byte* const> memory,
                         std::vector<steps::ChannelShape> shapes)
    : stream_(stream), rank_(rank) {
  const int channels = static_cast<int>(shapes.size());
  const steps::Layout layout(kernel_form(), static_cast<int>(memory.size()), std::move(shapes));
  for (int used = 1; used <= channels; ++used) total_weights_.push_back(layout.total_weight(used));
  table_bytes_ = divide_up(layout.table_bytes(channels), sizeof(Word)) * sizeof(Word);
  words_ = new (gpu().allocate_on_host(sizeof(Words))) Words{};
  try {
    table_ = gpu().allocate(table_bytes_ + sizeof(Word));
    const std::vector<std::byte> table = layout.table(memory, rank, channels, table_);
    gpu().copy(table_, table.data(), table.size());
  } catch (...) {
    if (table_ != nullptr) gpu().release(table_);
    gpu().release_on_host(reinterpret_cast<std::byte*>(words_));
    throw;
  }
}

KernelLinks::~KernelLinks() {
  gpu().release(table_);
  gpu().release_on_host(reinterpret_cast<std::byte*>(words_));
}

void KernelLinks::start(steps::Task task, std::optional<Op> op, Type type, int channels) {
  task.rank = rank_;
  task.total_weight = total_weights_.at(static_cast<std::size_t>(channels) - 1);
  args_ = {.task = task,
           .form = kernel_form(),
           .channels = reinterpret_cast<steps::Channel*>(table_),
           .abandoned = &words_->abandoned,
           .failed = &words_->failed,
           .left = &words_->left,
           .arrived = reinterpret_cast<Word*>(table_ + table_bytes_),
           .ended = &words_->ended,
           .patience = kPatience};
  op_ = op;
  type_ = type;
  blocks_ = static_cast<unsigned>(channels);
  launch();
}

void KernelLinks::launch() {
  steps::store_release(&words_->left, 0);
  args_.launch = launches_ + 1;
  stream_.perform(op_, type_, args_, blocks_);
  ++launches_;
}

bool KernelLinks::goes_on() {
  if (steps::load_acquire(&words_->left) == 0 || was_abandoned()) return false;
  args_.task.resumes = true;
  launch();
  return true;
}

void KernelLinks::prepare(std::optional<Op> op, Type type) {
  start({}, op, type, 1);
  stream_.synchronize();
}

bool KernelLinks::has_ended() {
  // A kernel that has faulted writes no word. To ask the driver takes as long as many looks.
  constexpr unsigned kLooksPerQuery = 256;
  const auto is_there = [this] { return steps::load_acquire(&words_->ended) == launches_; };
  if (is_there()) return !goes_on();
  if (++looks_ % kLooksPerQuery != 0 || !stream_.is_idle()) return false;
  if (is_there()) return !goes_on();
  throw Error(ErrorCode::kDevice, "A kernel has ended and has not said so.");
}

bool KernelLinks::was_abandoned() const {
  return steps::load_acquire(&words_->failed) != 0;
}

bool KernelLinks::finish() {
  do {
    stream_.synchronize();
  } while (goes_on());
  return !was_abandoned();
}

void KernelLinks::abandon() noexcept {
  steps::store_release(&words_->abandoned, 1);
}

}  // namespace loom::device::cuda
