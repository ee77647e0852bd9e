// lane_memory.hpp -- memory of a host's ranks for persistent requests: each request has a lane of its own, at
// the same place in the memory of every rank. All ranks take the same places in the same order, and free them
// together: so they agree without a word where a lane lies.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "component/select/algorithms.hpp"
#include "device/call.h"
#include "device/cuda/zero_copy_links.hpp"
#include "device/host/cico_executor.hpp"
#include "device/host/lane_exchange.hpp"
#include "device/host/tiered_cico_executor.hpp"
#include "device/link/shared_memory.hpp"

namespace loom {

/// What a lane consists of. Depends on what all ranks share of the call.
struct LaneForm {
  std::optional<device::LaneSlots> slots;  ///< of immediate exchanges; nothing: a CICO buffer
  std::size_t bank_bytes = 0;              ///< of that buffer
  std::size_t rail_bank_bytes = 0;         ///< of groups, whose rails have a buffer behind it; 0: none
  bool on_gpus = false;                    ///< in their place the board of a zero copy

  static LaneForm for_gpus() {
    LaneForm form;
    form.on_gpus = true;
    return form;
  }
  static LaneForm of(Algorithm algorithm, const device::Call& call, int ranks);
  std::size_t bytes() const noexcept;
  /// At the beginning of the lane: what has to be 0 before anybody uses it.
  std::size_t bytes_to_clear() const noexcept { return slots || on_gpus ? bytes() : flag_bytes(); }
  /// In front of the banks.
  std::size_t flag_bytes() const noexcept { return (rail_bank_bytes > 0 ? 2 : 1) * kFlagBytes; }
  device::CicoPlace cico_in(std::byte* lane) const noexcept;
  device::GroupsPlace groups_in(std::byte* lane) const noexcept;

 private:
  static constexpr std::size_t kFlagBytes = (sizeof(device::RoundFlags) + 127) / 128 * 128;
};

class LaneMemory {
 public:
  /// A place that this rank uses, or has left; the others may still use it.
  struct Place {
    std::size_t slab, offset, bytes;
    bool left = false;  ///< by this rank
  };
  using Places = std::list<Place>;

  /// Free on all ranks; nullptr: there is no such room, or no memory for it here, which `out_of_memory` says.
  Place* take(std::size_t bytes, bool& out_of_memory);
  bool has_room(std::size_t bytes) const;
  std::byte* address(int rank, const Place& place) const;

  /// One bit for each place, by the order of places: which ones this rank has left.
  std::vector<std::byte> left_here() const;
  /// Frees the places that all ranks have left, as they have said by left_here(): all[r] is rank r's.
  template <class All>
  void free_left_by_all(const All& all, int ranks) noexcept {
    std::size_t bit = 0;
    for (auto place = places_.begin(); place != places_.end(); ++bit) {
      bool left = true;
      for (int rank = 0; rank < ranks; ++rank)
        left &= (std::to_integer<unsigned>(all[rank][bit / 8]) >> bit % 8 & 1) != 0;
      place = left ? places_.erase(place) : std::next(place);
    }
  }
  /// Whoever used a place has gone.
  void leave_all() noexcept {
    for (Place& place : places_) place.left = true;
  }

  /// Of a slab that has room for so many bytes, while all slabs together stay within `most`; 0: there can be
  /// none.
  std::size_t next_slab_bytes(std::size_t bytes, std::size_t most) const noexcept;
  /// A segment of each rank, this one's included, by rank.
  void add(std::vector<device::Segment> by_rank, std::size_t bytes);
  /// Of this rank, in all slabs.
  std::size_t bytes() const noexcept;

  /// From now on there is no room: the ranks could not agree on a place.
  void close() noexcept { closed_ = true; }
  bool is_closed() const noexcept { return closed_; }

 private:
  struct Slab {
    std::vector<device::Segment> by_rank;
    std::size_t bytes;
  };
  std::optional<std::pair<Places::const_iterator, Place>> find(std::size_t bytes) const;

  std::vector<Slab> slabs_;
  Places places_;  ///< by slab and offset
  bool closed_ = false;
};

}  // namespace loom
