#include "device/cuda/polled_copies.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "device/cuda/program_mark.hpp"
#include "device/cuda/streams.hpp"

namespace loom::device::cuda {
namespace {

constexpr int kSuccess = 0;
constexpr const char *kPreparing = "a stream for copies is made", *kAsking = "it is asked how far copies are",
                     *kLoading = "it copies a buffer to the host",
                     *kStoring = "it copies a buffer to the device";

/// What a copy of pageable memory costs at least, as so many bytes: a call of the driver takes some
/// microseconds.
constexpr std::size_t kBytesOfCall = 16384;

/// What is left of regions.
class Rest {
 public:
  explicit Rest(std::span<const StridedRegion> regions) : regions_(regions) {}

  bool is_empty() const { return regions_.empty(); }
  /// The next rows, or a part of one, of up to so many bytes.
  StridedRegion take(std::size_t most) {
    StridedRegion next = regions_.front();
    next.device += row_ * next.pitch + in_row_;
    next.host += row_ * next.pitch + in_row_;
    next.rows -= row_;
    if (in_row_ == 0 && next.row_bytes <= most) {
      next.rows = std::min(next.rows, most / std::max<std::size_t>(next.row_bytes, 1));
      row_ += next.rows;
    } else {
      next.rows = 1;
      next.row_bytes = std::min(next.row_bytes - in_row_, most);
      in_row_ += next.row_bytes;
      if (in_row_ == regions_.front().row_bytes) {
        in_row_ = 0;
        ++row_;
      }
    }
    if (row_ == regions_.front().rows) {
      row_ = 0;
      regions_ = regions_.subspan(1);
    }
    return next;
  }

 private:
  std::span<const StridedRegion> regions_;
  std::size_t row_ = 0, in_row_ = 0;  ///< of the first region, what has been taken
};

}  // namespace

/// One device buffer. Copies are enqueued only when the program's work before the call has ended: a driver
/// whose queue is full waits, and copies of pageable memory are made while the driver is called.
class PolledCopies::Side {
 public:
  Side(const StreamFunctions& functions, const PolledSide& of, const ProgramMark* after)
      : functions_(functions),
        of_(of),
        driver_(of.staging_buffer->driver()),
        owner_(of.staging_buffer->owner()),
        after_(after) {}
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  /// Not in the constructor, so that what was made before a failure is destroyed.
  void begin();
  /// most_pageable: bytes of pageable memory that are still copied in this step.
  bool load(std::size_t& most_pageable) {
    return advance(loading_, Direction::kToHost, most_pageable, kLoading);
  }
  bool store(std::size_t& most_pageable) {
    return advance(storing_, Direction::kToDevice, most_pageable, kStoring);
  }

 private:
  struct Way {
    std::size_t bytes;
    Rest rest;                ///< that has not been enqueued
    bool on_its_way = false;  ///< something is
    explicit Way(std::span<const StridedRegion> regions) : bytes(bytes_of(regions)), rest(regions) {}
    bool is_done() const { return rest.is_empty() && !on_its_way; }
  };

  void check(int result, const char* doing) const {
    if (result != kSuccess) throw driver_.error(doing, result);
  }
  bool advance(Way& way, Direction direction, std::size_t& most_pageable, const char* doing);
  bool has_ended(void* event) const;
  void enqueue(Way& way, Direction direction, std::size_t& most_pageable, const char* doing);

  const StreamFunctions& functions_;
  const PolledSide of_;
  const Driver& driver_;
  const Owner owner_;
  const ProgramMark* after_;          ///< the program's work before the call
  std::optional<ProgramMark> own_{};  ///< where nobody else has made one
  void* stream_ = nullptr;
  void* copied_ = nullptr;  ///< an event behind the copies
  Way loading_{of_.load}, storing_{of_.store};
  bool busy_ = false;  ///< copies may be on their way
};

void PolledCopies::Side::begin() {
  const Driver::CurrentContext context(driver_, owner_);
  check(context.result(), "a buffer's context is made current");
  check(functions_.create_event(&copied_, kUntimedEvent), kPreparing);
  check(functions_.create_stream(&stream_, kNonBlockingStream), kPreparing);
  if (after_ == nullptr) after_ = &own_.emplace(driver_, owner_);
}

/// A context that has ended has taken its stream and copies along; but there are other reasons why it cannot
/// be made current. The program gets its buffer back now, so copies to there must have ended: they wait for
/// nothing but themselves.
PolledCopies::Side::~Side() {
  if (busy_) of_.staging_buffer->lose();
  const Driver::CurrentContext context(driver_, owner_);
  if (context.result() == kSuccess && storing_.on_its_way) functions_.synchronize(stream_);
  if (context.result() != kSuccess) return;
  if (stream_ != nullptr) functions_.destroy_stream(stream_);
  if (copied_ != nullptr) functions_.destroy_event(copied_);
}

bool PolledCopies::Side::has_ended(void* event) const {
  const int result = functions_.query(event);
  if (result == kNotReady) return false;
  check(result, kAsking);
  return true;
}

bool PolledCopies::Side::advance(Way& way, Direction direction, std::size_t& most_pageable,
                                 const char* doing) {
  if (way.is_done()) return true;
  const Driver::CurrentContext context(driver_, owner_);
  check(context.result(), "a buffer's context is made current");
  if (!after_->has_passed()) return false;
  if (!way.on_its_way) enqueue(way, direction, most_pageable, doing);
  if (!way.on_its_way || !has_ended(copied_)) return false;
  way.on_its_way = busy_ = false;
  if (!way.is_done()) return false;
  of_.staging_buffer->note_copied(way.bytes);
  return true;
}

/// All of it; but of pageable memory, which is copied now, no more than the caller can wait for. Of that
/// nothing is enqueued behind what has not ended, for the driver would wait for it.
void PolledCopies::Side::enqueue(Way& way, Direction direction, std::size_t& most_pageable,
                                 const char* doing) {
  const bool is_locked = of_.staging_buffer->is_locked();
  while (!way.rest.is_empty() && (is_locked || most_pageable > 0)) {
    const StridedRegion next =
        way.rest.take(is_locked ? std::numeric_limits<std::size_t>::max() : most_pageable);
    busy_ = way.on_its_way = true;
    check(driver_.enqueue({&next, 1}, direction, stream_), doing);
    if (!is_locked)
      most_pageable -= std::min(most_pageable, std::max(next.row_bytes * next.rows, kBytesOfCall));
  }
  if (way.on_its_way) check(functions_.record(copied_, stream_), doing);
}

PolledCopies::PolledCopies(std::span<const PolledSide> sides, const ProgramMark* after) {
  for (const PolledSide& side : sides) {
    if (!functions_) functions_ = std::make_unique<StreamFunctions>(side.staging_buffer->driver());
    sides_.push_back(std::make_unique<Side>(*functions_, side, after));
    sides_.back()->begin();
  }
}

PolledCopies::~PolledCopies() = default;

bool PolledCopies::load() {
  bool all = true;
  std::size_t most_pageable = kPageableBytes;
  for (const auto& side : sides_) all &= side->load(most_pageable);
  return all;
}

bool PolledCopies::store() {
  bool all = true;
  std::size_t most_pageable = kPageableBytes;
  for (const auto& side : sides_) all &= side->store(most_pageable);
  return all;
}

}  // namespace loom::device::cuda
