// link_maker.hpp -- the second part of a communicator's set-up: makes its links, at the first call that needs
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "component/links/links.hpp"
#include "component/setup/agreement.hpp"
#include "component/setup/member.hpp"
#include "device/link/waiter.hpp"

namespace loom {

/// What it makes is made on every rank or on none: then after one message.
class LinkMaker {
 public:
  /// All must outlive this.
  LinkMaker(Member& member, Links& links, const device::WaitPolicy& wait_policy)
      : member_(member), links_(links), wait_policy_(wait_policy) {}

  /// Collective. Sets links.state. Where links over the ports nearest to processes fail, those that UCX finds
  /// are tried. Throws BootstrapFailed and ExchangeGivenUp.
  void make();
  /// Collective: those between every two ranks of different hosts, for all-to-alls. Most programs never need
  /// them. Sets links.pairwise_state. Throws as make().
  void make_pairwise();

  /// While the network is tried, in place of letting the MPI library progress: for a caller that may not
  /// wait. Empty: it may.
  std::function<void()> pause;

  /// Where the links lie, and how long the set-up took; for people.
  std::string description() const;

 private:
  bool make_over_ports(const std::function<bool(Failure* failure)>& make);
  bool take_over(Agreement& agreement);
  void make_first(Agreement& agreement);
  std::vector<std::byte> make_first_ends();
  Peers first_peers() const;
  void join_first_ends(const GatheredBytes& handles);
  std::vector<std::int64_t> readable_peers(const GatheredBytes& handles) const;
  void try_network(std::span<const LinkSet> sets, std::optional<int> to);
  void make_every_pair(Agreement& agreement);
  std::vector<std::byte> make_pairwise_ends();

  Member& member_;
  Links& links_;
  const device::WaitPolicy& wait_policy_;
};

}  // namespace loom
