// gpu_network.hpp -- carries what kernels of this rank's GPU exchange with ranks of other hosts: the links of
// each end of its channels that leads there, and a proxy for all of them.
//
// The ranks tell each other of their ends (write_handle()), connect, and then try their kernels.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "component/setup/group.hpp"
#include "device/link/carrier.hpp"
#include "device/steps/layout.hpp"
#include "ucx_transport/net_proxy.hpp"

namespace loom {

class GpuNetwork final : public device::Carrier {
 public:
  /// slots, and rails of the transport: by end. flush: see NetProxy. The transport must outlive this. Throws
  /// Error.
  GpuNetwork(ucx_transport::Transport& transport, std::span<const device::steps::FarEnd> ends,
             std::span<const ucx_transport::Slots> slots, std::span<const ucx_transport::RailId> rails,
             ucx_transport::NetProxy::Flush flush, const Group& group);
  ~GpuNetwork() override;
  GpuNetwork(const GpuNetwork&) = delete;
  GpuNetwork& operator=(const GpuNetwork&) = delete;

  /// What the other ends need of these.
  void write_handle(ByteWriter& writer) const;
  /// handle_of(rank): where that rank has written; of the peers of these ends. Throws Error.
  template <class HandleOf>
  void connect(HandleOf&& handle_of) {
    for (const int peer : peers()) connect_to(peer, handle_of(peer));
    start();
  }

  /// What UCX took for these ends: "tcp/eth0". Once connected.
  std::string way() const;

  void enter(device::steps::LinkKind kind) noexcept override { proxy_->enter(kind); }
  void advance() override { proxy_->advance(); }
  std::optional<int> not_quiet() override { return proxy_->not_quiet(); }
  std::uint64_t moves() const noexcept override { return proxy_->moves(); }
  void abandon() noexcept override;
  void say_waiting() noexcept override { proxy_->say_waiting(); }
  std::optional<bool> waits(int rank) const noexcept override { return proxy_->waits(rank); }
  std::optional<int> awaited() const override { return proxy_->awaited(); }
  std::string standing(int rank) const override { return proxy_->standing(rank); }

 private:
  struct End {
    device::steps::FarEnd far;
    ucx_transport::RailId rail = ucx_transport::kAllRails;
    std::unique_ptr<ucx_transport::NetSendLink> send;  ///< of the two the one that it is
    std::unique_ptr<ucx_transport::NetRecvLink> receive;

    ucx_transport::NetEnd& net() const;
  };
  std::vector<int> peers() const;
  void connect_to(int peer, ByteReader handle);
  void start();

  ucx_transport::Transport& transport_;
  std::vector<End> ends_;  ///< by number of the link
  ucx_transport::NetProxy::Flush flush_;
  std::optional<ucx_transport::NetProxy> proxy_;
};

}  // namespace loom
