// Unequal Systems always give at least one difference, unless something is ignored.
#include "tools/topo_diff.hpp"

#include <algorithm>
#include <map>

#include "base/format.hpp"
#include "tools/topo_views.hpp"

namespace loom::tools {
namespace {

using nlohmann::json;
using namespace loom::topo;

/// Nodes by name, on which both Systems agree; node numbers differ.
class Names {
 public:
  Names(const System& system, bool several_hosts, Ignore ignore, CompareGpus gpus)
      : names_(static_cast<std::size_t>(system.size())) {
    std::map<std::string, int> copies;
    for (NodeId id = 0; id < system.size(); ++id) {
      const NodeKind kind = system.node(id).kind();
      const bool by_bus_id = kind == NodeKind::kPciSwitch || kind == NodeKind::kNic;
      std::string name =
          by_bus_id && ignore == Ignore::kIds ? std::string(name_of(kind)) : label_on_host(system, id);
      if (several_hosts && system.node(id).kind() != NodeKind::kNvSwitch)
        name += loom::format(" (host {})", system.node(id).host);
      if (const int copy = ++copies[name]; copy > 1) name += loom::format(" #{}", copy);
      if (gpus == CompareGpus::kAll || kind != NodeKind::kGpu || system.node(id).gpu().rank != kNoRank)
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
  bool leaves_out(NodeId id) const { return !ids_.contains(of(id)); }
  bool leaves_out_any() const { return ids_.size() < names_.size(); }
  /// Those that are compared.
  const std::map<std::string, NodeId>& all() const { return ids_; }

 private:
  std::vector<std::string> names_;
  std::map<std::string, NodeId> ids_;
};

class Differences {
 public:
  Differences(const System& a, const System& b, Ignore ignore, CompareGpus gpus)
      : a_(a),
        b_(b),
        ignore_(ignore),
        several_(a.hosts().size() > 1 || b.hosts().size() > 1),
        names_a_(a, several_, ignore, gpus),
        names_b_(b, several_, ignore, gpus) {}

  std::vector<Difference> find() {
    compare_hosts();
    for (const auto& [name, id] : names_a_.all()) {
      if (const NodeId other = names_b_.find(name); other == kNoNode)
        found_.push_back({'-', name, "", {}, {}, "- " + name});
      else
        compare(name, id, other);
    }
    for (const auto& [name, id] : names_b_.all())
      if (names_a_.find(name) == kNoNode) found_.push_back({'+', name, "", {}, {}, "+ " + name});
    if (found_.empty() && ignore_ == Ignore::kNothing && !leaves_out_any_ && !(a_ == b_))
      found_.push_back({'~',
                        "",
                        "order",
                        {},
                        {},
                        "~ the same nodes and links, in another order: searches may choose other channels"});
    return std::move(found_);
  }

 private:
  void add(const std::string& name, const std::string& attribute, json before, json after, std::string text) {
    found_.push_back({'~', name, attribute, std::move(before), std::move(after),
                      loom::format("~ {}{}{}", name, name.empty() ? "" : ": ", text)});
  }

  void changed(const std::string& name, const std::string& attribute, const json& before, const json& after) {
    const auto text = [](const json& value) {
      return value.is_null() ? std::string("absent") : value.dump();
    };
    add(name, attribute, before, after,
        loom::format("{} is {}, was {}", attribute, text(after), text(before)));
  }

  void compare_hosts() {
    if (a_.model() != b_.model()) changed("", "model", name_of(a_.model()), name_of(b_.model()));
    if (ignore_ == Ignore::kIds) return;
    for (std::size_t i = 0; i < std::min(a_.hosts().size(), b_.hosts().size()); ++i)
      if (a_.hosts()[i] != b_.hosts()[i])
        changed(several_ ? loom::format("host {}", i) : "host", "host_hash",
                loom::format("0x{:x}", a_.hosts()[i]), loom::format("0x{:x}", b_.hosts()[i]));
  }

  void compare(const std::string& name, NodeId before, NodeId after) {
    const std::size_t found = found_.size();
    compare_links(name, before, after);
    const bool links_differ = found_.size() > found;
    json old = to_json(a_, before), now = to_json(b_, after);
    const auto without = [&](std::initializer_list<const char*> keys) {
      for (const char* key : keys) old.erase(key), now.erase(key);
    };
    // Numbers and labels are not the node's own; the parent and the host are compared by name.
    without({"id", "parent", "label", "host"});
    // The links that these rows make are clearer than the rows.
    if (links_differ) without({"nvlinks", "c2c"});
    if (leaves_out_any_) without({"nvlinks"});  // some may lead there
    if (ignore_ == Ignore::kIds) without({"bus_id", "bus_ids", "guid", "nvlinks", "peers"});
    json keys = old;
    keys.update(now);
    for (const auto& [key, value] : keys.items())
      if (const json was = old.value(key, json()), is = now.value(key, json()); was != is)
        changed(name, key, was, is);
    const std::string above = names_a_.of(a_.node(before).parent),
                      above_now = names_b_.of(b_.node(after).parent);
    if (above != above_now)
      add(name, "parent", above, above_now, loom::format("hangs below {}, was below {}", above_now, above));
  }

  void compare_links(const std::string& name, NodeId before, NodeId after) {
    const auto links = [](const System& system, const Names& names, NodeId id) {
      std::map<std::string, float> gbps;
      for (const Link& link : system.links_of(id))
        if (!names.leaves_out(link.to))
          gbps[loom::format("{} to {}", name_of(link.type), names.of(link.to))] = link.gbps;
      return gbps;
    };
    const auto old = links(a_, names_a_, before), now = links(b_, names_b_, after);
    for (const auto& [to, gbps] : old) {
      const auto same = now.find(to);
      if (same == now.end())
        add(name, to, rounded(gbps), {}, loom::format("no {}, was {:g} GB/s", to, gbps));
      else if (same->second != gbps)
        add(name, to, rounded(gbps), rounded(same->second),
            loom::format("{} has {:g} GB/s, was {:g}", to, same->second, gbps));
    }
    for (const auto& [to, gbps] : now)
      if (!old.contains(to))
        add(name, to, {}, rounded(gbps), loom::format("{} of {:g} GB/s is new", to, gbps));
  }

  const System &a_, &b_;
  const Ignore ignore_;
  const bool several_;
  const Names names_a_, names_b_;
  const bool leaves_out_any_ = names_a_.leaves_out_any() || names_b_.leaves_out_any();
  std::vector<Difference> found_;
};

}  // namespace

std::vector<Difference> differences(const System& a, const System& b, Ignore ignore, CompareGpus gpus) {
  return Differences(a, b, ignore, gpus).find();
}

}  // namespace loom::tools
