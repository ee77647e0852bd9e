// lane.hpp -- what one persistent request has of its own: memory of all ranks, and a queue. So it needs no
// place among the starts of others.
#pragma once

#include <atomic>

#include "component/communicator/requests.hpp"
#include "component/execute/execution.hpp"
#include "component/links/lane_memory.hpp"
#include "component/links/links.hpp"
#include "component/setup/member.hpp"

namespace loom {

struct Lane {
  /// All must outlive this. Its place in this rank's memory is cleared; no other rank may use the lane before
  /// all have made it.
  Lane(Communicator& communicator, Member& member, const Links& of_communicator, LaneMemory::Place& at,
       const LaneForm& form)
      : execution(member, links), queue(communicator, execution), place(at) {
    links = links_in(of_communicator, member, at, form);
  }
  ~Lane() { place.left = true; }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Links links;  ///< its memory, and nothing else
  Execution execution;
  RequestQueue queue;
  LaneMemory::Place& place;
  std::atomic<bool> released{false};  ///< its request has gone; pairs with the look before it is taken back

 private:
  static Links links_in(const Links& of_communicator, const Member& member, const LaneMemory::Place& at,
                        const LaneForm& form);
};

}  // namespace loom
