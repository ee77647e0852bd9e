// search_cases.hpp -- machines for tests of the search: our own files, made-up ones, and those beside the
// repository.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "search/hop_table.hpp"
#include "search/path_tables.hpp"
#include "search/validate.hpp"
#include "topo/nccl_xml.hpp"

namespace loom::search {

inline topo::System machine(const std::string& name) {
  return topo::read_nccl_xml(std::string(LOOM_TEST_DATA "/") + name, topo::Model::kNccl).system;
}

/// Our own files of machines and those beside the repository.
inline std::vector<std::filesystem::path> machine_files() {
  std::vector<std::filesystem::path> files;
  std::error_code absent;
  for (const char* folder : {LOOM_TEST_DATA, LOOM_SHARED_TOPOLOGIES})
    for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
      if (entry.path().extension() != ".xml") continue;
      try {
        topo::read_nccl_xml(entry.path().string(), topo::Model::kNccl);
        files.push_back(entry.path());
      } catch (const Error&) {  // lstopo's, or a dialect of loom's model
      }
    }
  std::sort(files.begin(), files.end());
  return files;
}

inline constexpr Pattern kAllPatterns[] = {Pattern::kRing,         Pattern::kTree, Pattern::kSplitTree,
                                           Pattern::kBalancedTree, Pattern::kNvls, Pattern::kCollnetChain,
                                           Pattern::kCollnetDirect};

/// Without the network as a way around inside a host, as plans of a whole machine are made.
inline topo::PathRules whole_rules() {
  topo::PathRules rules;
  rules.network_inside_host = false;
  return rules;
}

/// All parts of `plans` at the same time; fails the test with what is wrong.
inline void expect_valid(const PathTables& tables, const NodePlans& plans) {
  ASSERT_EQ(plans.parts.size(), plans.ranks.size());
  for (const std::string& violation : violations(tables, plans)) ADD_FAILURE() << violation;
}
inline void expect_valid(const topo::System& system, const NodePlans& plans) {
  expect_valid(PathTables(system), plans);
}

/// A machine that nobody would build: one or two hosts' worth of switches, some NVLinks, some NICs, whose
/// ports may share rails, planes and cables, and need not reduce. `draw` gives a number for each choice.
inline topo::System machine_from(const std::function<unsigned()>& draw, bool intel, int most_gpus = 9) {
  const auto one_of = [&](int count) { return static_cast<int>(draw() % static_cast<unsigned>(count)); };
  const int cpus = 1 + one_of(2), gpus = 2 + one_of(most_gpus - 1);
  const int sm[] = {70, 80, 86, 90, 100};
  const int capability = sm[one_of(5)];
  const bool nvswitch = one_of(3) == 0, power = one_of(6) == 0;
  std::vector<topo::Node> nodes;
  std::vector<topo::NodeId> switches;
  const auto add = [&](topo::NodeInfo info, topo::NodeId parent) {
    nodes.push_back({std::move(info), parent, 0, topo::PciFunction{}});
    return static_cast<topo::NodeId>(nodes.size()) - 1;
  };
  for (int cpu = 0; cpu < cpus; ++cpu) {
    topo::CpuInfo info;
    info.numa_id = cpu;
    info.arch = power ? "ppc64" : "x86_64";
    if (!power) info.vendor = intel ? "GenuineIntel" : "AuthenticAMD";
    info.family = 6;
    info.model = 0x8f;
    nodes.push_back({info, topo::kNoNode, 0, {}});
    const auto root = static_cast<topo::NodeId>(nodes.size()) - 1;
    for (int i = 0, count = 1 + one_of(2); i < count; ++i)
      switches.push_back(add(topo::PciSwitchInfo{}, root));
  }
  std::vector<topo::NodeId> gpu_nodes;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    topo::GpuInfo info;
    info.device = info.rank = gpu;
    info.compute_capability = capability;
    info.gpu_direct = true;
    gpu_nodes.push_back(add(info, switches[static_cast<std::size_t>(gpu) % switches.size()]));
  }
  for (int net = 0, count = one_of(5); net < count; ++net) {
    const topo::NodeId nic = add(topo::NicInfo{}, switches[static_cast<std::size_t>(net) % switches.size()]);
    topo::NetInfo info;
    info.device = net;
    info.speed_mbps = 100000 * (1 + one_of(4));
    info.gpu_direct = true;
    info.collectives = one_of(4) != 0;
    if (one_of(4) == 0) info.rail = one_of(2);
    if (one_of(6) == 0) info.plane = one_of(2);
    if (one_of(4) == 0) info.guid = static_cast<std::uint64_t>(5 + one_of(2));
    info.max_connections = 64;
    add(info, nic);
  }
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].pci) {
      topo::PciFunction& pci = *nodes[i].pci;
      pci.bus_id = *topo::BusId::parse("0000:" + std::string(i < 16 ? "0" : "") + [&] {
        constexpr char kDigits[] = "0123456789abcdef";
        return i < 16 ? std::string(1, kDigits[i]) : std::string{kDigits[i / 16], kDigits[i % 16]};
      }() + ":00.0");
      pci.link_speed = one_of(2) == 0 ? "16.0 GT/s PCIe" : "32.0 GT/s PCIe";
      pci.link_width = 16;
    }
  const int wide = one_of(8) == 7 ? 40 : 1;  // more links than a GPU's memory carries
  for (std::size_t i = 0; i < gpu_nodes.size(); ++i) {
    auto& info = std::get<topo::GpuInfo>(nodes[static_cast<std::size_t>(gpu_nodes[i])].info);
    if (nvswitch) info.nvlinks.push_back({{}, wide * (4 + one_of(9)), 0x068000, false});
    if (power) info.nvlinks.push_back({{}, 1 + one_of(3), 0x068001, true});
    for (std::size_t j = 0; j < i && !nvswitch; ++j) {
      if (one_of(3) != 0) continue;
      auto& peer = std::get<topo::GpuInfo>(nodes[static_cast<std::size_t>(gpu_nodes[j])].info);
      const int count = wide * (1 + one_of(3));
      info.nvlinks.push_back(
          {nodes[static_cast<std::size_t>(gpu_nodes[j])].pci->bus_id, count, 0x030200, true});
      peer.nvlinks.push_back(
          {nodes[static_cast<std::size_t>(gpu_nodes[i])].pci->bus_id, count, 0x030200, true});
    }
  }
  return topo::build_system(std::move(nodes), {0}, topo::Model::kNccl).system;
}

/// A machine whose sockets talk to each other more slowly than to the network, so that it is planned in
/// parts; with ports that share links, cables and rails.
inline topo::System machine_in_parts_from(const std::function<unsigned()>& draw) {
  const auto one_of = [&](int count) { return static_cast<int>(draw() % static_cast<unsigned>(count)); };
  constexpr int kModels[] = {63, 85, 143};  // Intel's: 6, 10 and 22 GB/s between sockets
  const int model = kModels[one_of(3)], sm = one_of(2) == 0 ? 70 : 80, sockets = 2 + one_of(2);
  int buses = 0, gpus = 0, nets = 0;
  const auto pci = [&](const char* kind, int width) {
    ++buses;
    return loom::format(
        "<pci busid='0000:{:02x}:00.0' class='{}' link_speed='16.0 GT/s PCIe' link_width='{}'>", buses, kind,
        width);
  };
  const auto width = [&] { return one_of(2) == 0 ? 8 : 16; };
  std::string text = "<system version='1'>";
  for (int socket = 0; socket < sockets; ++socket) {
    text += loom::format(
        "<cpu numaid='{}' affinity='{}' arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='{}'>",
        socket, socket + 1, model);
    for (int i = 0, switches = 1 + one_of(2); i < switches; ++i) {
      text += pci("0x060400", width());
      for (int gpu = 0, count = 1 + one_of(2); gpu < count; ++gpu, ++gpus)
        text += pci("0x030200", 16) +
                loom::format("<gpu dev='{0}' sm='{1}' rank='{0}' gdr='1'/></pci>", gpus, sm);
      for (int net = 0, count = one_of(3); net < count; ++net, ++nets) {
        const std::string rail = one_of(3) == 0 ? loom::format(" rail='{}'", one_of(2)) : "";
        const std::string guid = one_of(3) == 0 ? loom::format(" guid='0x{}'", 5 + one_of(2)) : "";
        text += pci("0x020000", width());
        text += loom::format(
            "<nic><net name='n{0}' dev='{0}' speed='{1}'{2}{3} port='1' gdr='1' coll='1'/></nic></pci>", nets,
            100000 << one_of(3), rail, guid);
      }
      text += "</pci>";
    }
    text += "</cpu>";
  }
  return topo::parse_nccl_xml(text + "</system>", "parts.xml", topo::Model::kNccl).system;
}

inline topo::System random_machine_in_parts(unsigned seed) {
  std::mt19937 random(seed);
  return machine_in_parts_from([&] { return static_cast<unsigned>(random()); });
}

inline topo::System random_machine(unsigned seed, int most_gpus = 9) {
  std::mt19937 random(seed);
  return machine_from([&] { return static_cast<unsigned>(random()); }, seed % 2 == 0, most_gpus);
}

/// Seeds of random machines: the first ones, or those that LOOM_SEARCH_SEEDS in the environment says:
/// "100-5000".
inline auto seeds(unsigned count) {
  unsigned first = 1, last = count;
  if (const char* asked = std::getenv("LOOM_SEARCH_SEEDS")) std::sscanf(asked, "%u-%u", &first, &last);
  return ::testing::Range(first, last + 1);
}

/// What one ring through the GPUs in the machine's order carries.
inline double simple_order_gbps(const topo::Paths& paths) {
  const HopTable table(paths, false, false, false);
  std::vector<double> factor(table.resources().size(), 0);
  for (int gpu = 0; gpu < table.gpus(); ++gpu) {
    const Hop& hop = table.hop(gpu, (gpu + 1) % table.gpus());
    if (hop.type >= topo::PathType::kNet) return 0;
    for (const Load& load : table.loads(hop)) factor[load.resource] += load.factor;
  }
  double gbps = 1e9;
  for (std::size_t i = 0; i < factor.size(); ++i)
    if (factor[i] > 0) gbps = std::min(gbps, table.resources()[i].gbps / factor[i]);
  return gbps;
}

/// What each way takes of what, by names that do not depend on the order of GPUs.
inline std::map<std::string, double> charges_by_name(const topo::System& system) {
  const topo::Paths paths(system, whole_rules());
  const HopTable table(paths, true, false, true);
  std::map<std::string, double> all;
  for (int from = 0; from < table.ends(); ++from)
    for (int to = 0; to < table.ends(); ++to) {
      const Hop& hop = table.hop(from, to);
      const std::string ends = loom::format("{} > {} ({})", topo::label(system, table.node(from)),
                                            topo::label(system, table.node(to)), topo::name_of(hop.type));
      for (const Load& load : table.loads(hop)) {
        const Resource& taken = table.resources()[static_cast<std::size_t>(load.resource)];
        const std::string what =
            taken.number == Resource::kNone ? "its own or a cable" : Resources(system).label(taken.number);
        all[loom::format("{}: {}", ends, what)] += load.factor;
      }
    }
  return all;
}

/// The same machine with its GPUs, none of which shares a function with another one, listed in another order
/// and ranks dealt anew.
inline topo::System renumbered(const topo::System& system, unsigned seed) {
  const std::vector<topo::Node> nodes = topo::source_nodes(system);
  std::vector<std::size_t> order, gpus;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    (nodes[i].kind() == topo::NodeKind::kGpu ? gpus : order).push_back(i);
  std::mt19937 random(seed);
  for (std::size_t i = gpus.size(); i > 1; --i) std::swap(gpus[i - 1], gpus[random() % i]);
  order.insert(order.end(), gpus.begin(), gpus.end());  // parents stay before their children
  std::vector<topo::NodeId> place(nodes.size());
  std::vector<topo::Node> listed;
  for (int rank = 0; const std::size_t i : order) {
    place[i] = static_cast<topo::NodeId>(listed.size());
    topo::Node node = nodes[i];
    if (node.parent != topo::kNoNode) node.parent = place[static_cast<std::size_t>(node.parent)];
    if (auto* gpu = std::get_if<topo::GpuInfo>(&node.info)) gpu->rank = rank++;
    listed.push_back(std::move(node));
  }
  return topo::build_system(std::move(listed), {0}, topo::Model::kNccl).system;
}

}  // namespace loom::search
