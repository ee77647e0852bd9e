#include "component/links/lane_memory.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace loom {
namespace {

using device::Collective;
using device::kCacheLine;

// Places begin at pairs of cache lines.
constexpr std::size_t kUnit = 2 * kCacheLine;
constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Most communicators have few requests.
constexpr std::size_t kFirstSlab = 64 * 1024;
constexpr std::size_t kPage = 4096;

// Of a CICO buffer: as long as a message, so that few rounds suffice where ranks outnumber CPUs, up to about
// those of a communicator; where ranks do not know how long their blocks are,
// shorter: a block then takes more rounds.
constexpr std::size_t kFewestBankBytes = 1024, kMostBankBytes = device::CicoBuffer::kBankBytes;
constexpr std::size_t kBankOfUnknown = 32 * 1024;
// In a bank, of each rank: a piece is a multiple of a cache line, and blocks have headers.
constexpr std::size_t kBytesPerRank = 3 * kCacheLine;

std::size_t bank_for(std::size_t message, int ranks) {
  return round_up(std::max(message, kFewestBankBytes) + static_cast<std::size_t>(ranks) * kBytesPerRank,
                  kCacheLine);
}

}  // namespace

LaneForm LaneForm::of(Algorithm algorithm, const device::Call& call, int ranks) {
  using device::CicoGroups;
  using device::GroupsBuffer;
  LaneForm form;
  const std::size_t shared = device::shared_bytes(call, ranks);
  if (algorithm == Algorithm::kImmediate) {
    form.slots = device::LaneSlots::of(call.collective, shared, ranks);
    return form;
  }
  const bool known = !device::lists_blocks(call.collective) || call.collective == Collective::kAllGatherV;
  const std::size_t message = known ? device::offered_bytes(call.collective, shared, ranks) : kBankOfUnknown;
  if (algorithm == Algorithm::kTieredCico) {
    const int members = CicoGroups::members_of(ranks), groups = ranks / members;
    const bool gathers = call.collective == Collective::kAllGather;
    const std::size_t in_group = gathers ? static_cast<std::size_t>(groups) * message : message,
                      on_rail = gathers ? message : message / static_cast<std::size_t>(members);
    form.bank_bytes = bank_for(std::min(in_group, GroupsBuffer::kGroupBankBytes), members);
    form.rail_bank_bytes = bank_for(std::min(on_rail, GroupsBuffer::kRailBankBytes), groups);
    return form;
  }
  form.bank_bytes = bank_for(std::min(message, kMostBankBytes), ranks);
  return form;
}

std::size_t LaneForm::bytes() const noexcept {
  static_assert(alignof(device::cuda::ZeroCopyBoard) <= kUnit);
  if (on_gpus) return sizeof(device::cuda::ZeroCopyBoard);
  return slots ? slots->bytes() : flag_bytes() + device::CicoBuffer::kBanks * (bank_bytes + rail_bank_bytes);
}

device::CicoPlace LaneForm::cico_in(std::byte* lane) const noexcept {
  return {reinterpret_cast<device::RoundFlags*>(lane), lane + flag_bytes()};
}

device::GroupsPlace LaneForm::groups_in(std::byte* lane) const noexcept {
  const device::CicoPlace group = cico_in(lane);
  return {.group = group,
          .rail = {reinterpret_cast<device::RoundFlags*>(lane + kFlagBytes),
                   group.banks + device::CicoBuffer::kBanks * bank_bytes}};
}

/// The first place that is free, and what comes behind it in places_.
std::optional<std::pair<LaneMemory::Places::const_iterator, LaneMemory::Place>> LaneMemory::find(
    std::size_t bytes) const {
  if (closed_) return {};
  const std::size_t wanted = round_up(bytes, kUnit);
  auto next = places_.begin();
  for (std::size_t slab = 0; slab < slabs_.size(); ++slab) {
    std::size_t from = 0;
    for (;; ++next) {
      const bool ends = next == places_.end() || next->slab != slab;
      const std::size_t to = ends ? slabs_[slab].bytes : next->offset;
      if (to - from >= wanted) return std::pair(next, Place{slab, from, wanted});
      if (ends) break;
      from = next->offset + next->bytes;
    }
  }
  return {};
}

bool LaneMemory::has_room(std::size_t bytes) const {
  return find(bytes).has_value();
}

LaneMemory::Place* LaneMemory::take(std::size_t bytes, bool& out_of_memory) {
  const auto found = find(bytes);
  out_of_memory = false;
  if (!found) return nullptr;
  try {
    return &*places_.insert(found->first, found->second);
  } catch (const std::bad_alloc&) {
    out_of_memory = true;
    return nullptr;
  }
}

std::byte* LaneMemory::address(int rank, const Place& place) const {
  return slabs_[place.slab].by_rank[static_cast<std::size_t>(rank)].data() + place.offset;
}

std::vector<std::byte> LaneMemory::left_here() const {
  std::vector<std::byte> bits(places_.size() / 8 + 1);
  std::size_t bit = 0;
  for (const Place& place : places_) {
    if (place.left) bits[bit / 8] |= std::byte{1} << bit % 8;
    ++bit;
  }
  return bits;
}

std::size_t LaneMemory::next_slab_bytes(std::size_t bytes, std::size_t most) const noexcept {
  const std::size_t all = this->bytes(), wanted = round_up(bytes, kPage);
  if (closed_ || all >= most || wanted > most - all) return 0;
  return std::clamp(std::max(all, kFirstSlab), wanted, std::max(wanted, most - all));
}

void LaneMemory::add(std::vector<device::Segment> by_rank, std::size_t bytes) {
  slabs_.push_back({std::move(by_rank), bytes});
}

std::size_t LaneMemory::bytes() const noexcept {
  std::size_t bytes = 0;
  for (const Slab& slab : slabs_) bytes += slab.bytes;
  return bytes;
}

}  // namespace loom
