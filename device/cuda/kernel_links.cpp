#include "device/cuda/kernel_links.hpp"

#include <cstring>
#include <new>
#include <vector>

#include "device/schedule/divide_up.hpp"

namespace loom::device::cuda {
namespace {

/// Fruitless looks at a flag before a kernel leaves; each takes about a microsecond (an estimate, not
/// measured).
constexpr unsigned kPatience = 1 << 14;

}  // namespace

KernelLinks::KernelLinks(GpuStream& stream, int rank, std::span<std::byte* const> memory,
                         const KernelChannels& channels, std::vector<steps::FarEnd> far,
                         std::byte* far_on_gpu)
    : stream_(stream),
      rank_(rank),
      ranks_(static_cast<int>(memory.size())),
      form_(channels.form()),
      layout_(channels.layout(ranks_)),
      ways_(ranks_, channels),
      far_ends_(std::move(far)),
      table_bytes_(divide_up(layout_.table_bytes(layout_.channels()), sizeof(Word)) * sizeof(Word)),
      words_(new (gpu().allocate_on_host(sizeof(Words) + blocks_bytes())) Words{}) {
  try {
    table_ = gpu().allocate(table_bytes_ + sizeof(Word) + blocks_bytes());
    std::vector<steps::FarEnd> kernels_far = far_ends_;
    if (!far_ends_.empty()) {
      far_.emplace(gpu(), steps::far_bytes(far_ends_).host);
      steps::place(far_ends_, far_->on_host().get(), far_on_gpu);
      steps::place(kernels_far, far_->on_gpu(), far_on_gpu);
    }
    const std::vector<std::byte> table = layout_.table(memory, rank, layout_.channels(), table_, kernels_far);
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

void KernelLinks::start(steps::Task task, std::optional<Op> op, Type type, int channels,
                        std::span<const Part> blocks) {
  task.rank = rank_;
  const steps::LinkKind kind = steps::links_of(task.algorithm);
  if (kind == steps::LinkKind::kExchange && channels != layout_.channels())
    throw Error(ErrorCode::kInternal, "An all-to-all goes by some of the channels that share its distances.");
  task.total_weight = layout_.total_weight(kind, channels);
  if (carrier_ != nullptr) carrier_->enter(kind);
  if (!blocks.empty()) {
    std::byte* const on_host = reinterpret_cast<std::byte*>(words_ + 1);
    std::byte* const on_gpu = table_ + table_bytes_ + sizeof(Word);
    std::memcpy(on_host, blocks.data(), blocks.size_bytes());
    stream_.copy(on_gpu, on_host, blocks.size_bytes());
    task.blocks = reinterpret_cast<const Part*>(on_gpu);
  }
  args_ = {.task = task,
           .form = form_,
           .channels = reinterpret_cast<steps::Channel*>(table_),
           .abandoned = &words_->abandoned,
           .failed = &words_->failed,
           .left = &words_->left,
           .words = {.arrived = reinterpret_cast<Word*>(table_ + table_bytes_), .ended = &words_->ended},
           .patience = kPatience};
  op_ = op;
  type_ = type;
  blocks_ = static_cast<unsigned>(channels);
  launch();
}

KernelLinks::Choice KernelLinks::choose(Collective collective, std::size_t bytes, KernelLinkage linkage) {
  const std::lock_guard lock(choosing_);
  if (!chosen_ || chosen_->collective != collective || chosen_->bytes != bytes ||
      chosen_->linkage != linkage) {
    const KernelWay way = ways_.way(collective, bytes, linkage);
    chosen_ = {collective, bytes, linkage, {way, ways_.us(way, bytes)}};
  }
  return chosen_->choice;
}

void KernelLinks::launch() {
  steps::store_release(&words_->left, 0);
  args_.words.launch = launches_ + 1;
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
  const bool there = results_are_there();
  if (carrier_ == nullptr || was_abandoned()) return there;
  if (there) return !carrier_->not_quiet();
  carrier_->advance();
  return false;
}

bool KernelLinks::results_are_there() {
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
