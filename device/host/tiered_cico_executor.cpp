#include "device/host/tiered_cico_executor.hpp"

#include <algorithm>
#include <cstring>

namespace loom::device {

int CicoGroups::members_of(int ranks) {
  int best = 1;
  const auto others = [&](int members) { return 2 * members + ranks / members; };
  for (int members = 2; members <= std::min(kMostMembers, ranks - 1); ++members)
    if (ranks % members == 0 && ranks / members <= kMostGroupsPerMember * members &&
        (best == 1 || others(members) <= others(best)))
      best = members;
  return best;
}

CicoGroups::CicoGroups(const std::vector<GroupsBuffer*>& buffers, const Tiers& tiers, int self,
                       bool few_rounds)
    : tiers_(tiers),
      members_(members_of(tiers.ranks())),
      self_(self),
      group_(make(buffers, Side::kGroup, few_rounds)),
      rail_(make(buffers, Side::kRail, few_rounds)) {}

CicoBuffers CicoGroups::make(const std::vector<GroupsBuffer*>& buffers, Side side, bool few_rounds) const {
  const bool is_group = side == Side::kGroup;
  const int size = is_group ? members_ : tiers_.ranks() / members_;
  std::vector<CicoPlace> places;
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) {
    const int rank = is_group ? rank_at(group_of(self_), i) : rank_at(i, place_of(self_));
    GroupsBuffer& buffer = *buffers[static_cast<std::size_t>(rank)];
    places.push_back(is_group ? CicoPlace{&buffer.group_flags, buffer.group_banks}
                              : CicoPlace{&buffer.rail_flags, buffer.rail_banks});
    ranks.push_back(rank);
  }
  CicoBuffers cico(places, is_group ? place_of(self_) : group_of(self_), few_rounds, Rounds::kFewestBanks,
                   is_group ? GroupsBuffer::kGroupBankBytes : GroupsBuffer::kRailBankBytes);
  cico.name_ranks(std::move(ranks));
  return cico;
}

TieredCicoExecutor::TieredCicoExecutor(CicoGroups& groups, const Call& call) : groups_(groups), call_(call) {
  if (gathers()) {
    stage_ = Stage::kAcross;
    gather_across();
  } else {
    begin_inside();
  }
}

void TieredCicoExecutor::begin_inside() {
  const int members = groups_.group().size(), place = groups_.group().self();
  for (int i = 0; i < members; ++i)
    bounds_.push_back(chunk_range(call_.count, call_.elem_bytes(), members, i).first);
  bounds_.push_back(call_.count);
  const std::size_t first = bounds_[static_cast<std::size_t>(place)] * call_.elem_bytes(),
                    end = bounds_[static_cast<std::size_t>(place) + 1] * call_.elem_bytes();
  if (!has_result()) sum_ = std::make_unique_for_overwrite<std::byte[]>(end - first);
  share_ = {has_result() ? call_.out + first : sum_.get(), end - first};

  Call inside = call_;
  inside.collective = Collective::kReduceScatterV;
  inside.out = share_.data;
  inside.bounds = bounds_.data();
  forth_.emplace(groups_.group(), inside);
  note(groups_.group());
}

/// All ranks of a rail have as long a share.
void TieredCicoExecutor::begin_across() {
  forth_.reset();
  if (share_.bytes == 0) return;
  Call across = call_;
  across.in = across.out = share_.data;
  across.count = share_.bytes / call_.elem_bytes();
  across.root = is_rooted() ? groups_.group_of(call_.root) : 0;
  forth_.emplace(groups_.rail(), across);
  note(groups_.rail());
}

void TieredCicoExecutor::begin_back() {
  forth_.reset();
  if (is_rooted() && !is_with_root()) return;
  Call back{.collective = is_rooted() ? Collective::kGather : Collective::kAllGatherV,
            .count = share_.bytes,
            .root = is_rooted() ? groups_.place_of(call_.root) : 0};
  back.in_blocks = &share_;
  if (has_result()) {
    for (std::size_t i = 0; i + 1 < bounds_.size(); ++i)
      shares_.push_back(
          {call_.out + bounds_[i] * call_.elem_bytes(), (bounds_[i + 1] - bounds_[i]) * call_.elem_bytes()});
    back.out_blocks = shares_.data();
    back.owns_its_block = true;
  }
  back_.emplace(groups_.group(), back);
  note(groups_.group());
}

void TieredCicoExecutor::gather_across() {
  of_rail_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(groups_.rail().size()) *
                                                         call_.bytes());
  Call across{.collective = Collective::kAllGather, .in = call_.in, .out = of_rail_.get()};
  across.count = call_.bytes();
  across.in_packer = call_.in_packer;
  forth_.emplace(groups_.rail(), across);
  note(groups_.rail());
}

void TieredCicoExecutor::gather_back() {
  placed_.resize(static_cast<std::size_t>(groups_.group().size()));
  placer_ = {.move =
                 [](void* self, int neighbour, std::byte* packed, std::size_t bytes) {
                   static_cast<TieredCicoExecutor*>(self)->place(neighbour, packed, bytes);
                 },
             .context = this};
  Call back{.collective = Collective::kAllGather, .in = of_rail_.get()};
  back.count = static_cast<std::size_t>(groups_.rail().size()) * call_.bytes();
  back.out_packer = &placer_;
  forth_.emplace(groups_.group(), back);
  note(groups_.group());
}

/// The next bytes of what a neighbour has gathered: blocks of one rank of each group.
void TieredCicoExecutor::place(int neighbour, std::byte* packed, std::size_t bytes) {
  std::size_t& placed = placed_[static_cast<std::size_t>(neighbour)];
  for (std::size_t step; bytes > 0; placed += step, packed += step, bytes -= step) {
    const std::size_t group = placed / call_.bytes(), first = placed % call_.bytes();
    const int rank = groups_.rank_at(static_cast<int>(group), neighbour);
    step = std::min(bytes, call_.bytes() - first);
    if (call_.out_packer != nullptr)
      call_.out_packer->move(call_.out_packer->context, rank, packed, step);
    else
      std::memcpy(call_.out + static_cast<std::size_t>(rank) * call_.bytes() + first, packed, step);
  }
}

TieredCicoExecutor::State TieredCicoExecutor::advance() {
  for (bool moved = false; stage_ != Stage::kDone; moved = true) {
    const State state = forth_ ? forth_->advance() : back_ ? back_->advance() : State::kDone;
    if (state != State::kDone) return moved ? State::kMoved : state;
    switch (stage_) {
      case Stage::kInside:
        stage_ = Stage::kAcross;
        begin_across();
        break;
      case Stage::kAcross:
        stage_ = Stage::kBack;
        gathers() ? gather_back() : begin_back();
        break;
      default:
        stage_ = Stage::kDone;
    }
  }
  return State::kDone;
}

int TieredCicoExecutor::awaited() const noexcept {
  const int self = groups_.self();
  if (stage_ == Stage::kAcross && forth_) return groups_.rank_at(forth_->awaited(), groups_.place_of(self));
  const int place = forth_ ? forth_->awaited() : back_ ? back_->awaited() : groups_.place_of(self);
  return groups_.rank_at(groups_.group_of(self), place);
}

}  // namespace loom::device
