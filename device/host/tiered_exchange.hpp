// tiered_exchange.hpp -- small collectives of one host with many cores: immediate exchanges in groups
// (tiers.hpp), up to the top and back down. A rank looks at a few lines instead of those of all ranks.
//
// What goes up are operands, not partial results, and whoever has all of them reduces in order of rank: the
// same bits as an exchange between all ranks, for every operation and type. So it is for messages that are
// short even n times: n * bytes <= Area::kMostOffered. A broadcast only goes down.
#pragma once

#include <memory>

#include "device/host/immediate_exchange.hpp"
#include "device/host/tiers.hpp"

namespace loom::device {

/// Exchanges of a communicator beside those of its ImmediateExchangeOf, in the same lines and with the same
/// numbers, so that ranks in different calls see it. Each tier takes one exchange on the way up and one on
/// the way down, in which every rank publishes, even if it offers nothing. So exchanges keep their meaning:
/// who has published one has left those before it. Each says which step of the call it is.
template <class Area>
class TieredExchangeOf {
 public:
  static constexpr bool takes(Collective collective) {
    return collective == Collective::kAllreduce || collective == Collective::kReduce ||
           collective == Collective::kBroadcast || collective == Collective::kAllGather ||
           collective == Collective::kBarrier;
  }
  /// Bytes of a message or block, of n ranks.
  static constexpr bool takes(Collective collective, std::size_t bytes, int ranks) {
    const auto offers = collective == Collective::kBroadcast ? 1 : static_cast<std::size_t>(ranks);
    return takes(collective) && bytes <= Area::kMostOffered / offers;
  }

  /// exchange must outlive this; it has as many ranks. The same tiers on all ranks.
  TieredExchangeOf(ImmediateExchangeOf<Area>& exchange, Tiers tiers);

  /// A call that takes() accepts. Throws as
  /// ImmediateExchangeOf::perform(), but then the call cannot be performed again.
  void perform(const Call& call, Waiter& waiter) { perform_part(call, call.bytes(), waiter); }
  /// `call` is all of a call of call_bytes, packed.
  void perform_part(const Call& call, std::size_t call_bytes, Waiter& waiter);

 private:
  using Exchange = ImmediateExchangeOf<Area>;
  using Subtree = Tiers::Subtree;

  template <class Take>
  void step(const std::byte* data, std::size_t bytes, std::size_t longest, Waiter& waiter, Take&& take);
  void broadcast(const Call& call, Waiter& waiter);
  void rise(int tier, bool all_take, Waiter& waiter);
  void fall(int tier, std::byte* result, std::size_t bytes, Waiter& waiter);
  void reduce(const Call& call) const;
  void unpack(const Call& call) const;
  std::byte* at(int position) const { return operands_.get() + static_cast<std::size_t>(position) * bytes_; }

  Exchange& exchange_;
  Tiers tiers_;
  int self_;                               ///< position
  std::unique_ptr<std::byte[]> operands_;  ///< by position, as far as they have come here
  // Of the call.
  int root_ = -1;  ///< position
  std::size_t bytes_ = 0;
  std::uint64_t tag_ = 0;
  int step_ = 0;
};
extern template class TieredExchangeOf<ImmediateArea>;
using TieredExchange = TieredExchangeOf<ImmediateArea>;

}  // namespace loom::device
