// transport.hpp -- this process's place on the network: a UCX worker for each of the devices that it is told
// to use (a rail), endpoints, and the messages between them. It brings bytes to an inbox of a peer; net_fifo
// knows what they mean.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.hpp"

namespace loom::device::cuda {
class Gpu;
}

namespace loom::ucx_transport {

using Bytes = std::vector<std::byte>;

using Slots = std::shared_ptr<std::byte>;
/// `bytes` bytes in pages of their own. Throws Error (kOutOfMemory).
Slots allocate_slots(std::size_t bytes);

/// Not that the connection, or the other end, has gone.
bool is_of_this_process(ucs_status_t status) noexcept;

/// The rails of a Transport with this address(). Throws Error.
std::size_t rails_of(const Bytes& address);

/// Of a Transport: which of its rails a connection takes. kAllRails: those that it was opened with, in turn.
using RailId = int;
inline constexpr RailId kAllRails = -1;

/// A place for data of a message, in memory of the host or of a GPU, which the CPU does not touch.
struct Place {
  Slots slots;
  bool on_gpu = false;
};

/// Names an inbox of one Transport. Never used twice, so what comes too late for a closed one is recognized.
using InboxId = std::uint64_t;

/// What a message says beside its data.
struct Word {
  std::uint64_t step = 0;
  std::uint64_t released = 0;  ///< of the link that leads the other way, where the two know each other
  std::uint64_t note = 0;      ///< of a slot: see device::LinkInCall
};

/// Where messages for one link come in.
class Inbox {
 public:
  virtual ~Inbox() = default;
  // All run under the transport's lock, in the thread that progresses. Messages may come in any order.

  /// Takes a message; `data` is gone after the call.
  virtual void take(Word word, std::span<const std::byte> data) noexcept = 0;
  /// Where UCX is to put the data of a message that it fetches from the sender. No slots: the message is
  /// dropped.
  virtual Place place(Word word, std::size_t bytes) noexcept = 0;
  /// The fetched data are there.
  virtual void arrive(Word word) noexcept = 0;
  /// The data could not be fetched.
  virtual void lose(ucs_status_t status) noexcept = 0;

 protected:
  /// The thread that progresses does so for this inbox.
  bool is_waited_for() const noexcept { return waited_for_; }

 private:
  friend class Transport;
  bool waited_for_ = false;  ///< under the transport's lock
};

/// What one link sends from. Shared with its messages under way, which may outlive the link.
struct Outbox {
  Slots slots;                          ///< may be null
  bool on_gpu = false;                  ///< the slots
  bool is_fetched = false;              ///< all data, whatever the rendezvous: it, or its place, is a GPU's
  bool is_sent_along = false;           ///< all data, whatever the rendezvous, where they are not fetched
  std::atomic<std::size_t> pending{0};  ///< messages that UCX has not completed
  std::atomic<ucs_status_t> error{UCS_OK};  ///< of one that could not be sent
};

/// A connection to one peer process. Shared by all communicators in which that peer is a neighbour.
class Endpoint {
 public:
  /// Not UCS_OK once UCX has reported the connection broken.
  /// Acquire: then what has come before is seen, too.
  ucs_status_t status() const noexcept { return error_.load(std::memory_order_acquire); }
  /// The transport and device that UCX has chosen for most of the data, of each rail: "tcp/eth0",
  /// "tcp/eth0,tcp/eth1"; "UCX" where it does not say.
  const std::string& way() const noexcept { return way_; }
  /// How many pairs of workers it joins, the first to the first and so on: as many as the end with fewer has.
  /// That many slots in a row use all of them.
  std::size_t rails() const noexcept { return eps_.size(); }

 private:
  friend class Transport;
  struct Pair {
    ucp_worker_h worker = nullptr;
    ucp_ep_h ep = nullptr;
  };
  bool sends_eagerly_ = true;
  mutable bool has_sent_ = false;  ///< under the transport's lock
  std::string way_ = "UCX";
  std::vector<Pair> eps_;
  std::atomic<ucs_status_t> error_{UCS_OK};
};

/// The receiver's UCX may fetch longer messages straight to their place (rendezvous); others are sent
/// eagerly, and so is all that Outbox::is_sent_along says. A fetched message completes when the receiver has
/// answered; senders of short messages do not wait for that. Of and to memory of GPUs all are fetched
/// (Outbox::is_fetched).
inline constexpr std::size_t kMostSentAlong = 16 * 1024;
enum class Rendezvous {
  kWhereDirect,  ///< where the network can fetch by itself, from the size on that UCX thinks best
                 ///< (UCX_RNDV_THRESH)
  kNever,
  kAlways  ///< also where UCX has to emulate it
};

struct TransportOptions {
  /// As in UCX_NET_DEVICES; empty: as the environment says. Each device of a list is a rail; slots use the
  /// rails in turn.
  std::string net_devices = {};
  bool can_sleep = false;  ///< wait() ends when something comes, where UCX can do that
  Rendezvous rendezvous = Rendezvous::kWhereDirect;
};

/// Every function may be called from any thread.
///
/// UCX's own way to use several devices, lanes of one endpoint, joins them in any order, and over TCP both
/// may end up on one network (UCX 1.13).
///
/// Messages are UCX active messages: each carries its own step, so nothing has to be ordered behind it. Over
/// sockets they are normally sent eagerly and need nothing of the sender after they have left. Elsewhere the
/// receiver's UCX may fetch the data of a long message from the sender's memory, without a copy; the message
/// completes when they have been fetched. (Remote writes need a counter that follows the data. UCX from 1.16
/// on orders the two by waiting for the peer, and a remote write that meets a closed worker ends the process
/// in UCX 1.13.)
class Transport {
 public:
  /// Opens UCX as the environment (UCX_*) and `options` say. Throws Error (kUnreachable).
  explicit Transport(const TransportOptions& options = {});
  /// What has been sent gets a fifth of a second to leave; then breaks all connections, without waiting for
  /// peers. No inbox may be open.
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  const Bytes& address() const noexcept { return address_; }
  /// A rail over this device alone: one that there is, or a new one, which kAllRails does not take. It stays
  /// open, and is progressed with the others. Throws Error (kUnreachable).
  RailId rail_over(const std::string& device);
  /// Of this rail alone.
  const Bytes& address_of(RailId rail) const;
  /// Whether UCX takes memory of GPUs there, by whatever way: not without its module for CUDA, nor where
  /// UCX_TLS leaves that out.
  bool takes_gpu_memory(RailId rail) const;
  /// UCX works on memory of GPUs in whatever context of CUDA is current in the thread that calls it; threads
  /// of loom and of MPI may have none. From now on it is this GPU's, as long as that is there.
  void work_in_context_of(std::weak_ptr<device::cuda::Gpu> gpu);
  /// The endpoint to the process with this address, made at the first call for it and the rail, and anew
  /// where UCX has reported it broken. Throws Error (kUnreachable), with `peer`'s name, where UCX finds no
  /// transport that reaches it.
  std::shared_ptr<Endpoint> connect(const Bytes& address, const std::string& peer, RailId rail = kAllRails);

  /// `inbox` takes what is sent to the id, a random number, from now on, until it is closed.
  InboxId open(Inbox& inbox);
  void close(InboxId id) noexcept;

  /// Starts sending. `data` lies in the outbox's slots, or `bytes` is 0; it must stay as it is until the
  /// receiver has answered. Not UCS_OK when the connection is broken; an error that comes later is in the
  /// outbox, but of a message for a live peer only what is this process's own trouble: nobody needs it once
  /// the connection has broken.
  ucs_status_t send(const Endpoint& to, InboxId inbox, Word word, const std::byte* data, std::size_t bytes,
                    const std::shared_ptr<Outbox>& outbox, bool is_for_a_live_peer = false);

  /// Advances all communication, for one inbox or for none in particular. Returns the number of events; 0
  /// also when another thread is doing so.
  unsigned progress(Inbox* waiting = nullptr);

  /// Sleeps until something comes, at most this long (below a second); always this long where UCX cannot
  /// wake.
  void wait(std::chrono::microseconds most) noexcept;

  std::uint64_t bytes_sent() const noexcept { return bytes_sent_.load(std::memory_order_relaxed); }

 private:
  struct Rail;
  static ucs_status_t on_message(void* rail, const void* header, std::size_t header_bytes, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* param);
  ucs_status_t fetch(Rail& rail, void* descriptor, std::size_t bytes, InboxId id, Word word)
      LOOM_REQUIRES(mutex_);
  void end_fetch(InboxId id, Word word, ucs_status_t status) noexcept LOOM_REQUIRES(mutex_);
  void flush() noexcept LOOM_REQUIRES(mutex_);
  void close(Endpoint& endpoint) noexcept;
  void forget_broken_endpoints() LOOM_REQUIRES(mutex_);

  std::span<const std::unique_ptr<Rail>> rails(RailId rail) const LOOM_REQUIRES(mutex_);
  class InContext;

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Rail>> rails_ LOOM_GUARDED_BY(mutex_);
  std::size_t opened_with_ = 0;  ///< rails, the first ones
  Bytes address_;                ///< of these
  std::map<std::pair<RailId, std::string>, std::shared_ptr<Endpoint>> endpoints_
      LOOM_GUARDED_BY(mutex_);                                             ///< by worker address
  std::vector<std::shared_ptr<Endpoint>> broken_ LOOM_GUARDED_BY(mutex_);  ///< which links still use
  std::unordered_map<InboxId, Inbox*> inboxes_ LOOM_GUARDED_BY(mutex_);
  std::weak_ptr<device::cuda::Gpu> gpu_ LOOM_GUARDED_BY(mutex_);
  const bool can_sleep_;
  const Rendezvous rendezvous_;
  std::atomic<std::uint64_t> bytes_sent_{0};
};

}  // namespace loom::ucx_transport
