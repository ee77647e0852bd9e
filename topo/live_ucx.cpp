// live_ucx.cpp -- UCX, which carries loom's data between hosts: which ports it can use, and how. Asked by the
// caller.
#include <algorithm>

#include "base/format.hpp"
#include "topo/live_sources.hpp"

namespace loom::topo {

void add_from_ucx(Draft& draft, const std::vector<UcxPort>& ports) {
  if (ports.empty()) {
    const auto assumed = std::count_if(draft.nodes.begin(), draft.nodes.end(), [](const Node& node) {
      return node.kind() == NodeKind::kNet && node.net().gpu_direct;
    });
    const bool has_gpu = std::any_of(draft.nodes.begin(), draft.nodes.end(),
                                     [](const Node& node) { return node.kind() == NodeKind::kGpu; });
    if (assumed > 0 && has_gpu)
      draft.notes.push_back(
          loom::format("UCX tells of no ports: that the {} with verbs reach GPU memory is assumed (it needs "
                       "nvidia_peermem or dma-buf).",
                       assumed));
    return;
  }
  for (Node& node : draft.nodes) {
    auto* net = std::get_if<NetInfo>(&node.info);
    if (net == nullptr) continue;
    const auto port = std::find_if(ports.begin(), ports.end(), [&](const UcxPort& candidate) {
      return candidate.name == net->name && (candidate.port == net->port || candidate.port == 0);
    });
    if (port == ports.end()) {
      draft.notes.push_back(
          loom::format("UCX has no transport over {}: loom cannot use that port (see UCX_NET_DEVICES, and "
                       "ucx_info -d for what UCX sees).",
                       net->name));
      net->gpu_direct = false;
      continue;
    }
    if (net->speed_mbps <= 0) net->speed_mbps = port->speed_mbps;
    if (net->latency_us <= 0) net->latency_us = port->latency_us;
    net->gpu_direct = port->gpu_direct;
  }
}

}  // namespace loom::topo
