// beside_nccl.hpp -- how plans are counted beside NCCL's.
#pragma once

#include "search/channel_plan.hpp"

namespace loom::search {

/// What a plan carries as NCCL counts: there a head has one channel. Ours may have one for each of its ports,
/// of which the fastest counts.
double by_one_channel_a_head(const ChannelPlan& plan);

/// One of NCCL's totals. Its search may raise the ports of multicast heads by a step too much: no more than
/// twice what the heads multicast counts. `network`: its channels have ports.
double nccl_total(Pattern pattern, bool network, double total_gbps, double intra_gbps, int channels);

/// Some channel has GPUs beside each other that NCCL joins by the network, unless NCCL_NET_DISABLE_INTRA=1.
/// `default_paths`: of the machine, with the network inside the host.
bool crosses_slow_pairs(const topo::Paths& default_paths, const ChannelPlan& plan);

}  // namespace loom::search
