// code.hpp -- a program as it is run: everything is resolved, names are gone.
//
// Registers are slots of 64 bits, in a frame for each function on a lane's stack. A warp has the slots of its
// lanes side by side: slot s of lane l is slots[s * 32 + l]. A value is zero-extended to its slot.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/virtual_gpu/memory/space.hpp"
#include "tests/virtual_gpu/run/launch.hpp"

namespace virtual_gpu::run::detail {

inline constexpr unsigned kLanes = 32;
using Slot = std::uint64_t;
using Mask = std::uint32_t;  ///< of lanes

template <class Body>
void for_lanes(Mask mask, Body&& body) {
  if (mask == ~Mask{0}) {
    for (unsigned lane = 0; lane < kLanes; ++lane) body(lane);
  } else {
    for (; mask != 0; mask &= mask - 1) body(static_cast<unsigned>(std::countr_zero(mask)));
  }
}

/// A slot of the frame, or ~index of a constant.
using Source = std::int32_t;
inline constexpr std::int32_t kNoSlot = -1;  ///< of a result that goes nowhere

enum class Flow : std::uint8_t {
  kCompute,  ///< the handler does it
  kSpecial,
  kFrameAddress,
  kActiveMask,
  kLoad,
  kStore,
  kAtomic,
  kFence,
  kPause,
  // Lanes may part at these, if they are guarded.
  kBranch,
  kCall,
  kReturn,
  kExit,
  kTrap,
  kBarrier,
  kWarp  ///< bar.warp.sync, votes
};

/// What a special register depends on.
struct SpecialThread {
  unsigned index = 0;  ///< in its block
  Dim block{}, grid{}, in_grid{};
};
using Special = Slot (*)(const SpecialThread&);
/// nullptr: there is none of that name.
Special find_special(std::string_view name);

/// Where an address points.
enum class Where : std::uint8_t { kGlobal, kShared, kLocal, kFrame, kParameters, kGeneric };
/// Generic addresses that are none of the device's. Dynamic shared memory starts at an address of its own.
inline constexpr std::uint64_t kSharedWindow = 1ULL << 56, kLocalWindow = 2ULL << 56,
                               kParameterWindow = 3ULL << 56, kWindowBits = 56, kDynamicShared = 1ULL << 24;

enum class LaneAction : std::uint8_t { kJoin, kAll, kAny, kUni, kBallot };
enum class Reduction : std::uint8_t { kNone, kAnd, kOr, kPopc };
struct Conversion {
  ptx::Type to{}, from{};
};

struct Copy {
  std::size_t from = 0, to = 0, bytes = 0;  ///< offsets in frames
};
struct Call {
  std::size_t caller = 0, function = 0;
  std::vector<Copy> arguments{}, results{};
};

struct Op;
/// What a handler sees: registers of the lanes that run.
struct Frame {
  Slot* slots;
  const Slot* constants;

  const Slot* in(const Op& op, std::size_t i) const;
  Slot* out(const Op& op, std::size_t i) const;
};
using Handler = void (*)(const Op&, const Frame&, Mask);

/// Beside indexes of ops. At the return: behind the call of the function.
inline constexpr std::uint32_t kNowhere = ~0U, kAtReturn = ~1U;

struct Op {
  Flow flow = Flow::kCompute;
  bool guarded = false, guard_negated = false;
  bool negated = false;  ///< the predicate that is the last source
  std::int32_t guard = 0;
  std::array<std::int32_t, 4> to{kNoSlot, kNoSlot, kNoSlot, kNoSlot};
  std::array<Source, 5> from{};
  Handler handler = nullptr;
  std::uint64_t width = ~0ULL;  ///< the bits of the register that a result goes to

  // Memory: the address is from[0] + offset; from[1] and on are operands.
  Where where = Where::kGlobal;
  memory::Order order = memory::Order::kWeak;
  memory::Scope scope = memory::Scope::kSystem;
  std::uint8_t elem_bytes = 0, elems = 0;
  bool is_signed = false;
  std::uint64_t offset = 0;
  memory::View::Change change = nullptr;

  std::uint32_t target = kNowhere;   ///< of a branch: an op; of a call: its index in Code::calls
  std::uint32_t meeting = kNowhere;  ///< where lanes that part here meet: an op, or kAtReturn
  Special special = nullptr;
  LaneAction lanes{};
  Reduction reduction{};
  Conversion conversion{};

  int line = 0;
  std::string_view text{};
};

inline const Slot* Frame::in(const Op& op, std::size_t i) const {
  const Source at = op.from[i];
  return at >= 0 ? slots + static_cast<std::size_t>(at) * kLanes
                 : constants + static_cast<std::size_t>(~at) * kLanes;
}
inline Slot* Frame::out(const Op& op, std::size_t i) const {
  return slots + static_cast<std::size_t>(op.to[i]) * kLanes;
}

struct Function {
  std::string name{};
  std::uint32_t begin = 0, end = 0;  ///< its ops
  std::size_t slots = 0, frame_bytes = 0;
  bool is_entry = false;
  // With all that it calls:
  std::size_t most_slots = 0, most_frame_bytes = 0, shared_bytes = 0;
};

struct Code {
  std::shared_ptr<const std::string> text{};
  std::vector<Op> ops{};
  std::vector<Call> calls{};
  std::vector<Function> functions{};
  std::vector<Slot> constants{};  ///< each 32 times
  std::vector<Entry> entries{};
};

/// Thrown by a handler.
struct DividedByZero {};

Code lower(const ptx::Module& module, const Program::Place& place);

}  // namespace virtual_gpu::run::detail
