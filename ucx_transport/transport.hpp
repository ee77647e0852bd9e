// transport.hpp -- this process's place on the network: one UCX worker, its endpoints and its registered memory.
// Knows how to write into a peer's memory; what is written, and when, is net_fifo's affair.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace loom::ucx_transport {

using Bytes = std::vector<std::byte>;

/// Writes under way from one place. Lives until all of them have completed. Changes under the transport's lock.
struct PutTracker {
  std::size_t outstanding = 0;
  ucs_status_t error = UCS_OK;
};

class Transport;

/// A connection to one peer process. Shared by all communicators in which that peer is a neighbour.
class Endpoint {
 public:
  explicit Endpoint(std::string peer) : peer_(std::move(peer)) {}
  /// Throws Error (kPeerFailed) when UCX has reported the connection broken.
  void check() const;
  bool failed() const noexcept { return error_.load(std::memory_order_relaxed) != UCS_OK; }

 private:
  friend class Transport;
  friend class RemoteRegion;
  std::string peer_;  ///< "rank 3 on host node7", for messages
  ucp_ep_h ep_ = nullptr;
  std::atomic<ucs_status_t> error_{UCS_OK};
};

/// Memory that peers may write to; zeroed, 64-byte aligned.
class Region {
 public:
  Region(Transport& transport, std::size_t bytes);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::byte* data() const noexcept { return data_; }
  /// What a peer needs to write here, to be sent to it.
  Bytes packed_key() const;

 private:
  Transport& transport_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  ucp_mem_h handle_ = nullptr;
};

/// A peer's Region, to be written to through one endpoint.
class RemoteRegion {
 public:
  /// `address` is the peer's Region::data(). Throws Error (kUnreachable).
  RemoteRegion(Transport& transport, std::shared_ptr<Endpoint> endpoint, std::uint64_t address, const Bytes& key);
  ~RemoteRegion();
  RemoteRegion(const RemoteRegion&) = delete;
  RemoteRegion& operator=(const RemoteRegion&) = delete;

  Endpoint& endpoint() const noexcept { return *endpoint_; }

 private:
  friend class Transport;
  Transport& transport_;
  std::shared_ptr<Endpoint> endpoint_;
  std::uint64_t address_;
  ucp_rkey_h key_ = nullptr;
};

/// Something that peers may still write to, or that UCX may still read, after its owner has no more use for it.
class Retiring {
 public:
  virtual ~Retiring() = default;
  /// True once it can be destroyed. Under the transport's lock.
  virtual bool quiet() const = 0;
  /// The transport is going: gives up its way to the peer. Completions may still come in until it is destroyed.
  virtual void disconnect() noexcept = 0;
};

/// Every function may be called from any thread.
class Transport {
 public:
  /// Opens UCX as the environment (UCX_*) says. Throws Error (kUnreachable).
  Transport();
  /// Breaks all connections without waiting for peers. No Region or RemoteRegion may be left but retired ones.
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  const Bytes& address() const noexcept { return address_; }
  /// The endpoint to the process with this address, made at the first call. `peer` names it in messages.
  /// Throws Error (kUnreachable) where UCX finds no transport that reaches it.
  std::shared_ptr<Endpoint> connect(const Bytes& address, const std::string& peer);

  /// Held while several of the functions below are to happen as one. progress() and the listeners run under it too.
  std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(mutex_); }

  /// Starts writing `bytes` bytes to `offset` in the peer's region. Writes are not ordered among each other: see order().
  /// The data must stay as it is until the tracker counts the write as complete. Throws Error (kPeerFailed).
  void put(const RemoteRegion& to, const void* data, std::size_t bytes, std::size_t offset, PutTracker& tracker);
  /// Lets what is written from now on arrive after all that was written so far, for each peer. Throws Error (kInternal).
  void order();

  /// Advances all communication. Returns the number of events; 0 also when another thread is at it.
  unsigned progress();

  /// Keeps something alive until it is quiet.
  void retire(std::unique_ptr<Retiring> retiring);

  std::uint64_t bytes_sent() const noexcept { return bytes_sent_.load(std::memory_order_relaxed); }

 private:
  friend class Region;
  friend class RemoteRegion;

  // Recursive: a Retiring destroyed by progress() takes its Regions along.
  std::recursive_mutex mutex_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  Bytes address_;
  std::map<std::string, std::shared_ptr<Endpoint>> endpoints_;  ///< by worker address
  std::vector<std::unique_ptr<Retiring>> retired_;
  std::atomic<std::uint64_t> bytes_sent_{0};
};

}  // namespace loom::ucx_transport
