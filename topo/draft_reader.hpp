// draft_reader.hpp -- inside topo: what the readers of both dialects have in common. The document, the draft
// that grows from it, and the limits that every node and row of it is held to.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "topo/draft.hpp"
#include "topo/limits.hpp"
#include "topo/xml.hpp"

namespace loom::topo {

class DraftReader {
 public:
  /// Throws Error (kBadInput).
  DraftReader(std::string text, const std::string& name) : xml_(std::move(text), name) {}

 protected:
  /// The index of the host with this hash; a new one for a new hash.
  int host_of(std::uint64_t hash);
  /// Adds a node. Fails at `element` where a limit is passed, or its host has this NUMA id already.
  NodeId add(pugi::xml_node element, Node&& node);
  /// Adds a row of NVLinks to a GPU. Fails where it has too many.
  void add_row(pugi::xml_node element, GpuInfo& gpu, const NvLinks& row) const;
  void add_row(pugi::xml_node element, GpuInfo& gpu, const C2cLinks& row) const;

  /// With loom's rules, of all nodes: a switch of another class that leads to no GPU or NIC, since what stood
  /// there was passed over, gets the class of a bridge. Else it would be none when it is read again.
  void name_bridges();
  /// number_gpus, with a note.
  void number();

  void note(pugi::xml_node element, const std::string& message);
  /// Only the first of all notes with this key.
  void note_once(const std::string& key, pugi::xml_node element, const std::string& message);

  XmlDocument xml_;
  Draft draft_;

 private:
  std::map<std::uint64_t, int> hosts_;   // by hash
  std::vector<std::set<int>> numa_ids_;  // per host
  std::size_t numa_nodes_ = 0;
  std::set<std::string> noted_;
};

/// The PCI address in an attribute; fails where it is none.
BusId bus_id(const XmlDocument& xml, pugi::xml_node element, const char* attribute);

}  // namespace loom::topo
