#include "tests/virtual_gpu/run/block.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/format.hpp"

namespace virtual_gpu::run::detail {
namespace {

Fault::Kind kind_of(const memory::Error& error) {
  constexpr Fault::Kind kKinds[] = {Fault::Kind::kMisaligned, Fault::Kind::kForeignAddress,
                                    Fault::Kind::kReadOnly, Fault::Kind::kNeverWritten,
                                    Fault::Kind::kUnordered};
  return kKinds[static_cast<std::size_t>(error.kind())];
}

Mask first_lanes(unsigned count) {
  return count >= kLanes ? ~Mask{0} : (Mask{1} << count) - 1;
}

void copy_local(WarpMemory& memory, std::size_t from, std::size_t to, std::size_t bytes) {
  std::memcpy(&memory.local[to], &memory.local[from], bytes);
  std::memcpy(&memory.local_written[to], &memory.local_written[from], bytes);
}

/// Of warps that have ended. Fresh pages for every block would cost as much as running it.
class SpareMemory {
 public:
  WarpMemory take(const Function& function) {
    WarpMemory result;
    {
      const std::lock_guard lock(mutex_);
      if (!spare_.empty()) {
        result = std::move(spare_.back());
        spare_.pop_back();
      }
    }
    result.slots.assign(function.most_slots * kLanes, 0);
    result.local.resize(function.most_frame_bytes * kLanes);
    result.local_written.assign(result.local.size(), 0);
    return result;
  }
  void give_back(WarpMemory memory) {
    constexpr std::size_t kMost = 256;
    const std::lock_guard lock(mutex_);
    if (spare_.size() < kMost) spare_.push_back(std::move(memory));
  }

 private:
  std::mutex mutex_;
  std::vector<WarpMemory> spare_;
};

SpareMemory& spare_memory() {
  static auto* const spare = new SpareMemory;  // blocks may outlive static objects
  return *spare;
}

}  // namespace

Block::Block(const Code& code, const Entry& entry, const Launch& launch, const Settings& settings, Dim index,
             std::unique_ptr<memory::View> view, std::uint64_t seed)
    : code_(code),
      entry_(entry),
      launch_(launch),
      settings_(settings),
      index_(index),
      view_(std::move(view)),
      random_(seed),
      threads_(static_cast<unsigned>(launch.block.count())),
      warps_((threads_ + kLanes - 1) / kLanes),
      shared_(entry.shared_bytes + launch.dynamic_shared_bytes),
      shared_written_(shared_.size()) {
  const Function& function = code.functions[entry.function];
  for (unsigned i = 0; i < warps_.size(); ++i) {
    Warp& warp = warps_[i];
    warp.index = i;
    warp.lanes = first_lanes(threads_ - i * kLanes);
    static_cast<WarpMemory&>(warp) = spare_memory().take(function);
    warp.sets[0] = {.lanes = warp.lanes, .pc = function.begin};
  }
}

Block::~Block() {
  for (Warp& warp : warps_) spare_memory().give_back(std::move(warp));
}

/// Stores that were on their way may find their memory gone.
void Block::finish() {
  try {
    view_->finish();
  } catch (const memory::Error& error) {
    const Function& function = code_.functions[entry_.function];
    fail(kind_of(error), warps_[error.thread() / kLanes], error.thread() % kLanes,
         code_.ops[function.end - 1], error.what());
  }
}

bool Block::has_ended() const {
  return std::all_of(warps_.begin(), warps_.end(), [](const Warp& warp) { return warp.alive() == 0; });
}

/// Each warp has its turn.
void Block::round() {
  std::vector<std::size_t> order(warps_.size());
  std::iota(order.begin(), order.end(), 0);
  if (settings_.random_order) std::shuffle(order.begin(), order.end(), random_);
  const std::uint64_t before = progress_;
  bool ran = false;
  for (const std::size_t i : order) ran |= run_warp(warps_[i], slice());
  if (progress_ != before) {
    fruitless_rounds_ = 0;
    waits_since_ = {};
    has_lost_patience_ = false;
    if (settings_.company != nullptr) settings_.company->get_on();
    return;
  }
  // Every GPU lets lanes go on that others wait for, also if these wait for them elsewhere.
  constexpr unsigned kPatience = 4096;
  if (!ran && !has_ended() && !break_meetings())
    fail_waiting(Fault::Kind::kDeadlock, "all threads that are left wait for others");
  if (++fruitless_rounds_ % kPatience == 0) {
    break_meetings();
    watch_patience();
  }
  if (settings_.company != nullptr && fruitless_rounds_ % (4 * kPatience) == 0 &&
      settings_.company->is_stuck(this))
    fail_waiting(Fault::Kind::kDeadlock, "what it waits for does not come");
  if (fruitless_rounds_ % 8 == 0) std::this_thread::yield();  // they may wait for another block
}

/// Once for each time that nothing has gone on.
void Block::watch_patience() {
  const auto now = std::chrono::steady_clock::now();
  const bool first = waits_since_ == std::chrono::steady_clock::time_point{};
  if (first) waits_since_ = now;
  if (has_lost_patience_ || !settings_.on_patience_lost || now - waits_since_ < settings_.patience) return;
  has_lost_patience_ = true;
  settings_.on_patience_lost(waiting(Fault::Kind::kStopped, "has waited long").what());
}

unsigned Block::slice() {
  constexpr unsigned kSlices[] = {3, 30, 300};
  if (!is_random()) return 1000;
  return 1 + static_cast<unsigned>(random_() % kSlices[random_() % std::size(kSlices)]);
}

/// False: all of its sets wait.
bool Block::run_warp(Warp& warp, unsigned budget) {
  bool ran = false;
  while (budget > 0) {
    Set* const set = pick(warp);
    if (set == nullptr) break;
    ran = true;
    const unsigned used = run_set(warp, *set, budget);
    if (set->lanes != 0 && set->state == State::kReady && set->polls) break;
    budget -= std::min(used, budget);
  }
  return ran;
}

Set* Block::pick(Warp& warp) {
  const std::size_t first = is_random() ? random_() % kLanes : warp.next;
  for (std::size_t i = 0; i < kLanes; ++i) {
    Set& set = warp.sets[(first + i) % kLanes];
    if (set.lanes == 0 || set.state != State::kReady) continue;
    warp.next = (first + i + 1) % kLanes;
    return &set;
  }
  return nullptr;
}

Set& Block::free_set(Warp& warp) {
  return *std::find_if(warp.sets.begin(), warp.sets.end(), [](const Set& set) { return set.lanes == 0; });
}
Set& Block::set_of(Warp& warp, unsigned lane) {
  return *std::find_if(warp.sets.begin(), warp.sets.end(),
                       [&](const Set& set) { return (set.lanes >> lane & 1) != 0; });
}

/// Until the set waits, ends, spins or has used the budget. Returns how many ops it has run.
unsigned Block::run_set(Warp& warp, Set& set, unsigned budget) {
  set.polls = false;
  for (unsigned used = 1;; ++used) {
    if (at_meeting(warp, set)) {
      arrive(warp, set);
      return used;
    }
    if (used > budget) return used;
    const Op& op = code_.ops[set.pc];
    const Frame registers = frame(warp, set);
    if (settings_.runs_of_lines != nullptr) ++(*settings_.runs_of_lines)[static_cast<std::size_t>(op.line)];
    Mask mask = set.lanes;
    if (op.guarded) {
      const Slot* const guard = registers.slots + static_cast<std::size_t>(op.guard) * kLanes;
      Mask holds = 0;
      for_lanes(set.lanes, [&](unsigned lane) {
        holds |= static_cast<Mask>((guard[lane] != 0) != op.guard_negated) << lane;
      });
      mask = holds;
    }
    if (op.flow >= Flow::kBranch) {
      if (!branch(warp, set, op, mask)) return used;
      continue;
    }
    ++set.pc;
    if (mask == 0) continue;
    try {
      switch (op.flow) {
        case Flow::kCompute:
          op.handler(op, registers, mask);
          break;
        case Flow::kSpecial:
          special(warp, set, op, mask);
          break;
        case Flow::kFrameAddress:
          for_lanes(mask, [&](unsigned lane) {
            registers.out(op, 0)[lane] = (set.first_byte + op.offset) & op.width;
          });
          break;
        case Flow::kActiveMask:
          for_lanes(mask, [&](unsigned lane) { registers.out(op, 0)[lane] = mask; });
          break;
        case Flow::kLoad:
          load(warp, set, op, mask);
          if (op.order != memory::Order::kWeak) set.polls = true;
          break;
        case Flow::kStore:
          store(warp, set, op, mask);
          set.polls = false;
          ++progress_;
          break;
        case Flow::kAtomic:
          atomic(warp, set, op, mask);
          set.polls = true;
          break;
        case Flow::kFence:
          for_lanes(mask, [&](unsigned lane) { view_->fence(thread(warp, lane), op.scope); });
          break;
        case Flow::kPause:
          set.polls = true;
          return used;
        default:
          break;
      }
    } catch (const DividedByZero&) {
      fail(Fault::Kind::kDivideByZero, warp, static_cast<unsigned>(std::countr_zero(mask)), op,
           "divides by zero");
    } catch (const memory::Error& error) {
      fail(kind_of(error), warp, error.thread() % kLanes, op, error.what());
    }
  }
}

/// An op at which sets part, end or wait; `taken`: the lanes for which its guard holds. False: the set does
/// not go on for now.
bool Block::branch(Warp& warp, Set& set, const Op& op, Mask taken) {
  if (taken == 0) {
    ++set.pc;
    return true;
  }
  const bool parts = taken != set.lanes;
  if (parts) ++split(warp, set, set.lanes & ~taken, op.meeting).pc;
  switch (op.flow) {
    case Flow::kBranch: {
      const bool spins = op.target <= set.pc && set.polls;
      set.pc = op.target;
      return !spins && !(parts && is_random() && one_in(2));
    }
    case Flow::kCall:
      call(warp, set, op);
      return true;
    case Flow::kReturn:
      return give_return(warp, set);
    case Flow::kExit:
      exit(warp, set);
      return false;
    case Flow::kBarrier:
      barrier(warp, set, op);
      return false;
    case Flow::kWarp:
      return warp_action(warp, set, op);
    default:
      fail(Fault::Kind::kTrap, warp, static_cast<unsigned>(std::countr_zero(set.lanes)), op, "trap");
  }
}

/// These lanes of a set go another way; `meeting` says where both meet.
Set& Block::split(Warp& warp, Set& set, Mask away, std::uint32_t meeting) {
  if (settings_.meeting == Meeting::kPostDominators && meeting != kNowhere) {
    PartedLanes parted{.in_use = true,
                       .pc = meeting,
                       .first_slot = set.first_slot,
                       .expected = set.lanes,
                       .outer = set.meeting};
    const auto& stack = warp.stacks[static_cast<std::size_t>(std::countr_zero(set.lanes))];
    const bool ends = meeting == kAtReturn && stack.empty();  // nobody meets after the kernel's end
    if (meeting == kAtReturn && !ends) {
      parted.pc = stack.back().call + 1;
      parted.first_slot = stack.back().first_slot;
    }
    const bool is_there =
        set.meeting >= 0 && warp.meetings[static_cast<std::size_t>(set.meeting)].pc == parted.pc &&
        warp.meetings[static_cast<std::size_t>(set.meeting)].first_slot == parted.first_slot;
    if (!ends && !is_there) {
      auto free = std::find_if(warp.meetings.begin(), warp.meetings.end(),
                               [](const PartedLanes& one) { return !one.in_use; });
      if (free == warp.meetings.end()) free = warp.meetings.insert(free, PartedLanes{});
      *free = parted;
      set.meeting = static_cast<int>(free - warp.meetings.begin());
    }
  }
  Set& other = free_set(warp);
  other = set;
  other.lanes = away;
  set.lanes &= ~away;
  return other;
}

void Block::call(Warp& warp, Set& set, const Op& op) {
  const Call& call = code_.calls[op.target];
  const Function& caller = code_.functions[call.caller];
  const Function& called = code_.functions[call.function];
  const std::size_t bytes = warp.local.size() / kLanes, frame_at = set.first_byte + caller.frame_bytes;
  for_lanes(set.lanes, [&](unsigned lane) {
    warp.stacks[lane].push_back({set.pc, set.first_slot, set.first_byte});
    const std::size_t base = lane * bytes;
    std::fill_n(warp.local_written.begin() + static_cast<std::ptrdiff_t>(base + frame_at), called.frame_bytes,
                0);
    for (const Copy& copy : call.arguments)
      copy_local(warp, base + set.first_byte + copy.from, base + frame_at + copy.to, copy.bytes);
  });
  set.first_slot += caller.slots;
  set.first_byte = frame_at;
  set.pc = called.begin;
}

/// Lanes that were called from different places part.
bool Block::give_return(Warp& warp, Set& set) {
  const auto back = [&](unsigned lane) -> const Return& { return warp.stacks[lane].back(); };
  const Return to = back(static_cast<unsigned>(std::countr_zero(set.lanes)));
  Mask away = 0;
  for_lanes(set.lanes, [&](unsigned lane) {
    if (back(lane).call != to.call || back(lane).first_slot != to.first_slot) away |= Mask{1} << lane;
  });
  if (away != 0) split(warp, set, away, kNowhere);
  const std::size_t bytes = warp.local.size() / kLanes;
  for_lanes(set.lanes, [&](unsigned lane) {
    for (const Copy& copy : code_.calls[code_.ops[to.call].target].results)
      copy_local(warp, lane * bytes + set.first_byte + copy.from, lane * bytes + to.first_byte + copy.to,
                 copy.bytes);
    warp.stacks[lane].pop_back();
  });
  set.pc = to.call + 1;
  set.first_slot = to.first_slot;
  set.first_byte = to.first_byte;
  return true;
}

void Block::exit(Warp& warp, Set& set) {
  const Mask lanes = set.lanes;
  const int meeting = set.meeting;
  set.lanes = 0;
  warp.exited |= lanes;
  ++progress_;
  leave_meetings(warp, lanes, meeting, -1);
  for (Set& other : warp.sets) {
    if (other.lanes == 0 || other.state != State::kWarp) continue;
    const Op& op = code_.ops[other.pc];
    for_lanes(other.lanes, [&](unsigned lane) {
      const auto named = static_cast<Mask>(value(warp, other, op, 0, lane));
      if ((named & lanes) != 0)
        fail(Fault::Kind::kVote, warp, lane, op,
             loom::format("waits for the lanes {:#x}, of which {:#x} have exited", named,
                          named & warp.exited));
    });
  }
  check_barriers();
}

// ------------------------------------------------------------------------------------------------ meetings

bool Block::at_meeting(const Warp& warp, const Set& set) const {
  if (set.meeting < 0) return false;
  const PartedLanes& parted = warp.meetings[static_cast<std::size_t>(set.meeting)];
  return parted.pc == set.pc && parted.first_slot == set.first_slot;
}

void Block::arrive(Warp& warp, Set& set) {
  set.state = State::kMeeting;
  settle(warp, set.meeting);
}

/// If all that are expected have come, they go on as one.
void Block::settle(Warp& warp, int meeting) {
  PartedLanes& parted = warp.meetings[static_cast<std::size_t>(meeting)];
  Mask come = 0;
  for (const Set& set : warp.sets)
    if (set.state == State::kMeeting && set.meeting == meeting) come |= set.lanes;
  if (come != parted.expected) return;
  parted.in_use = false;
  Set* first = nullptr;
  for (Set& set : warp.sets) {
    if (set.lanes == 0 || set.state != State::kMeeting || set.meeting != meeting) continue;
    if (first == nullptr) {
      first = &set;
      set.state = State::kReady;
      set.meeting = parted.outer;
    } else {
      first->lanes |= set.lanes;
      set.lanes = 0;
    }
  }
}

/// These lanes take part in the meetings from `from` outwards no more.
void Block::leave_meetings(Warp& warp, Mask lanes, int from, int until) {
  while (from != until) {
    PartedLanes& parted = warp.meetings[static_cast<std::size_t>(from)];
    const int outer = parted.outer;
    parted.expected &= ~lanes;
    settle(warp, from);
    from = outer;
  }
}

/// Whoever waits at a meeting goes on without the others. False: nobody did.
bool Block::break_meetings() {
  bool any = false;
  for (Warp& warp : warps_)
    for (Set& set : warp.sets) {
      if (set.lanes == 0 || set.state != State::kMeeting) continue;
      const int meeting = set.meeting, outer = warp.meetings[static_cast<std::size_t>(meeting)].outer;
      set.state = State::kReady;
      set.meeting = outer;
      leave_meetings(warp, set.lanes, meeting, outer);
      any = true;
    }
  return any;
}

int Block::common_meeting(const Warp& warp, int a, int b) const {
  for (int outer = a; outer != -1; outer = warp.meetings[static_cast<std::size_t>(outer)].outer)
    for (int other = b; other != -1; other = warp.meetings[static_cast<std::size_t>(other)].outer)
      if (outer == other) return outer;
  return -1;
}

/// Lanes that have just been released, whole sets of them, go on together where they are at the same place.
void Block::join(Warp& warp, Mask released) {
  for (Set& set : warp.sets) {
    if ((released & ~set.lanes) == 0) return;
    if ((set.lanes & released) == 0) continue;
    for (Set& other : warp.sets) {
      if (&set >= &other || (other.lanes & released) == 0) continue;
      if (set.pc != other.pc || set.first_slot != other.first_slot) continue;
      const int common = common_meeting(warp, set.meeting, other.meeting);
      const int of_set = std::exchange(set.meeting, common), of_other = std::exchange(other.meeting, common);
      leave_meetings(warp, set.lanes, of_set, common);
      leave_meetings(warp, other.lanes, of_other, common);
      set.lanes |= other.lanes;
      other.lanes = 0;
    }
  }
}

// -------------------------------------------------------------------------------------------------- faults

Fault::Place Block::place_of(const Warp& warp, unsigned lane, const Op& op) const {
  const unsigned at = thread(warp, lane), x = launch_.block.x, y = launch_.block.y;
  return {.kernel = entry_.name,
          .block = index_,
          .thread = {at % x, at / x % y, at / x / y},
          .line = op.line,
          .text = std::string(op.text)};
}

void Block::fail(Fault::Kind kind, const Warp& warp, unsigned lane, const Op& op,
                 const std::string& what) const {
  throw Fault(kind, place_of(warp, lane, op), what);
}

void Block::fail_stopped() {
  fail_waiting(Fault::Kind::kStopped, "stopped");
}

/// Says where every set is.
Fault Block::waiting(Fault::Kind kind, const std::string& what) const {
  std::string report = what;
  const Warp* some_warp = nullptr;
  const Set* some_set = nullptr;
  for (const Warp& warp : warps_)
    for (const Set& set : warp.sets) {
      if (set.lanes == 0) continue;
      constexpr std::string_view kStates[] = {"runs", "waits for lanes that branched",
                                              "waits for lanes of its mask", "waits in a barrier"};
      report += loom::format("\n  warp {}, lanes {:#010x}: {} at line {}: {}", warp.index, set.lanes,
                             kStates[static_cast<std::size_t>(set.state)], code_.ops[set.pc].line,
                             code_.ops[set.pc].text);
      if (some_set != nullptr) continue;
      some_warp = &warp;
      some_set = &set;
    }
  const auto lane = static_cast<unsigned>(std::countr_zero(some_set->lanes));
  return {kind, place_of(*some_warp, lane, code_.ops[some_set->pc]), report};
}

void Block::fail_waiting(Fault::Kind kind, const std::string& what) const {
  throw waiting(kind, what);
}

}  // namespace virtual_gpu::run::detail
