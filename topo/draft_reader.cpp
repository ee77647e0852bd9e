#include "topo/draft_reader.hpp"

#include "base/format.hpp"
#include "topo/pci_ids.hpp"

namespace loom::topo {

int DraftReader::host_of(std::uint64_t hash) {
  const auto [host, is_new] = hosts_.try_emplace(hash, static_cast<int>(draft_.hosts.size()));
  if (is_new) draft_.hosts.push_back(hash), numa_ids_.emplace_back();
  return host->second;
}

NodeId DraftReader::add(pugi::xml_node element, Node&& node) {
  if (draft_.nodes.size() == kMostNodes)
    xml_.fail(element, loom::format("the file has more than {} devices, the limit.", kMostNodes));
  if (node.kind() == NodeKind::kCpu) {
    std::set<int>& ids = numa_ids_[static_cast<std::size_t>(node.host)];
    const int id = node.cpu().numa_id;
    if (!ids.insert(id).second)
      xml_.fail(element, loom::format("this host has another NUMA node {} already.", id));
    if (ids.size() > kMostNumaNodesOfHost)
      xml_.fail(element,
                loom::format("this host has more than {} NUMA nodes, the limit.", kMostNumaNodesOfHost));
    if (++numa_nodes_ > kMostNumaNodes)
      xml_.fail(element, loom::format("the file has more than {} NUMA nodes, the limit.", kMostNumaNodes));
  }
  return draft_.add(std::move(node));
}

void DraftReader::add_row(pugi::xml_node element, GpuInfo& gpu, const NvLinks& row) const {
  if (gpu.nvlinks.size() == kMostLinkRows)
    xml_.fail(element,
              loom::format("this GPU has NVLinks to more than {} targets, the limit.", kMostLinkRows));
  gpu.nvlinks.push_back(row);
}

void DraftReader::add_row(pugi::xml_node element, GpuInfo& gpu, const C2cLinks& row) const {
  if (gpu.c2c.size() == kMostLinkRows)
    xml_.fail(element,
              loom::format("this GPU has more than {} rows of C2C links, the limit.", kMostLinkRows));
  gpu.c2c.push_back(row);
}

void DraftReader::name_bridges() {
  std::vector<bool> leads(draft_.nodes.size());
  for (std::size_t id = draft_.nodes.size(); id-- > 0;) {  // children before their parents
    Node& node = draft_.nodes[id];
    const bool is_switch = node.kind() == NodeKind::kPciSwitch;
    if (is_switch && !leads[id] && !is_bridge(*node.pci)) node.pci->class_code = kClassPciBridge;
    if (node.parent != kNoNode && (leads[id] || !is_switch))
      leads[static_cast<std::size_t>(node.parent)] = true;
  }
}

void DraftReader::number() {
  if (number_gpus(draft_))
    draft_.notes.push_back(loom::format("{}: no GPU has a rank; they are numbered in order.", xml_.name()));
}

void DraftReader::note(pugi::xml_node element, const std::string& message) {
  if (draft_.notes.size() < kMostNotes) draft_.notes.push_back(xml_.at(element, message));
}

void DraftReader::note_once(const std::string& key, pugi::xml_node element, const std::string& message) {
  if (noted_.insert(key).second) note(element, message);
}

BusId bus_id(const XmlDocument& xml, pugi::xml_node element, const char* attribute) {
  const auto id = BusId::parse(xml.text(element, attribute));
  if (!id) xml.fail(element, loom::format("attribute '{}' is no PCI address like 0000:c4:00.0.", attribute));
  return *id;
}

}  // namespace loom::topo
