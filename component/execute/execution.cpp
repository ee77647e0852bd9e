#include "component/execute/execution.hpp"

#include <cstring>

#include "base/format.hpp"

namespace loom {

void Execution::set_wait_policy() noexcept {
  const loom_runtime& runtime = member_.process.runtime();
  // A network answers so late that a CPU spent on spinning is better given to whoever moves its data.
  const bool yields = group().oversubscribed || group().wiring.shape.hosts > 1 ||
                      (runtime.yield_when_idle != nullptr && runtime.yield_when_idle());
  wait_policy_ = {runtime.progress, [this] { check_peers(); }, [this] { links_.say_waiting(); }, yields,
                  runtime.parameters.timeout_s};
  // Whatever a rank waits for, what it has sent must get out: the library's own loop drives the transport
  // only now and then.
  if (group().wiring.shape.hosts > 1)
    wait_policy_.progress = [this, library = runtime.progress] {
      if (library != nullptr) library();
      if (ucx_transport::Transport* transport = member_.process.open_transport()) transport->progress();
    };
}

void Execution::perform(Algorithm algorithm, const device::Call& call) {
  const bool streamed = row_of(algorithm).streams(call.collective);
  // Packers read an operand without a word to anybody.
  if (call.streaming != nullptr && (!streamed || call.in_packer != nullptr)) call.streaming->need_all();
  if (call.streaming != nullptr && !streamed) {
    device::Call all_there = call;
    all_there.streaming = nullptr;
    return perform(algorithm, all_there);
  }
  if (algorithm == Algorithm::kCopy) return copy_alone(call);
  if (algorithm == Algorithm::kImmediate) return exchange_immediately(call, *links_.immediate);
  if (algorithm == Algorithm::kTiered) return exchange_immediately(call, *links_.tiered);
  if (const auto family = row_of(algorithm).family) announce(call, *family);
  Operation operation{call, algorithm};
  drive(operation);
}

/// A single rank's call.
void Execution::copy_alone(const device::Call& call) const {
  using device::Collective;
  const bool moves = device::lists_blocks(call.collective) || call.collective == Collective::kAllGather ||
                     call.collective == Collective::kAllToAll;
  if (moves) return tell_cut(call.collective, device::move_own_block(call, 0));
  if (!device::is_reduction(call.collective) || call.collective == Collective::kExscan) return;
  if (call.in != call.out && call.count > 0) std::memcpy(call.out, call.in, call.bytes());
}

void Execution::drive(Operation& operation) {
  const std::function<bool()> is_excused = [&] { return links_.waits_too(group(), awaited_rank(operation)); };
  device::Waiter waiter(wait_policy_, &is_excused);
  try {
    for (State state = advance(operation); state != State::kDone; state = advance(operation))
      state == State::kMoved ? waiter.moved() : waiter.pause();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(error.code(), loom::format("{} Waiting for {}.", error.what(), awaited_text(operation)));
  }
}

void Execution::check_waiting(const Operation& operation, double waited_s) const {
  const double limit_s = time_limit_s();
  const std::function<bool()> is_excused = [&] { return links_.waits_too(group(), awaited_rank(operation)); };
  if (device::is_past(limit_s, waited_s, &is_excused))
    throw Error(ErrorCode::kTimeout, loom::format("No step forward for {:.1f} s. Waiting for {}.", waited_s,
                                                  awaited_text(operation)));
}

void Execution::check_peers() {
  member_.bootstrap.check_health();
  for (const auto& [rank, process] : group().host_mates)
    if (!device::is_alive(process))
      throw Error(ErrorCode::kPeerFailed, loom::format("{} has died.", group().names.at(rank)));
  try {
    if (links_.groups) links_.groups->check_calls();
  } catch (const device::DifferentCall& other) {
    fail_for(other);
  }
  if (links_.immediate) links_.immediate->check_calls();
}

/// Who it is; how far its kernel has come; on another host also the way there and how far both have come.
std::string Execution::awaited_text(const Operation& operation) const {
  const int peer = awaited_rank(operation);
  const std::string name = group().name_of(peer);
  const std::string standing = std::visit(
      [&](const auto& executor) -> std::string {
        if constexpr (requires { executor.standing(); })
          return executor.standing();
        else
          return links_.standing(peer);
      },
      operation.executor);
  return standing.empty() ? name : loom::format("{}, {}", name, standing);
}

/// A call has ended. Throws Truncated if a block did not fit.
void Execution::tell_cut(device::Collective collective, const std::optional<device::CutBlock>& cut) const {
  if (cut)
    throw Truncated(loom::format("{}: {} bytes from {}, room for {}.", name_of(collective), cut->sent,
                                 cut->peer == member_.rank ? "itself" : group().name_of(cut->peer),
                                 cut->room));
}

bool Execution::adopts(const device::Call& call, const device::DifferentCall& other,
                       device::CallProgress progress) const {
  using device::Collective;
  return call.collective == Collective::kBroadcast && call.root != member_.rank &&
         group().wiring.shape.hosts == 1 && other.peer() == call.root &&
         device::differ_in_size(other.its(), other.mine()) && other.progress() == progress;
}

void Execution::tell_adopted(const AdoptedBroadcast& adopted, int root) const {
  if (adopted.fits()) return;
  tell_cut(device::Collective::kBroadcast, device::CutBlock{root, adopted.bytes(), adopted.room()});
}

void Execution::fail_for(const device::DifferentCall& other) {
  if (links_.cico) links_.cico->say_left(other.mine());
  if (links_.groups) links_.groups->say_left(other.mine());
  if (links_.immediate) links_.immediate->say_left();
  const bool one_host = group().wiring.shape.hosts == 1;
  const int rank = one_host ? other.peer() : rank_at({group().placement.node_of(member_.rank), other.peer()});
  const std::string peer = group().name_of(rank);
  const std::string_view what = name_of(other.mine().collective());
  const std::uint64_t mine = other.mine().bytes(), its = other.its().bytes();
  const char* const promise =
      promised_order_ ? " The program has promised to start persistent requests in one order on all ranks."
                      : "";
  if (device::differ_in_size(other.its(), other.mine()))
    throw Error(other.code(), loom::format("{} is in a call of {} with {} bytes, this rank in one with {}.{}",
                                           peer, what, its, mine, promise));
  if (other.its().collective() == other.mine().collective() && its == mine)
    throw Error(other.code(),
                loom::format("{} has found a rank in another call than this one of {} with {} bytes.", peer,
                             what, mine));
  throw Error(other.code(),
              loom::format("{} is in another call than this rank, which is in one of {} with {} bytes.{}",
                           peer, what, mine, promise));
}

/// From inside a handler: as check_peers() would have found.
void Execution::fail_for(const device::ProcessEnded& ended) const {
  for (const auto& [rank, process] : group().host_mates)
    if (process.pid == ended.pid())
      throw Error(ended.code(), loom::format("{} has died.", group().names.at(rank)));
  throw;
}

}  // namespace loom
