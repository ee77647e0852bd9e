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

namespace {

std::vector<GroupsPlace> places_of(const std::vector<GroupsBuffer*>& buffers) {
  std::vector<GroupsPlace> places;
  for (GroupsBuffer* buffer : buffers)
    places.push_back(
        {{&buffer->group_flags, buffer->group_banks}, {&buffer->rail_flags, buffer->rail_banks}});
  return places;
}

}  // namespace

CicoGroups::CicoGroups(const std::vector<GroupsBuffer*>& buffers, const Tiers& tiers, int self,
                       bool few_rounds)
    : CicoGroups(places_of(buffers), tiers, self, few_rounds, GroupsBuffer::kGroupBankBytes,
                 GroupsBuffer::kRailBankBytes) {
  for (GroupsBuffer* buffer : buffers) calls_.push_back(&buffer->call);
}

CicoGroups::CicoGroups(const std::vector<GroupsPlace>& places, const Tiers& tiers, int self, bool few_rounds,
                       std::size_t group_bank_bytes, std::size_t rail_bank_bytes)
    : tiers_(tiers),
      members_(members_of(tiers.ranks())),
      self_(self),
      group_(make(places, Side::kGroup, few_rounds, group_bank_bytes)),
      rail_(make(places, Side::kRail, few_rounds, rail_bank_bytes)) {}

CicoBuffers CicoGroups::make(const std::vector<GroupsPlace>& places, Side side, bool few_rounds,
                             std::size_t bank_bytes) const {
  const bool is_group = side == Side::kGroup;
  const int size = is_group ? members_ : tiers_.ranks() / members_;
  std::vector<CicoPlace> of_side;
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) {
    const int rank = is_group ? rank_at(group_of(self_), i) : rank_at(i, place_of(self_));
    const GroupsPlace& place = places[static_cast<std::size_t>(rank)];
    of_side.push_back(is_group ? place.group : place.rail);
    ranks.push_back(rank);
  }
  CicoBuffers cico(of_side, is_group ? place_of(self_) : group_of(self_), few_rounds, Rounds::kFewestBanks,
                   bank_bytes);
  cico.name_ranks(std::move(ranks));
  return cico;
}

/// Relaxed: the word stands for itself. A rank that is another number of calls ahead, or behind, is in no
/// other call than this one was, or will be; and none is 256 calls ahead, for banks are fewer.
void CicoGroups::enter(const CallNote& note) noexcept {
  ++entered_;
  if (!calls_.empty())
    calls_[static_cast<std::size_t>(self_)]->store(note.word() | (entered_ & 0xff),
                                                   std::memory_order_relaxed);
}

/// Reads this rank's own word, too: another thread may be entering a call.
void CicoGroups::check_calls() const {
  if (calls_.empty()) return;
  const auto word_of = [&](std::size_t rank) { return calls_[rank]->load(std::memory_order_relaxed); };
  const std::uint64_t mine = word_of(static_cast<std::size_t>(self_));
  const CallNote note = CallNote::from_word(mine);
  for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
    const std::uint64_t word = word_of(rank);
    const CallNote its = CallNote::from_word(word);
    if ((word & 0xff) != (mine & 0xff) || its == note) continue;
    if (its.family() == CallFamily::kTieredCico || note.family() == CallFamily::kTieredCico)
      throw DifferentCall(static_cast<int>(rank), its, note, CallProgress::kMore);
  }
}

TieredCicoExecutor::TieredCicoExecutor(CicoGroups& groups, const Call& call) : groups_(groups), call_(call) {
  if (is_barrier()) {
    meet(groups_.group());
  } else if (gathers()) {
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

/// A rank that has met its group, and then one of each group, has met all.
void TieredCicoExecutor::meet(CicoBuffers& cico) {
  back_.emplace(cico, call_);
  note(cico);
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
        is_barrier() ? meet(groups_.rail()) : begin_across();
        break;
      case Stage::kAcross:
        stage_ = is_barrier() ? Stage::kDone : Stage::kBack;
        if (!is_barrier()) gathers() ? gather_back() : begin_back();
        break;
      default:
        stage_ = Stage::kDone;
    }
  }
  return State::kDone;
}

int TieredCicoExecutor::awaited() const noexcept {
  const int self = groups_.self();
  if (!forth_ && !back_) return self;
  const int awaited = forth_ ? forth_->awaited() : back_->awaited();
  return stage_ == Stage::kAcross ? groups_.rank_at(awaited, groups_.place_of(self))
                                  : groups_.rank_at(groups_.group_of(self), awaited);
}

}  // namespace loom::device
