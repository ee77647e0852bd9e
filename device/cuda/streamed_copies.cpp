#include "device/cuda/streamed_copies.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/cuda/streams.hpp"

namespace loom::device::cuda {
namespace {

using Result = int;
using Address = std::uint64_t;
constexpr Result kSuccess = 0;

constexpr const char *kLoading = "it copies a buffer to the host while a call goes on",
                     *kStoring = "it copies a buffer to the device while a call goes on",
                     *kPreparing = "streams for copies are made";

Address address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

}  // namespace

/// One device buffer: its parts, and the streams that they are copied in.
class StreamedCopies::Side {
 public:
  Side(const StreamFunctions& functions, const StreamedSide& of)
      : functions_(functions),
        staging_buffer_(*of.staging_buffer),
        driver_(staging_buffer_.driver()),
        owner_(staging_buffer_.owner()),
        load_(of.load),
        store_(of.store) {}
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  /// Not in the constructor, so that what was made before a failure is destroyed.
  void begin();
  void need(const std::byte* first, std::size_t bytes);
  void need_all();
  void have(const std::byte* first, std::size_t bytes);
  void finish();

 private:
  enum class State : unsigned char { kThere, kOnItsWay, kHere };  // on the device, ..., on the host
  struct Buffer {
    explicit Buffer(const std::optional<StridedRegion>& region) {
      if (!region) return;
      host = region->host;
      device = region->device;
      bytes = region->row_bytes;
    }
    std::size_t parts() const { return (bytes + kPartBytes - 1) / kPartBytes; }
    std::size_t part_bytes(std::size_t part) const { return std::min(kPartBytes, bytes - part * kPartBytes); }
    /// Calls body(part, bytes of it) for each part that these bytes are in.
    template <class Body>
    void for_parts(const std::byte* first, std::size_t count, Body&& body) const {
      const std::byte* const from = std::max<const std::byte*>(first, host);
      const std::byte* const to = std::min<const std::byte*>(first + count, host + bytes);
      for (const std::byte* at = from; at < to;) {
        const auto part = static_cast<std::size_t>(at - host) / kPartBytes;
        const std::byte* const end = std::min<const std::byte*>(to, host + (part + 1) * kPartBytes);
        body(part, static_cast<std::size_t>(end - at));
        at = end;
      }
    }
    std::byte *host = nullptr, *device = nullptr;
    std::size_t bytes = 0;
    void* stream = nullptr;
  };

  /// Of the staging buffer's locked window, if its own pages are not locked; used in turn. The CPU copies
  /// between slots and the staging buffer.
  struct Slot {
    std::byte* memory;
    void* stored = nullptr;                 ///< event: it is on its way to the device
    std::optional<std::size_t> loads = {};  ///< the part that it brings
  };

  void check(Result result, const char* doing) const {
    if (result != kSuccess) throw driver_.error(doing, result);
  }
  bool passes_through_window() const noexcept { return !slots_.empty(); }
  void fetch(std::size_t part);
  void wait_for(std::size_t part);
  Result bring(std::size_t part);
  Result store(std::size_t part, std::size_t end);
  Result copy(const Buffer& buffer, std::size_t at, std::size_t bytes, std::byte* host);
  Result take_slot(Slot*& out);
  Result record(void*& event, void* stream);
  Result await(void*& event);

  const StreamFunctions& functions_;
  StagingBuffer& staging_buffer_;
  const Driver& driver_;
  Owner owner_;
  Buffer load_, store_;
  std::vector<State> loaded_;  ///< by part of load_
  std::vector<void*> events_;  ///< of those on their way
  std::vector<void*> spare_;   ///< events
  /// Bytes of each part of store_ that are final; a part is on its way back once all of them are.
  std::vector<std::uint32_t> final_;
  std::vector<Slot> slots_;
  std::size_t next_slot_ = 0;
  std::vector<Slot*> slot_of_;  ///< by part of load_ that is on its way
  bool busy_ = false;           ///< copies may be on their way
  bool stores_early_ = true;    ///< until that has failed: then finish() tries again, and reports it
};

void StreamedCopies::Side::begin() {
  loaded_.assign(load_.parts(), State::kThere);
  events_.assign(load_.parts(), nullptr);
  final_.assign(store_.parts(), 0);
  if (!staging_buffer_.is_locked()) {
    const std::span<std::byte> window = staging_buffer_.locked_window();
    for (std::size_t at = 0; at + kPartBytes <= window.size(); at += kPartBytes)
      slots_.push_back({.memory = &window[at]});
    slot_of_.assign(load_.parts(), nullptr);
  }
  spare_.reserve(load_.parts() + slots_.size() + 1);  // all events that there will be
  const Driver::CurrentContext context(driver_, owner_);
  check(context.result(), "a buffer's context is made current");
  void* before = nullptr;
  check(functions_.create_event(&before, kUntimedEvent), kPreparing);
  spare_.push_back(before);
  check(functions_.record(before, Driver::ProgramStream(driver_).stream()), kPreparing);
  for (Buffer* buffer : {&load_, &store_}) {
    if (buffer->bytes == 0) continue;
    check(functions_.create_stream(&buffer->stream, kNonBlockingStream), kPreparing);
    check(functions_.wait_in_stream(buffer->stream, before, 0), kPreparing);
  }
}

/// A context that has ended has taken its streams and copies along; but there are other reasons why it cannot
/// be made current.
StreamedCopies::Side::~Side() {
  const Driver::CurrentContext context(driver_, owner_);
  if (context.result() != kSuccess) {
    if (busy_) staging_buffer_.lose();
    return;
  }
  for (const Buffer* buffer : {&load_, &store_}) {
    if (buffer->stream == nullptr) continue;
    if (functions_.synchronize(buffer->stream) != kSuccess) staging_buffer_.lose();
    functions_.destroy_stream(buffer->stream);
  }
  for (const auto* events : {&events_, &spare_})
    for (void* event : *events)
      if (event != nullptr) functions_.destroy_event(event);
  for (const Slot& slot : slots_)
    if (slot.stored != nullptr) functions_.destroy_event(slot.stored);
}

void StreamedCopies::Side::need(const std::byte* first, std::size_t bytes) {
  load_.for_parts(first, bytes, [&](std::size_t part, std::size_t) {
    if (loaded_[part] == State::kHere) return;
    const std::size_t end = std::min(part + 1 + kPartsAhead, load_.parts());
    for (std::size_t next = part; next < end; ++next) fetch(next);
    wait_for(part);
  });
}

/// In one copy, if none has begun and the memory is locked.
void StreamedCopies::Side::need_all() {
  if (passes_through_window() ||
      std::ranges::any_of(loaded_, [](State state) { return state != State::kThere; }))
    return need(load_.host, load_.bytes);
  if (load_.bytes == 0) return;
  const Driver::CurrentContext context(driver_, owner_);
  check(context.result(), kLoading);
  check(copy(load_, 0, load_.bytes, load_.host), kLoading);
  check(functions_.synchronize(load_.stream), kLoading);
  std::ranges::fill(loaded_, State::kHere);
}

/// host: where the bytes pass.
Result StreamedCopies::Side::copy(const Buffer& buffer, std::size_t at, std::size_t bytes, std::byte* host) {
  busy_ = true;
  const Address here = address_of(host), there = address_of(buffer.device + at);
  const bool loads = &buffer == &load_;
  const Result result = functions_.copy(loads ? here : there, loads ? there : here, bytes, buffer.stream);
  if (result == kSuccess) staging_buffer_.note_copied(bytes);
  return result;
}

/// An event for the stream's work so far.
Result StreamedCopies::Side::record(void*& event, void* stream) {
  if (spare_.empty()) {
    if (const Result result = functions_.create_event(&event, kUntimedEvent); result != kSuccess)
      return result;
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  return functions_.record(event, stream);
}

Result StreamedCopies::Side::await(void*& event) {
  const Result result = functions_.wait(event);
  if (result == kSuccess) spare_.push_back(std::exchange(event, nullptr));
  return result;
}

/// The next one, when what it holds is where it belongs.
Result StreamedCopies::Side::take_slot(Slot*& out) {
  Slot& slot = slots_[next_slot_];
  if (slot.stored != nullptr)
    if (const Result result = await(slot.stored); result != kSuccess) return result;
  if (slot.loads)
    if (const Result result = bring(*slot.loads); result != kSuccess) return result;
  next_slot_ = (next_slot_ + 1) % slots_.size();
  out = &slot;
  return kSuccess;
}

void StreamedCopies::Side::fetch(std::size_t part) {
  if (loaded_[part] != State::kThere) return;
  const Driver::CurrentContext context(driver_, owner_);
  check(context.result(), kLoading);
  std::byte* host = load_.host + part * kPartBytes;
  Slot* slot = nullptr;
  if (passes_through_window()) {
    check(take_slot(slot), kLoading);
    host = slot->memory;
  }
  check(copy(load_, part * kPartBytes, load_.part_bytes(part), host), kLoading);
  check(record(events_[part], load_.stream), kLoading);
  loaded_[part] = State::kOnItsWay;
  if (slot == nullptr) return;
  slot->loads = part;
  slot_of_[part] = slot;
}

/// A part that is on its way.
Result StreamedCopies::Side::bring(std::size_t part) {
  if (const Result result = await(events_[part]); result != kSuccess) return result;
  loaded_[part] = State::kHere;
  if (!passes_through_window()) return kSuccess;
  std::memcpy(load_.host + part * kPartBytes, slot_of_[part]->memory, load_.part_bytes(part));
  std::exchange(slot_of_[part], nullptr)->loads.reset();
  return kSuccess;
}

/// A part that fetch() has begun with; a later one may have taken its slot since.
void StreamedCopies::Side::wait_for(std::size_t part) {
  if (loaded_[part] == State::kHere) return;
  const Driver::CurrentContext context(driver_, owner_);
  check(context.result(), kLoading);
  check(bring(part), kLoading);
}

/// Parts of the result that follow each other.
Result StreamedCopies::Side::store(std::size_t part, std::size_t end) {
  if (!passes_through_window()) {
    const std::size_t at = part * kPartBytes;
    return copy(store_, at, std::min(store_.bytes, end * kPartBytes) - at, store_.host + at);
  }
  for (; part < end; ++part) {
    Slot* slot = nullptr;
    if (const Result result = take_slot(slot); result != kSuccess) return result;
    const std::size_t at = part * kPartBytes, bytes = store_.part_bytes(part);
    std::memcpy(slot->memory, store_.host + at, bytes);
    if (const Result result = copy(store_, at, bytes, slot->memory); result != kSuccess) return result;
    if (const Result result = record(slot->stored, store_.stream); result != kSuccess) return result;
  }
  return kSuccess;
}

void StreamedCopies::Side::have(const std::byte* first, std::size_t bytes) {
  store_.for_parts(first, bytes, [&](std::size_t part, std::size_t count) {
    if (!stores_early_) return;
    final_[part] += static_cast<std::uint32_t>(count);
    if (final_[part] != store_.part_bytes(part)) return;
    const Driver::CurrentContext context(driver_, owner_);
    stores_early_ = context.result() == kSuccess && store(part, part + 1) == kSuccess;
    if (!stores_early_) final_[part] = 0;
  });
}

void StreamedCopies::Side::finish() {
  if (store_.bytes == 0) return;
  const Driver::CurrentContext context(driver_, owner_);
  check(context.result(), kStoring);
  const auto is_stored = [this](std::size_t part) { return final_[part] == store_.part_bytes(part); };
  for (std::size_t part = 0; part < store_.parts();) {
    const std::size_t first = part;
    while (part < store_.parts() && !is_stored(part)) ++part;
    if (part > first) check(store(first, part), kStoring);
    while (part < store_.parts() && is_stored(part)) ++part;
  }
  check(functions_.synchronize(store_.stream), kStoring);
}

StreamedCopies::StreamedCopies(std::span<const StreamedSide> sides) {
  for (const StreamedSide& side : sides) {
    if (!functions_) functions_ = std::make_unique<StreamFunctions>(side.staging_buffer->driver());
    sides_.push_back(std::make_unique<Side>(*functions_, side));
    sides_.back()->begin();
  }
}

StreamedCopies::~StreamedCopies() = default;

void StreamedCopies::need(const std::byte* first, std::size_t bytes) {
  for (const auto& side : sides_) side->need(first, bytes);
}

void StreamedCopies::need_all() {
  for (const auto& side : sides_) side->need_all();
}

void StreamedCopies::have(const std::byte* first, std::size_t bytes) noexcept {
  for (const auto& side : sides_) side->have(first, bytes);
}

void StreamedCopies::finish() {
  for (const auto& side : sides_) side->finish();
}

}  // namespace loom::device::cuda
