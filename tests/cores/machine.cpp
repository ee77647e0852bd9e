#include "tests/cores/machine.hpp"

#include <filesystem>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "topo/xml.hpp"

namespace loom::cores {
namespace {

/// A NUMA node is a child of the object whose memory it is.
pugi::xml_node numa_node_above(pugi::xml_node object) {
  for (; object; object = object.parent())
    for (const pugi::xml_node child : object.children("object"))
      if (child.attribute("type").value() == std::string_view("NUMANode")) return child;
  return {};
}
pugi::xml_node above(pugi::xml_node object, std::string_view type) {
  while (object && object.attribute("type").value() != type) object = object.parent();
  return object;
}

/// Numbers what it is given in order of appearance.
class Numbers {
 public:
  int of(pugi::xml_node object) {
    return numbers_.try_emplace(object, static_cast<int>(numbers_.size())).first->second;
  }

 private:
  std::map<pugi::xml_node, int> numbers_;
};

}  // namespace

Machine read_machine(const std::string& path) {
  const topo::XmlDocument xml(topo::read_text_file(path), path);
  Machine machine{std::filesystem::path(path).stem().string(), {}};
  Numbers caches, nodes, sockets;
  int depth = 0;
  for (pugi::xml_node e = topo::next_element(xml.root(), true, depth); e;
       e = topo::next_element(e, true, depth)) {
    if (e.attribute("type").value() != std::string_view("PU")) continue;
    const pugi::xml_node cache = above(e, "L3Cache"), node = numa_node_above(e), socket = above(e, "Package");
    if (!cache || !node || !socket) xml.fail(e, "it is not below a package, a NUMA node and an L3 cache.");
    machine.cores.push_back({caches.of(cache), nodes.of(node), sockets.of(socket)});
  }
  return machine;
}

std::vector<Core> cores_of_ranks(const Machine& machine, int ranks, bool packed) {
  const std::size_t all = machine.cores.size(), wanted = static_cast<std::size_t>(ranks);
  if (wanted > all)
    throw Error(ErrorCode::kBadInput, loom::format("{} has {} cores, not {}.", machine.name, all, wanted));
  std::vector<Core> cores;
  for (std::size_t rank = 0; rank < wanted; ++rank)
    cores.push_back(machine.cores[packed ? rank : rank * all / wanted]);
  return cores;
}

}  // namespace loom::cores
