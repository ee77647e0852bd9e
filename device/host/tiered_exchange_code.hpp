// tiered_exchange_code.hpp -- the code of TieredExchangeOf, for those who instantiate it: tiered_exchange.cpp
// for the product, and tests.
#pragma once

#include <cstring>
#include <utility>

#include "device/host/immediate_exchange_code.hpp"
#include "device/host/tiered_exchange.hpp"

namespace loom::device {

template <class Area>
TieredExchangeOf<Area>::TieredExchangeOf(ImmediateExchangeOf<Area>& exchange, Tiers tiers)
    : exchange_(exchange),
      tiers_(std::move(tiers)),
      self_(tiers_.position_of(exchange.self_)),
      operands_(new std::byte[Area::kMostOffered]) {}

/// One exchange: offers `bytes` of data, or nothing if that is nullptr. longest: offer of any rank. Calls
/// take(offer_of), where offer_of(position) waits for what a rank offers.
template <class Area>
template <class Take>
void TieredExchangeOf<Area>::step(const std::byte* data, std::size_t bytes, std::size_t longest,
                                  Waiter& waiter, Take&& take) {
  const std::uint64_t tag = ExchangeTag::in_step(tag_, step_++);
  const auto by = [&]<auto kWhere>() {
    const std::uint64_t flag = exchange_.template offer<kWhere>(data, bytes, longest, tag, waiter);
    take([&](int position) {
      const std::byte* const offered =
          exchange_.template take<kWhere>(tiers_.rank_at(position), flag, waiter);
      waiter.moved();
      return offered;
    });
  };
  if (longest <= Area::Line::kPayloadBytes)
    by.template operator()<Exchange::Where::kLine>();
  else
    by.template operator()<Exchange::Where::kRing>();
}

/// The leaders of this tier's subtrees offer what these hold, and the leader of each group takes it;
/// all_take: its other members, too.
template <class Area>
void TieredExchangeOf<Area>::rise(int tier, bool all_take, Waiter& waiter) {
  const Subtree mine = tiers_.subtree(tier, self_), group = tiers_.subtree(tier + 1, self_);
  const bool takes_part = Tiers::leader(mine, root_) == self_;
  const bool takes = takes_part && (all_take || Tiers::leader(group, root_) == self_);
  const auto bytes_of = [this](int positions) { return static_cast<std::size_t>(positions) * bytes_; };
  step(takes_part ? at(mine.first) : nullptr, bytes_of(mine.size()), bytes_of(tiers_.longest(tier)), waiter,
       [&](auto&& offer_of) {
         if (!takes) return;
         tiers_.for_each_in(tier, group, [&](const Subtree& other) {
           if (other.first == mine.first) return;
           const std::byte* const offered = offer_of(Tiers::leader(other, root_));
           immediate::copy_small(at(other.first), offered, bytes_of(other.size()));
         });
       });
}

/// The leader of each group of this tier offers the result to its other members.
template <class Area>
void TieredExchangeOf<Area>::fall(int tier, std::byte* result, std::size_t bytes, Waiter& waiter) {
  const bool takes_part = Tiers::leader(tiers_.subtree(tier, self_), root_) == self_;
  const int leader = Tiers::leader(tiers_.subtree(tier + 1, self_), root_);
  step(leader == self_ ? result : nullptr, bytes, bytes, waiter, [&](auto&& offer_of) {
    if (takes_part && leader != self_) immediate::copy_small(result, offer_of(leader), bytes);
  });
}

/// All operands are here.
template <class Area>
void TieredExchangeOf<Area>::reduce(const Call& call) const {
  const ReduceFn apply = call.reduce();
  const auto operand = [&](int rank) { return at(tiers_.position_of(rank)); };
  const std::byte* so_far = operand(0);
  for (int rank = 1; rank < tiers_.ranks(); ++rank) {
    apply(call.out, so_far, operand(rank), call.count);
    so_far = call.out;
  }
}

template <class Area>
void TieredExchangeOf<Area>::unpack(const Call& call) const {
  for (int rank = 0; rank < tiers_.ranks(); ++rank)
    immediate::copy_small(call.out + static_cast<std::size_t>(rank) * bytes_, at(tiers_.position_of(rank)),
                          bytes_);
}

/// A leader offers what it has taken, so a rank whose size differs from the root's cannot just perform the
/// root's call.
template <class Area>
void TieredExchangeOf<Area>::broadcast(const Call& call, Waiter& waiter) {
  // Only the root reads what it has.
  std::byte* const message = self_ == root_ ? const_cast<std::byte*>(call.in) : call.out;
  try {
    for (int tier = tiers_.tiers() - 1; tier >= 0; --tier) fall(tier, message, bytes_, waiter);
  } catch (const DifferentCall& other) {
    throw DifferentCall(other.peer(), other.its(), other.mine(), CallProgress::kMore);
  }
}

template <class Area>
void TieredExchangeOf<Area>::perform_part(const Call& call, std::size_t call_bytes, Waiter& waiter) {
  const std::uint64_t first = exchange_.exchange_ + 1;
  const bool rooted = call.collective == Collective::kReduce;
  const bool is_broadcast = call.collective == Collective::kBroadcast;
  bytes_ = call.bytes();
  root_ = rooted || is_broadcast ? tiers_.position_of(call.root) : -1;
  tag_ = ExchangeTag::of(call.collective, call_bytes);
  step_ = 0;
  exchange_.began_ = first;
  if (is_broadcast) {
    broadcast(call, waiter);
    exchange_.began_ = 0;
    return;
  }
  if (bytes_ > 0) std::memcpy(at(self_), call.in, bytes_);
  const int top = tiers_.tiers() - 1;
  for (int tier = 0; tier <= top; ++tier) rise(tier, tier == top && !rooted, waiter);
  if (rooted && self_ != root_) {
    exchange_.began_ = 0;
    return;
  }
  const bool has_all = rooted || Tiers::leader(tiers_.subtree(top, self_), root_) == self_;
  if (has_all && is_reduction(call.collective)) reduce(call);
  if (has_all && call.collective == Collective::kAllGather) unpack(call);
  const std::size_t result =
      call.collective == Collective::kAllGather ? static_cast<std::size_t>(tiers_.ranks()) * bytes_ : bytes_;
  for (int tier = top - 1; tier >= 0 && !rooted; --tier) fall(tier, call.out, result, waiter);
  // What has come down, or to the root, has come from all: they have entered the call.
  exchange_.entered_ = std::max(exchange_.entered_, first);
  if (!rooted) exchange_.level_ = exchange_.exchange_;
  exchange_.began_ = 0;
}

}  // namespace loom::device
