#include "device/cuda/polled_copies.hpp"

#include <utility>

#include "device/cuda/streams.hpp"

namespace loom::device::cuda {
namespace {

constexpr int kSuccess = 0;
constexpr const char *kPreparing = "a stream for copies is made", *kAsking = "it is asked how far copies are",
                     *kLoading = "it copies a buffer to the host",
                     *kStoring = "it copies a buffer to the device";

}  // namespace

/// One device buffer. Copies are enqueued only when the program's work before the call has ended: a driver
/// whose queue is full waits, and copies of pageable memory are made while the driver is called.
class PolledCopies::Side {
 public:
  Side(const StreamFunctions& functions, const PolledSide& of)
      : functions_(functions),
        of_(of),
        driver_(of.staging_buffer->driver()),
        owner_(of.staging_buffer->owner()) {}
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  /// Not in the constructor, so that what was made before a failure is destroyed.
  void begin();
  bool load() { return advance(loading_, of_.load, Direction::kToHost, kLoading); }
  bool store() { return advance(storing_, of_.store, Direction::kToDevice, kStoring); }

 private:
  enum class State : unsigned char { kWaits, kOnItsWay, kDone };

  void check(int result, const char* doing) const {
    if (result != kSuccess) throw driver_.error(doing, result);
  }
  bool advance(State& state, std::span<const StridedRegion> regions, Direction direction, const char* doing);
  bool has_ended(void* event) const;
  void enqueue(std::span<const StridedRegion> regions, Direction direction, const char* doing);

  const StreamFunctions& functions_;
  const PolledSide of_;
  const Driver& driver_;
  const Owner owner_;
  void* stream_ = nullptr;
  void *before_ = nullptr, *after_ = nullptr;  ///< events: the program's work, and the copies
  bool after_program_ = false;                 ///< before_ has ended
  State loading_ = State::kWaits, storing_ = State::kWaits;
  bool busy_ = false;  ///< copies may be on their way
};

void PolledCopies::Side::begin() {
  const Driver::CurrentContext context(driver_, owner_);
  check(context.result(), "a buffer's context is made current");
  for (void** const event : {&before_, &after_})
    check(functions_.create_event(event, kUntimedEvent), kPreparing);
  check(functions_.create_stream(&stream_, kNonBlockingStream), kPreparing);
  check(functions_.record(before_, legacy_stream()), kPreparing);
}

/// A context that has ended has taken its stream and copies along; but there are other reasons why it cannot
/// be made current.
PolledCopies::Side::~Side() {
  if (busy_) of_.staging_buffer->lose();
  const Driver::CurrentContext context(driver_, owner_);
  if (context.result() != kSuccess) return;
  if (stream_ != nullptr) functions_.destroy_stream(stream_);
  for (void* const event : {before_, after_})
    if (event != nullptr) functions_.destroy_event(event);
}

bool PolledCopies::Side::has_ended(void* event) const {
  const int result = functions_.query(event);
  if (result == kNotReady) return false;
  check(result, kAsking);
  return true;
}

bool PolledCopies::Side::advance(State& state, std::span<const StridedRegion> regions, Direction direction,
                                 const char* doing) {
  if (state == State::kDone || regions.empty()) return true;
  const Driver::CurrentContext context(driver_, owner_);
  check(context.result(), "a buffer's context is made current");
  if (!after_program_) after_program_ = has_ended(before_);
  if (!after_program_) return false;
  if (state == State::kWaits) {
    enqueue(regions, direction, doing);
    state = State::kOnItsWay;
  }
  if (!has_ended(after_)) return false;
  busy_ = false;
  state = State::kDone;
  of_.staging_buffer->note_copied(bytes_of(regions));
  return true;
}

void PolledCopies::Side::enqueue(std::span<const StridedRegion> regions, Direction direction,
                                 const char* doing) {
  busy_ = true;
  check(driver_.enqueue(regions, direction, stream_), doing);
  check(functions_.record(after_, stream_), doing);
}

PolledCopies::PolledCopies(std::span<const PolledSide> sides) {
  for (const PolledSide& side : sides) {
    if (!functions_) functions_ = std::make_unique<StreamFunctions>(side.staging_buffer->driver());
    sides_.push_back(std::make_unique<Side>(*functions_, side));
    sides_.back()->begin();
  }
}

PolledCopies::~PolledCopies() = default;

bool PolledCopies::load() {
  bool all = true;
  for (const auto& side : sides_) all &= side->load();
  return all;
}

bool PolledCopies::store() {
  bool all = true;
  for (const auto& side : sides_) all &= side->store();
  return all;
}

}  // namespace loom::device::cuda
