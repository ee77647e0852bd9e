// net_handle.hpp -- what a rank tells the others of its ends of links between hosts.
#pragma once

#include <array>
#include <vector>

#include "component/setup/agreement.hpp"
#include "component/setup/byte_stream.hpp"
#include "component/setup/group.hpp"

namespace loom {

/// The inboxes of two ends; 0 for one that there is not.
struct InboxIds {
  ucx_transport::InboxId receive = 0, send = 0;
  static InboxIds of(const Links::HostLinks& ends) {
    return {ends.receive ? ends.receive->inbox() : 0, ends.send ? ends.send->inbox() : 0};
  }
};

/// Joins my ends to the other rank's.
inline void join(const Links::HostLinks& mine, const ucx_transport::Bytes& worker_address,
                 const InboxIds& other) {
  if (mine.send) mine.send->connect(worker_address, other.receive);
  if (mine.receive) mine.receive->connect(worker_address, other.send);
}

struct NetHandle {
  ucx_transport::Bytes worker_address;
  InboxIds ring;
  std::array<std::array<InboxIds, device::DbtLinks::kMostNeighbours>, 2> trees;
  std::vector<InboxIds> hosts;  ///< of the leader of a node, by host; else empty

  void write(ByteWriter& writer) const {
    writer.string(worker_address);
    writer.value(ring);
    writer.value(trees);
    writer.value(hosts.size());
    for (const InboxIds& ids : hosts) writer.value(ids);
  }
  /// Throws Error (kInternal).
  static NetHandle read(ByteReader& reader) {
    NetHandle handle;
    handle.worker_address = reader.string();
    handle.ring = reader.value<InboxIds>();
    handle.trees = reader.value<decltype(handle.trees)>();
    for (auto left = reader.value<std::size_t>(); left > 0; --left)
      handle.hosts.push_back(reader.value<InboxIds>());
    return handle;
  }
};

/// Of a rank's handle, what comes behind that of its segment.
inline NetHandle net_handle_of(const GatheredBytes& handles, int rank) {
  ByteReader reader(handles[rank]);
  reader.value<device::SegmentHandle>();
  return NetHandle::read(reader);
}

}  // namespace loom
