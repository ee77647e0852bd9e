#include "tests/mpi/harness.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

namespace loom::mpi_test {
namespace {

constexpr std::size_t kShownFailures = 5;  // per check and rank
constexpr std::byte kGuard{0xA5};
constexpr std::byte kUnwritten{0x5E};

/// MPI_Allreduce, with the wide count where MPI has one.
int allreduce(const void* in, void* out, std::size_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
#if MPI_VERSION >= 4 && OMPI_MAJOR_VERSION >= 6
  if (count > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return MPI_Allreduce_c(in, out, static_cast<MPI_Count>(count), type, op, comm);
  }
#endif
  return MPI_Allreduce(in, out, static_cast<int>(count), type, op, comm);
}

}  // namespace

void Check::add_failure(std::string text) {
  const std::scoped_lock lock(mutex_);
  if (++failure_count_ <= kShownFailures) failures_.push_back(std::move(text));
}

void Check::expect_carried(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  ++(bytes >= settings.loom_from_bytes ? carried_ : either_);
}

void Check::expect_fallback() {
  const std::scoped_lock lock(mutex_);
  ++fallbacks_;
}

void Check::expect_either() {
  const std::scoped_lock lock(mutex_);
  ++either_;
}

void Suite::judge_carrier(Check& check, std::uint64_t carried, std::uint64_t fallbacks) const {
  if (check.settings.expected == Carrier::kFallback) {
    check.expect(carried == 0, "loom carried {} calls, but the fallback component should have carried all",
                 carried);
  } else if (check.settings.expected == Carrier::kLoom) {
    // There may be more calls than ours: Open MPI makes some itself, as han does when it first serves a
    // communicator.
    check.expect(
        carried >= check.carried_ && fallbacks >= check.fallbacks_ &&
            carried + fallbacks >= check.carried_ + check.fallbacks_ + check.either_,
        "loom carried {} calls and handed {} down, expected at least {} and {} ({} could go either way)",
        carried, fallbacks, check.carried_, check.fallbacks_, check.either_);
  }
}

int Suite::run(const Settings& settings) {
  mpi::ToolInterface tool;
  // The verdicts must not travel through what is tested.
  MPI_Comm control = mpi::dup_without_loom(MPI_COMM_WORLD);
  int rank;
  MPI_Comm_rank(control, &rank);
  const auto counter = [&](const char* name) { return tool.counter(name, "allreduce").value_or(0); };

  int passed = 0, failed = 0, skipped = 0;
  for (const auto& [sentence, body] : checks_) {
    if (sentence.find(settings.filter) == std::string::npos) continue;
    Check check(settings);
    const std::uint64_t carried = counter("coll_loom_calls");
    const std::uint64_t fallbacks = counter("coll_loom_fallbacks");
    body(check);
    judge_carrier(check, counter("coll_loom_calls") - carried, counter("coll_loom_fallbacks") - fallbacks);

    for (const std::string& failure : check.failures_) loom::print(stderr, "  rank {}: {}\n", rank, failure);
    std::uint64_t failures = check.failure_count_;
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_UINT64_T, MPI_SUM, control);
    if (failures > 0)
      ++failed;
    else if (!check.skipped_.empty())
      ++skipped;
    else
      ++passed;
    if (rank != 0) continue;
    if (failures > 0)
      loom::print("FAILED  {} ({} failures on all ranks)\n", sentence, failures);
    else if (!check.skipped_.empty())
      loom::print("skipped {}: {}\n", sentence, check.skipped_);
    else
      loom::print("ok      {}\n", sentence);
    std::fflush(stdout);
  }
  MPI_Comm_free(&control);
  if (rank == 0) loom::print("{} passed, {} failed, {} skipped\n", passed, failed, skipped);
  return failed == 0 && passed + skipped > 0 ? 0 : 1;
}

GuardedBuffer::GuardedBuffer(std::size_t bytes, std::size_t misalignment)
    : bytes_(bytes),
      misalignment_(misalignment),
      storage_(std::make_unique_for_overwrite<std::byte[]>(bytes + misalignment + 2 * kGuardBytes)) {
  std::fill_n(storage_.get(), kGuardBytes + misalignment, kGuard);
  std::memset(data(), static_cast<int>(kUnwritten), bytes);
  std::fill_n(data() + bytes, kGuardBytes, kGuard);
}

bool GuardedBuffer::guards_intact() const {
  const auto intact = [](std::byte value) { return value == kGuard; };
  const std::byte* begin = storage_.get();
  const std::byte* data = begin + kGuardBytes + misalignment_;
  return std::all_of(begin, data, intact) && std::all_of(data + bytes_, data + bytes_ + kGuardBytes, intact);
}

void Reduction::run(Check& check, std::size_t count, Variation how) const {
  const std::size_t bytes = count * mpi::size_of(type_);
  GuardedBuffer send(how.in_place ? 0 : bytes, how.misalignment);
  GuardedBuffer recv(bytes, how.misalignment);
  operand_.fill(how.in_place ? recv.data() : send.data(), count, how.shift);

  if (count > 0) check.expect_carried(bytes);  // MPI itself ends an empty call
  const int error = allreduce(how.in_place ? MPI_IN_PLACE : send.data(), recv.data(), count,
                              mpi::mpi_type(type_), mpi::mpi_op(op_), group_.comm);

  const auto call = [&] {
    return loom::format("{} of {} x {}{}{}, rank {} of {}", mpi::name(op_), count, mpi::name(type_),
                        how.in_place ? " in place" : "",
                        how.misalignment > 0 ? loom::format(" misaligned by {}", how.misalignment) : "",
                        group_.rank, group_.ranks);
  };
  if (!check.expect(error == MPI_SUCCESS, "{}: MPI error {}", call(), error)) return;
  const std::size_t wrong = result_.count_wrong(recv.data(), count, how.shift);
  check.expect(wrong == 0, "{}: {} wrong; {}", call(), wrong,
               result_.first_wrong(recv.data(), count, how.shift));
  check.expect(recv.guards_intact(), "{}: bytes around the receive buffer have changed", call());
  check.expect(send.guards_intact(), "{}: bytes around the send buffer have changed", call());
  if (how.in_place) return;
  const std::size_t changed = operand_.count_wrong(send.data(), count, how.shift);
  check.expect(changed == 0, "{}: {} elements of the send buffer have changed", call(), changed);
}

}  // namespace loom::mpi_test
