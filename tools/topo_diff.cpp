// topo_diff.cpp -- how one machine differs from another. Unequal Systems always differ in something that is
// said.
#include <fmt/format.h>

#include <map>

#include "tools/topo_views.hpp"

namespace loom::tools {
namespace {

using nlohmann::json;
using namespace loom::topo;

/// Nodes by what they are called, which both Systems agree on: numbers of nodes do not tell.
class Names {
 public:
  Names(const System& system, bool several_hosts) : names_(static_cast<std::size_t>(system.size())) {
    std::map<std::string, int> copies;
    for (NodeId id = 0; id < system.size(); ++id) {
      std::string name = label_on_host(system, id);
      if (several_hosts && system.node(id).kind() != NodeKind::kNvSwitch)
        name += fmt::format(" (host {})", system.node(id).host);
      if (const int copy = ++copies[name]; copy > 1) name += fmt::format(" #{}", copy);
      ids_[name] = id;
      names_[static_cast<std::size_t>(id)] = std::move(name);
    }
  }
  /// kNoNode has one, too.
  std::string of(NodeId id) const { return id == kNoNode ? "nothing" : names_[static_cast<std::size_t>(id)]; }
  NodeId find(const std::string& name) const {
    const auto entry = ids_.find(name);
    return entry == ids_.end() ? kNoNode : entry->second;
  }
  const std::map<std::string, NodeId>& all() const { return ids_; }

 private:
  std::vector<std::string> names_;
  std::map<std::string, NodeId> ids_;
};

class Differences {
 public:
  Differences(const System& a, const System& b)
      : a_(a),
        b_(b),
        several_(a.hosts().size() > 1 || b.hosts().size() > 1),
        names_a_(a, several_),
        names_b_(b, several_) {}

  std::vector<std::string> find() {
    compare_hosts();
    for (const auto& [name, id] : names_a_.all()) {
      if (const NodeId other = names_b_.find(name); other == kNoNode)
        lines_.push_back(fmt::format("- {}", name));
      else
        compare(name, id, other);
    }
    for (const auto& [name, id] : names_b_.all())
      if (names_a_.find(name) == kNoNode) lines_.push_back(fmt::format("+ {}", name));
    if (lines_.empty() && !(a_ == b_))
      lines_.push_back("~ the same nodes and links, in another order: searches may choose other channels");
    return std::move(lines_);
  }

 private:
  void compare_hosts() {
    if (a_.model() != b_.model()) changed("model", "", name_of(a_.model()), name_of(b_.model()));
    for (std::size_t i = 0; i < std::min(a_.hosts().size(), b_.hosts().size()); ++i)
      if (a_.hosts()[i] != b_.hosts()[i])
        changed(several_ ? fmt::format("host {}", i) : "host", "host_hash",
                fmt::format("0x{:x}", a_.hosts()[i]), fmt::format("0x{:x}", b_.hosts()[i]));
  }

  void compare(const std::string& name, NodeId before, NodeId after) {
    const std::size_t said = lines_.size();
    compare_links(name, before, after);
    const bool links_differ = lines_.size() > said;
    json old = to_json(a_, before), now = to_json(b_, after);
    // Numbers and labels are not the node's own; the parent and the host are compared by name.
    for (const char* key : {"id", "parent", "label", "host"}) old.erase(key), now.erase(key);
    // What the rows say is clearer from the links that they make.
    if (links_differ)
      for (const char* key : {"nvlinks", "c2c"}) old.erase(key), now.erase(key);
    const auto text = [](const json& of, const std::string& key) {
      return of.contains(key) ? of[key].dump() : std::string("absent");
    };
    json keys = old;
    keys.update(now);
    for (const auto& [key, value] : keys.items())
      if (!old.contains(key) || !now.contains(key) || old[key] != now[key])
        changed(name, key, text(old, key), text(now, key));
    const std::string above = names_a_.of(a_.node(before).parent),
                      above_now = names_b_.of(b_.node(after).parent);
    if (above != above_now)
      lines_.push_back(fmt::format("~ {}: hangs below {}, was below {}", name, above_now, above));
  }

  void compare_links(const std::string& name, NodeId before, NodeId after) {
    const auto links = [](const System& system, const Names& names, NodeId id) {
      std::map<std::string, float> gbps;
      for (const Link& link : system.links_of(id))
        gbps[fmt::format("{} to {}", name_of(link.type), names.of(link.to))] = link.gbps;
      return gbps;
    };
    const auto old = links(a_, names_a_, before), now = links(b_, names_b_, after);
    for (const auto& [to, gbps] : old) {
      const auto same = now.find(to);
      if (same == now.end())
        lines_.push_back(fmt::format("~ {}: no {}, was {:g} GB/s", name, to, gbps));
      else if (same->second != gbps)
        lines_.push_back(fmt::format("~ {}: {} has {:g} GB/s, was {:g}", name, to, same->second, gbps));
    }
    for (const auto& [to, gbps] : now)
      if (!old.contains(to)) lines_.push_back(fmt::format("~ {}: {} of {:g} GB/s is new", name, to, gbps));
  }

  void changed(std::string_view name, std::string_view key, std::string_view old, std::string_view now) {
    lines_.push_back(fmt::format("~ {}{}{} is {}, was {}", name, key.empty() ? "" : ": ", key, now, old));
  }

  const System &a_, &b_;
  const bool several_;
  const Names names_a_, names_b_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> differences(const System& a, const System& b) {
  return Differences(a, b).find();
}

}  // namespace loom::tools
