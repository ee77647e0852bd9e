#include "device/cuda/program_mark.hpp"

namespace loom::device::cuda {
namespace {

constexpr int kSuccess = 0;
constexpr const char* kMarking = "a call's place in the default stream is marked";

}  // namespace

ProgramMark::ProgramMark(const Driver& driver, const Owner& owner, Behind behind)
    : functions_(driver), driver_(driver), owner_(owner), passed_(behind == Behind::kNothing) {
  const Driver::CurrentContext context(driver, owner);
  if (context.result() != kSuccess) throw driver.error(kMarking, context.result());
  int result = functions_.create_event(&event_, kUntimedEvent);
  if (result != kSuccess) throw driver.error(kMarking, result);
  // A stream does not wait for an event that was never recorded.
  if (behind == Behind::kProgram) result = functions_.record(event_, Driver::ProgramStream(driver).stream());
  if (result == kSuccess) return;
  functions_.destroy_event(event_);
  throw driver.error(kMarking, result);
}

/// A context that has ended has taken its events along.
ProgramMark::~ProgramMark() {
  const Driver::CurrentContext context(driver_, owner_);
  if (context.result() == kSuccess) functions_.destroy_event(event_);
}

bool ProgramMark::has_passed() const {
  if (passed_) return true;
  const Driver::CurrentContext context(driver_, owner_);
  int result = context.result();
  if (result == kSuccess) result = functions_.query(event_);
  if (result == kNotReady) return false;
  if (result != kSuccess) throw driver_.error("it is asked how far the default stream is", result);
  return passed_ = true;
}

}  // namespace loom::device::cuda
