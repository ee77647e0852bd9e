#include "device/cuda/gpu_links.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "device/cuda/link_check.hpp"
#include "device/cuda/opened_memory.hpp"

namespace loom::device::cuda {

/// In host memory that all ranks share.
struct GpuLinks::Flags {
  ZeroCopyBoard board;
  alignas(kCacheLine) StepFlag abandoned;  ///< 1 when the rank uses these links no more
  StepFlag left;                           ///< 1 when the rank has detached from the others' memory
  alignas(kCacheLine) StepFlag begun;      ///< the call that the rank has enqueued last
  /// The last one that waits for no work of the rank's program, as far as its host has asked.
  StepFlag free_to_run;
};

GpuLinks::Flags& GpuLinks::flags_in(const Segment& segment) {
  return *reinterpret_cast<Flags*>(segment.data());
}

namespace {

/// Beside the slots: tables and words, and what a driver rounds up to.
constexpr std::size_t kBeside = 2 * 1024 * 1024;
/// With smaller ones a round would be mostly the host's part (an estimate; not measured).
constexpr std::size_t kLeastBounceBytes = 256 * 1024;

}  // namespace

KernelChannels GpuLinks::Form::of_kernels(int ranks) const {
  KernelChannels result = kernels;
  if (result.shapes.empty()) result.shapes = steps::plain_channels(ranks, channels, kernels.hosts);
  return result;
}

std::vector<steps::FarEnd> GpuLinks::Form::far_ends(int ranks, int rank) const {
  if (!has_kernels() || !kernels.between_hosts()) return {};
  const steps::Layout layout = of_kernels(ranks).layout(ranks);
  return layout.far_ends(rank, layout.channels());
}

/// To the next smaller one; false: there is none.
bool GpuLinks::Form::shrink(int ranks) {
  const auto halve_channels = [&] {
    channels /= 2;
    if (!kernels.shapes.empty()) kernels.shapes.resize(static_cast<std::size_t>(channels));
  };
  const std::size_t of_channels = bytes(ranks) - zero_copy_bytes();
  if (kernels.exchange)
    kernels.exchange = false;
  else if (channels > 1 && of_channels >= zero_copy_bytes())
    halve_channels();
  else if (bounce_bytes > kLeastBounceBytes)
    bounce_bytes /= 2;
  else if (channels > 1)
    halve_channels();
  else if (has_kernels() && zero_copy())
    channels = 0;
  else
    return false;
  return true;
}

std::uint64_t GpuLinks::room_for(const Form& form, int ranks) {
  return form.bytes_with_far(ranks) + kBeside;
}

std::optional<GpuLinks::Form> GpuLinks::fitting(Form form, int ranks, std::uint64_t room) {
  const bool exchange = form.kernels.exchange;
  while (room_for(form, ranks) > room)
    if (!form.shrink(ranks)) return {};
  // Whatever else has gone since may have left room.
  Form with_exchange = form;
  with_exchange.kernels.exchange = exchange && form.has_kernels();
  return room_for(with_exchange, ranks) <= room ? with_exchange : form;
}

std::uint64_t GpuLinks::least_room(Form form, int ranks) {
  while (form.shrink(ranks)) {
  }
  return room_for(form, ranks);
}

GpuLinks::GpuLinks(std::shared_ptr<Gpu> gpu, const Form& form, int ranks, Gpu::Memory memory)
    : gpu_(std::move(gpu)),
      form_(form),
      memory_kind_(memory),
      bytes_(form.bytes(ranks)),
      segment_(Segment::create(sizeof(Flags))),
      memory_(gpu_->allocate(bytes_ + (1 + static_cast<std::size_t>(ranks)) * sizeof(Word), memory),
              Release{gpu_.get()}),
      scratch_(gpu_->allocate(sizeof(Word)), Release{gpu_.get()}),
      far_(nullptr, Release{gpu_.get()}),
      stream_(std::make_unique<GpuStream>(*gpu_)),
      shared_(gpu_->share(memory_.get())),
      launch_words_(std::in_place, *gpu_) {}

GpuLinks::~GpuLinks() {
  leave();
  // Else plain memory stays until the process ends. Virtual memory stays until nobody has it mapped anyway.
  if (memory_kind_ == Gpu::Memory::kPlain && !all_have_left()) static_cast<void>(memory_.release());
  if (far_) gpu_->release_later(far_.release(), std::move(far_use_));
}

GpuLinks::Handle GpuLinks::handle() noexcept {
  told_ = true;
  return {segment_.handle(), shared_, this_process()};
}

bool GpuLinks::is_on_my_host(std::size_t rank) const {
  const std::vector<int>& hosts = form_.kernels.hosts;
  return hosts.empty() || hosts[rank] == hosts[static_cast<std::size_t>(self_)];
}

/// Kernels over links need that of few ranks, and without NVSwitch a GPU reaches eight others at the most.
std::vector<bool> GpuLinks::peers_in_memory() const {
  const int ranks = static_cast<int>(handles_.size());
  if (!form_.zero_copy()) {
    const steps::Layout layout = form_.of_kernels(ranks).layout(ranks);
    return layout.near_peers(self_, layout.channels());
  }
  std::vector<bool> peers;
  for (std::size_t rank = 0; rank < handles_.size(); ++rank) peers.push_back(is_on_my_host(rank));
  return peers;
}

/// Memory of a peer, which may lie where its program had some that this process still has open.
std::byte* GpuLinks::attach(const MemoryHandle& memory) const {
  constexpr std::chrono::seconds kPatience{1};
  const OpenedMemory::Place place{0, memory, bytes_ + (1 + handles_.size()) * sizeof(Word)};
  gpu_->opened().supersede(place);
  gpu_->opened().wait_for_room(place, kPatience);
  return gpu_->attach(memory);
}

void GpuLinks::connect(std::span<const Handle> handles, int self, std::vector<steps::FarEnd> far) {
  self_ = self;
  handles_.assign(handles.begin(), handles.end());
  mapped_.assign(handles.size(), nullptr);
  std::vector<ZeroCopyBoard*> boards;
  // All flags before any memory: then this rank sees who has left, even if attaching the memory fails.
  for (std::size_t rank = 0; rank < handles.size(); ++rank) {
    const bool is_mine = static_cast<int>(rank) == self;
    attached_.push_back(is_mine               ? segment_
                        : is_on_my_host(rank) ? Segment::attach(handles[rank].flags)
                                              : Segment());
    // While it is there: the process of a rank that has gone is not found any more.
    processes_.push_back(is_on_my_host(rank) ? as_seen_here(handles[rank].process) : ProcessId());
    if (form_.zero_copy()) boards.push_back(&flags_in(attached_.back()).board);
  }
  const std::vector<bool> peers = peers_in_memory();
  for (std::size_t rank = 0; rank < handles.size(); ++rank)
    if (static_cast<int>(rank) == self)
      mapped_[rank] = memory_.get();
    else if (peers[rank])
      mapped_[rank] = attach(handles[rank].memory);
  if (form_.zero_copy())
    zero_copy_.emplace(*stream_, *launch_words_, mapped_, form_.bounce_bytes, std::move(boards), self);
  if (form_.has_kernels()) {
    std::vector<std::byte*> of_kernels = mapped_;
    for (std::byte*& memory : of_kernels)
      if (memory != nullptr) memory += form_.zero_copy_bytes();
    if (const std::size_t bytes = steps::far_bytes(far).gpu; bytes > 0) {
      far_.reset(gpu_->allocate(bytes));
      far_use_ = std::make_shared<char>();
    }
    kernels_.emplace(*stream_, self, of_kernels, form_.of_kernels(static_cast<int>(handles.size())),
                     std::move(far), far_.get());
  }
  const std::uint64_t word = word_of(handles_[static_cast<std::size_t>(self)]);
  gpu_->copy(memory_.get() + bytes_, &word, sizeof(word));
}

std::vector<std::shared_ptr<std::byte>> GpuLinks::far_slots() const {
  std::vector<std::shared_ptr<std::byte>> slots;
  for (const steps::FarEnd& end : kernels_->far_ends())
    slots.push_back(end.on_gpu ? std::shared_ptr<std::byte>(far_use_, end.slots)
                               : std::shared_ptr<std::byte>(kernels_->far_memory(), end.slots));
  return slots;
}

void GpuLinks::carry_by(std::unique_ptr<Carrier> carrier) noexcept {
  carrier_ = std::move(carrier);
  kernels_->carry_by(*carrier_);
}

bool GpuLinks::delivers() {
  close_handles();  // everybody has it mapped
  bool all = true;
  for (std::size_t rank = 0; rank < mapped_.size(); ++rank) {
    if (mapped_[rank] == nullptr) continue;
    const std::byte* const at = mapped_[rank] + bytes_;
    std::uint64_t found = 0;
    // Through the own memory, so that this GPU reads the peer's.
    gpu_->copy(scratch_.get(), at, sizeof(found));
    gpu_->copy(&found, scratch_.get(), sizeof(found));
    all &= found == word_of(handles_[rank]);
    if (!zero_copy_) continue;
    std::byte* const there = mapped_[rank] + bytes_ + (1 + static_cast<std::size_t>(self_)) * sizeof(Word);
    stream_->combine(
        kCheckOp, kCheckType,
        {.operands = 2, .results = 2, .count = 1, .in = {at, at}, .out = {scratch_.get(), there}});
    stream_->synchronize();
    gpu_->copy(&found, scratch_.get(), sizeof(found));
    all &= found == 2 * word_of(handles_[rank]);
  }
  return all;
}

bool GpuLinks::has_been_reached() {
  if (!zero_copy_) return true;
  std::vector<Word> found(handles_.size());
  gpu_->copy(found.data(), memory_.get() + bytes_ + sizeof(Word), found.size() * sizeof(Word));
  return std::ranges::all_of(
      found, [&](Word word) { return word == 2 * word_of(handles_[static_cast<std::size_t>(self_)]); });
}

void GpuLinks::prepare_check() {
  if (kernels_) kernels_->prepare(kCheckOp, kCheckType);
}

void GpuLinks::check_kernels(std::chrono::milliseconds limit) {
  if (!kernels_) return;
  try {
    check_links(*kernels_, *stream_, self_, form_.of_kernels(static_cast<int>(handles_.size())),
                static_cast<int>(handles_.size()), limit, [this] { check_peers(); });
  } catch (...) {
    abandon();
    throw;
  }
}

void GpuLinks::close_handles() noexcept {
  segment_.close_handle();
  gpu_->close_handle(memory_.get());
}

template <class Body>
bool GpuLinks::any_flags(Body&& body) const {
  for (std::size_t rank = 0; rank < attached_.size(); ++rank)
    if (is_on_my_host(rank) && body(static_cast<int>(rank), flags_in(attached_[rank]))) return true;
  return false;
}

void GpuLinks::abandon() noexcept {
  flags_in(segment_).abandoned.publish(1);
  std::chrono::steady_clock::rep never = 0;
  abandoned_at_.compare_exchange_strong(never, std::chrono::steady_clock::now().time_since_epoch().count());
  if (carrier_) carrier_->abandon();
}

bool GpuLinks::may_still_work(int rank) const noexcept {
  constexpr std::chrono::seconds kPatience{2}, kMostPatience{20};  // 100 GB over PCIe take 10 s
  using Clock = std::chrono::steady_clock;
  const auto waited = Clock::now() - Clock::time_point(Clock::duration(abandoned_at_.load()));
  if (waited < kPatience) return true;
  if (waited > kMostPatience) return false;
  const ProcessId& process = processes_[static_cast<std::size_t>(rank)];
  return device::is_alive(process) && !is_stopped(process);
}

void GpuLinks::check_peers() const {
  any_flags([](int rank, const Flags& flags) {
    if (flags.abandoned.value() != 0)
      throw Error(ErrorCode::kGivenUp, loom::format("Rank {} gave up on this communicator.", rank));
    return false;
  });
}

void GpuLinks::call_has_begun() noexcept {
  flags_in(segment_).begun.publish(++calls_);
}

void GpuLinks::call_is_free_to_run() noexcept {
  flags_in(segment_).free_to_run.publish(calls_);
}

std::optional<GpuLinks::HeldUpBy> GpuLinks::held_up_by() const noexcept {
  std::optional<HeldUpBy> first, behind_program;
  any_flags([&](int rank, const Flags& flags) {
    if (flags.begun.value() < calls_) return first = {rank, false}, true;
    if (flags.free_to_run.value() < calls_ && !behind_program) behind_program = {rank, true};
    return false;
  });
  return first ? first : behind_program;
}

GpuStream& GpuLinks::stream_of_lanes() {
  if (!stream_of_lanes_) stream_of_lanes_ = std::make_unique<GpuStream>(*gpu_);
  return *stream_of_lanes_;
}

void GpuLinks::leave() noexcept {
  try {
    for (const auto& stream : {stream_.get(), stream_of_lanes_.get()})
      if (stream != nullptr && gpu_->is_alive()) stream->synchronize();  // a kernel whose results are there
  } catch (const Error&) {  // the GPU has failed: nothing runs there any more
  }
  carrier_.reset();
  kernels_.reset();
  zero_copy_.reset();
  launch_words_.reset();
  stream_.reset();
  stream_of_lanes_.reset();
  for (std::size_t rank = 0; rank < mapped_.size(); ++rank) {
    if (static_cast<int>(rank) != self_ && mapped_[rank] != nullptr)
      gpu_->detach(handles_[rank].memory, mapped_[rank]);
    mapped_[rank] = nullptr;
  }
  scratch_.reset();
  close_handles();
  flags_in(segment_).left.publish(1);
}

bool GpuLinks::all_have_left() const noexcept {
  if (!told_) return true;
  if (attached_.empty() || attached_.size() != handles_.size()) return false;  // that is not known
  return !any_flags([](int, const Flags& flags) { return flags.left.value() == 0; });
}

}  // namespace loom::device::cuda
