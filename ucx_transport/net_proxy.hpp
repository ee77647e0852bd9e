// net_proxy.hpp -- between the kernels of this rank's GPU and ranks of other hosts: tells the network what a
// kernel has filled, and a kernel what the network has brought.
//
// A link's slots are the kernel's slots: in page-locked memory of the host that both reach, where UCX sends
// from and its callback puts data, so that no copy is added; or in the GPU's memory, which the network reads
// and writes by itself (GPUDirect). What it has written there may still be on its way when UCX says that it
// has come: the GPU is asked to take it in before it is announced. Kernels count as the ends in
// device/steps/fifo.hpp do, and links count alike:
//
//   sender    kernel   data, bytes, then filled: release   -- pairs with --  advance(): acquire, publishes
//             proxy    consumed: release                   -- pairs with --  the kernel's wait for room
//   receiver  proxy    filled: release, after the arrival
//                      (and the GPU's taking in)           -- pairs with --  the kernel's wait for data
//             kernel   consumed: release                   -- pairs with --  advance(): acquire, releases
//
// Protocol Simple alone: UCX promises neither order nor whole words, so arrival must be told by a word.
//
// Messages are numbered, and links of trees pass over numbers (steps::TreeEnds): the sender's kernel goes on
// with a later one, which its slot notes, and the receiver's says that it has consumed those in between. Both
// kernels pass over the same, so a link's next slot is either the one that has come or one that is passed
// over.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/steps/layout.hpp"
#include "ucx_transport/net_fifo.hpp"

namespace loom::ucx_transport {

/// This rank's end of a link, whose words are numbers of the link's steps, and its slots the link's.
struct NetSendEnd {
  device::steps::FarEnd kernel;
  NetSendLink* link = nullptr;
};
struct NetRecvEnd {
  device::steps::FarEnd kernel;
  NetRecvLink* link = nullptr;
};

/// Serves the network ends of all channels of a rank. Nothing waits. For one thread at a time; others may
/// progress the transport meanwhile. Links and words must outlive it. The links' slots carry no note of a
/// call, for kernels have none.
class NetProxy {
 public:
  /// Makes what the network has written to the GPU's memory visible there. Throws Error.
  using Flush = std::function<void()>;
  /// Of links on which nothing is under way. flush: for those with slots on the GPU. Throws Error (kInternal)
  /// where words are not at their link's step.
  NetProxy(Transport& transport, const std::vector<NetSendEnd>& send_ends,
           const std::vector<NetRecvEnd>& recv_ends, Flush flush = {});

  /// Kernels wait at ends of this kind alone, from now on.
  void enter(device::steps::LinkKind kind) noexcept { used_ = kind; }
  /// Progresses the transport once and moves what there is to be moved, on all ends. Whether anything did.
  /// Throws Error as links do, when an end has moved nothing and its kernel may be waiting (kPeerFailed,
  /// kGivenUp, kInternal), and where a kernel has written what no correct one does (kInternal).
  bool advance();
  /// In place of advance() once the kernel of a call has ended. A peer that depends on this rank still, or
  /// nothing: then peers have taken all that the kernel has filled, they know what it has consumed, and UCX
  /// holds nothing of that back. What has come for a later call may lie there. Throws Error.
  std::optional<int> not_quiet();
  /// Slots moved so far, in any way: grows while there is progress.
  std::uint64_t moves() const noexcept { return moves_; }

  /// Tells all other ends that nothing further will come. That leaves while has_flushed_or_failed() is asked.
  void abandon() noexcept;
  bool has_flushed_or_failed() noexcept;
  /// Tells all other ends that this rank has been waiting for long.
  void say_waiting() noexcept;
  /// Whether the peer has said so on every link between it and this rank, and not moved since; nothing where
  /// there is none. One is not enough: a peer that goes on takes its word back only on the links that it
  /// uses.
  std::optional<bool> waits(int peer) const noexcept;

  /// While the kernel runs: a peer that has not taken all, or that has sent nothing further to a kernel that
  /// may be waiting; rather one that does not wait itself. Nothing where there is none.
  std::optional<int> awaited() const;
  /// For messages: "over tcp/eth0: 9 slots sent, 8 of them taken, 7 received", on all links with this peer;
  /// empty where there is none.
  std::string standing(int peer) const;

 private:
  struct Send : NetSendEnd {
    explicit Send(const NetSendEnd& end);
    bool awaits() const { return told < link->steps(); }

    device::Word told;  ///< what `consumed` is: the proxy does not believe memory that a kernel could change
  };
  struct Receive : NetRecvEnd {
    explicit Receive(const NetRecvEnd& end);
    /// Only if its kernel looks at this end.
    bool may_await() const { return told <= link->steps(); }

    device::Word told;      ///< what `filled` is
    device::Word come = 0;  ///< what it may become, once that is visible
  };

  /// Whether anything has moved.
  bool advance(Send& end);
  bool release(Receive& end);
  bool announce(Receive& end);
  void look_for_arrivals();
  bool awaits(const Send& end) const { return end.awaits(); }
  bool awaits(const Receive& end) const { return end.kernel.kind == used_ && end.may_await(); }
  /// Calls body(end) with each Send and each Receive.
  template <class Body>
  void for_each_end(Body&& body) const;

  Transport& transport_;
  std::vector<Send> sends_;
  std::vector<Receive> receives_;
  Flush flush_;
  device::steps::LinkKind used_ = device::steps::LinkKind::kRing;
  std::uint64_t moves_ = 0;
};

}  // namespace loom::ucx_transport
