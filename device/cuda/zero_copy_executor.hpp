// zero_copy_executor.hpp -- a collective of one host by one kernel on each rank's GPU that reads the operands
// and writes the results of all ranks where they lie (zero_copy_plan.hpp). The hosts see to the order: all
// buffers are ready before any kernel starts, and a call ends when all kernels have. No kernel waits for
// another one, so ranks may share a GPU in any way. Reductions go in order of rank, as on the host. Never run
// on a GPU so far.
//
// A buffer that others cannot reach, and one that a call in place would overwrite too early, bounces: it is
// copied by way of the rank's bounce buffer, in as many rounds as that takes.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "device/call.h"
#include "device/cuda/gpu_links.hpp"
#include "device/cuda/program_mark.hpp"
#include "device/host/cico_blocks_executor.hpp"
#include "device/host/ring_executor.hpp"

namespace loom::device::cuda {

class ZeroCopyExecutor {
 public:
  /// A call that zero_copy_takes(), whose buffers are contiguous, or lists of blocks, and on the GPU of
  /// `links` or, if they bounce, anywhere that it reaches. It begins after a mark in the program's work;
  /// nullptr: after all that is there when the call begins. What is referred to must outlive this. may_wait:
  /// a moment, where memory that is gone is let go of.
  ZeroCopyExecutor(GpuLinks& links, const Call& call, bool may_wait, const ProgramMark* after = nullptr);
  /// Of a persistent call, over links of its own, which have no bounce buffers: nothing may bounce. after
  /// nullptr: tries that, and performs nothing.
  ZeroCopyExecutor(GpuLinks& links, ZeroCopyLinks& of_lane, const Call& call, const ProgramMark* after);
  /// Waits for what is on the GPU, also of other ranks: until then nobody may use the buffers. A call that
  /// has not ended is abandoned.
  ~ZeroCopyExecutor();
  /// Before it begins: this rank's buffers may be anywhere, so all are copied.
  void bounce_all() noexcept { bounces_all_ = true; }
  ZeroCopyExecutor(const ZeroCopyExecutor&) = delete;
  ZeroCopyExecutor& operator=(const ZeroCopyExecutor&) = delete;

  using State = RingExecutor::State;
  /// As far as it goes. That the program's own work on the GPU has not ended counts as a move now and then.
  /// Throws what Gpu throws, and Error (kGivenUp).
  State advance();
  /// Whom it waits for, and half a sentence on how far that rank has come.
  int awaited() const noexcept;
  const char* standing() const noexcept;
  /// Once it is done: a block that did not fit.
  const std::optional<CutBlock>& cut() const noexcept { return cut_; }
  /// The same on all ranks: a buffer bounces.
  bool any_bounces() const noexcept { return any_bounces_; }

 private:
  enum class Phase : std::uint8_t {
    kBegins,
    kFollows,  ///< the program's work
    kLoads,    ///< what bounces
    kMeets,    ///< until all operands may be read, and all results written
    kCloses,   ///< until nothing is in the way of new buffers
    kOpens,    ///< until all have tried to open what is new
    kRuns,
    kEnds,    ///< until all kernels have ended
    kStores,  ///< what has bounced
    kDone
  };

  std::optional<GpuLinks::HeldUpBy> held_up_by() const noexcept;
  void withdraw() noexcept;
  bool program_has_ended() const;
  State wait_for_program();
  void offer();
  void offer_side(Side side, ZeroCopyOffer& offer);
  void begin_offer();
  void begin_round();
  void transfer(Side side);
  template <class Body>
  void for_each_buffer(Body&& body);
  State meet();
  State open();
  bool has_room();
  State agree();
  State run();
  State end();
  State end_round();
  void look_at_lengths();
  bool all_have(StepFlag ZeroCopyBoard::*flag);

  bool has_lane() const noexcept { return &links_ != &gpus_.zero_copy(); }
  bool only_tries() const noexcept { return has_lane() && after_ == nullptr; }
  bool lists(Side side) const {
    return lists_blocks(call_.collective) && blocks_of(call_.collective, side, ranks_) > 1;
  }
  bool stays_in_place(Side side, int block) const;
  bool bounces(Side side) const { return links_.own().offer.side(side).bounces; }
  std::size_t bounced_window() const;
  std::size_t length(Side side, int rank, int block) const;
  std::size_t first_of(Side side, int block) const;
  std::byte* own_at(Side side, int block) const;
  std::byte* at(Side side, int rank, int block) const;

  GpuLinks& gpus_;
  ZeroCopyLinks& links_;
  Call call_;
  const ProgramMark* after_;
  bool may_wait_;
  bool bounces_all_ = false;
  int rank_, ranks_;
  std::size_t elem_;
  Phase phase_ = Phase::kBegins;
  bool works_ = false;         ///< the stream has work of this call
  bool has_met_ = false;       ///< all offers are known
  bool any_bounces_ = false;   ///< then: a buffer of any rank
  bool is_exposed_ = false;    ///< other ranks may read and write this one's buffers
  std::uint64_t news_ = 0;     ///< buffers that have to be opened, as in ZeroCopyBoard
  std::uint64_t bounced_ = 0;  ///< buffers that a rank could not open in this call, as in ZeroCopyBoard
  std::size_t longest_ = 0;
  RoundWindow window_;
  /// Bytes of the blocks that come to this rank, where the call lists blocks and they are as long as their
  /// senders say.
  std::array<std::size_t, CombineArgs::kMost> sent_{};
  std::optional<CutBlock> cut_;
  ProgramWait program_wait_;
};

}  // namespace loom::device::cuda
