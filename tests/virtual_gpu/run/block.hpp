// block.hpp -- one block of a grid as one thread of the host runs it.
//
// Lanes that go on together are a Set. A branch may part one; sets join again where Meeting says. All that
// waits is a set, too: at a meeting, in a vote or in a barrier.
#pragma once

#include <chrono>
#include <map>
#include <random>

#include "tests/virtual_gpu/run/code.hpp"

namespace virtual_gpu::run::detail {

enum class State : std::uint8_t {
  kReady,
  kMeeting,  ///< for those that a branch has sent another way
  kWarp,     ///< for the other lanes of its mask
  kBarrier
};

struct Set {
  Mask lanes = 0;  ///< none: this one is free
  State state = State::kReady;
  bool polls = false;  ///< has loaded what others may change, and stored nothing since
  std::uint32_t pc = 0;
  std::size_t first_slot = 0, first_byte = 0;  ///< of the frame
  int meeting = -1;                            ///< the innermost that it takes part in
};

/// Lanes that a branch has parted.
struct PartedLanes {
  bool in_use = false;
  std::uint32_t pc = 0;
  std::size_t first_slot = 0;
  Mask expected = 0;
  int outer = -1;
};

struct Return {
  std::uint32_t call = 0;  ///< the op
  std::size_t first_slot = 0, first_byte = 0;
};

struct WarpMemory {
  std::vector<Slot> slots;
  std::vector<std::byte> local;             ///< of each lane local_bytes
  std::vector<std::uint8_t> local_written;  ///< by byte
};

struct Warp : WarpMemory {
  unsigned index = 0;
  Mask lanes = 0, exited = 0;
  std::array<std::vector<Return>, kLanes> stacks;
  std::array<Set, kLanes> sets;
  std::vector<PartedLanes> meetings;
  std::size_t next = 0;  ///< the set whose turn it is

  Mask alive() const { return lanes & ~exited; }
};

class Block {
 public:
  Block(const Code& code, const Entry& entry, const Launch& launch, const Settings& settings, Dim index,
        std::unique_ptr<memory::View> view, std::uint64_t seed);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// Runs to its end, or until `stop()`. Throws Fault.
  template <class Stop>
  void run(Stop&& stop) {
    while (!has_ended()) {
      if (stop()) fail_stopped();
      round();
    }
    finish();
  }

 private:
  struct Barrier {
    const Op* op = nullptr;              ///< of the first to come; nullptr: nobody has
    unsigned threads = 0;                ///< 0: all of the block
    std::array<Mask, kLanes> arrived{};  ///< by warp
  };

  void finish();
  bool has_ended() const;
  void round();
  bool run_warp(Warp& warp, unsigned budget);
  unsigned run_set(Warp& warp, Set& set, unsigned budget);
  Set* pick(Warp& warp);
  Set& free_set(Warp& warp);
  unsigned slice();

  // How a set goes on. False: it is another's turn.
  bool branch(Warp& warp, Set& set, const Op& op, Mask taken);
  Set& split(Warp& warp, Set& set, Mask away, std::uint32_t meeting);
  void call(Warp& warp, Set& set, const Op& op);
  bool give_return(Warp& warp, Set& set);
  void exit(Warp& warp, Set& set);
  bool at_meeting(const Warp& warp, const Set& set) const;
  void arrive(Warp& warp, Set& set);
  void settle(Warp& warp, int meeting);
  void leave_meetings(Warp& warp, Mask lanes, int from, int until);
  bool break_meetings();
  void join(Warp& warp, Mask released);
  int common_meeting(const Warp& warp, int a, int b) const;

  // warp_actions.cpp
  bool warp_action(Warp& warp, Set& set, const Op& op);
  bool is_complete(Warp& warp, unsigned lane);
  void perform(Warp& warp, Mask group);
  void barrier(Warp& warp, Set& set, const Op& op);
  void check_barriers();
  bool is_complete(const Barrier& barrier) const;
  void release(unsigned number);
  unsigned barrier_number(Warp& warp, const Set& set);

  // accesses.cpp
  void load(Warp& warp, const Set& set, const Op& op, Mask mask);
  void store(Warp& warp, const Set& set, const Op& op, Mask mask);
  void atomic(Warp& warp, const Set& set, const Op& op, Mask mask);
  void special(Warp& warp, const Set& set, const Op& op, Mask mask);
  struct Place {
    Where where;
    std::uint64_t address;
  };
  Place place(const Set& set, const Op& op, Slot base) const;
  /// In memory of the block, of a thread, or of the parameters: what lane 0 accesses. Others lie `stride`
  /// behind.
  struct Inner {
    const char* name = nullptr;
    std::byte* memory = nullptr;
    std::uint8_t* written = nullptr;  ///< nullptr: all is
    std::size_t stride = 0;           ///< 0: lanes share the memory
  };
  template <std::size_t kBytes>
  Inner inner(Warp& warp, const Op& op, Place place, unsigned lane, bool stores);
  template <std::size_t kBytes>
  std::byte* use(Warp& warp, const Op& op, const Inner& inner, unsigned lane, bool stores);
  template <std::size_t kBytes, class Body>
  void for_places(Warp& warp, const Set& set, const Op& op, Mask mask, bool stores, Body&& body);

  Frame frame(Warp& warp, const Set& set) const {
    return {warp.slots.data() + set.first_slot * kLanes, code_.constants.data()};
  }
  Slot value(Warp& warp, const Set& set, const Op& op, std::size_t source, unsigned lane) const {
    return frame(warp, set).in(op, source)[lane];
  }
  Set& set_of(Warp& warp, unsigned lane);
  unsigned thread(const Warp& warp, unsigned lane) const { return warp.index * kLanes + lane; }
  bool is_random() const { return settings_.random_order || settings_.meeting == Meeting::kVotesOnly; }
  bool one_in(unsigned n) { return random_() % n == 0; }

  Fault::Place place_of(const Warp& warp, unsigned lane, const Op& op) const;
  [[noreturn]] void fail(Fault::Kind kind, const Warp& warp, unsigned lane, const Op& op,
                         const std::string& what) const;
  [[noreturn]] void fail_stopped();
  [[noreturn]] void fail_waiting(Fault::Kind kind, const std::string& what) const;
  Fault waiting(Fault::Kind kind, const std::string& what) const;
  void watch_patience();

  const Code& code_;
  const Entry& entry_;
  const Launch& launch_;
  const Settings& settings_;
  Dim index_;
  std::unique_ptr<memory::View> view_;
  std::mt19937_64 random_;
  unsigned threads_;
  std::vector<Warp> warps_;
  std::vector<std::byte> shared_;  ///< static, then dynamic
  std::vector<std::uint8_t> shared_written_;
  std::map<unsigned, Barrier> barriers_;
  std::uint64_t progress_ = 0;  ///< stores, barriers and exits so far
  unsigned fruitless_rounds_ = 0;
  std::chrono::steady_clock::time_point waits_since_{};
  bool has_lost_patience_ = false;
};

}  // namespace virtual_gpu::run::detail
