// topology_file.cpp -- reads NCCL's topology XML. Strict: what it does not know is an error, never a guess.
#include <algorithm>
#include <charconv>
#include <pugixml.hpp>
#include <set>

#include "base/format.hpp"
#include "tests/virtual_gpu/machine/machine.hpp"

namespace virtual_gpu::machine {
namespace {

constexpr std::size_t kMostLinks = 1000;  // of a row: beyond any hardware

Uuid make_uuid(std::size_t host, const BusId& bus_id) {
  Uuid uuid;
  for (std::size_t half = 0; half < 2; ++half) {
    const std::uint64_t bits = hash_of(loom::format("virtual GPU {}/{}/{}", half, host, bus_id.to_string()));
    for (std::size_t i = 0; i < 8; ++i) uuid[8 * half + i] = static_cast<std::byte>(bits >> (8 * i));
  }
  return uuid;
}

class Reader {
 public:
  Reader(const std::string& text, const std::string& name, std::size_t host)
      : text_(text), name_(name), host_(host) {}

  Description read() {
    pugi::xml_document document;
    const auto result = document.load_buffer(text_.data(), text_.size());
    if (!result) fail(result.offset, loom::format("{}: correct the XML", result.description()));
    const pugi::xml_node system = document.document_element();
    if (std::string_view(system.name()) != "system")
      fail(system, "the file describes no <system>: write one with NCCL_TOPO_DUMP_FILE, or `loom topo`");
    if (number(system, "version") != 1)
      fail(system, "only version 1 is known: NCCL writes it; other libraries' files have other elements");
    for (const pugi::xml_node cpu : cpus_of_host(system)) read_cpu(cpu);
    check_nvlinks();
    if (description_.gpus.empty()) fail(system, "there is no GPU: add one, or take another file");
    return in_order();
  }

 private:
  struct Numbered {
    pugi::xml_node node;
    int device;
  };

  [[noreturn]] void fail(std::ptrdiff_t offset, const std::string& what) const {
    const auto end = text_.begin() + std::clamp<std::ptrdiff_t>(offset, 0, std::ssize(text_));
    throw Error(loom::format("{}, line {}: {}.", name_, 1 + std::count(text_.begin(), end, '\n'), what));
  }
  [[noreturn]] void fail(pugi::xml_node node, const std::string& what) const {
    fail(node ? node.offset_debug() : 0, what);
  }

  std::string word(pugi::xml_node node, const char* attribute) const {
    const pugi::xml_attribute found = node.attribute(attribute);
    if (!found) fail(node, loom::format("<{}> has no \"{}\": add it", node.name(), attribute));
    return found.value();
  }
  /// As NCCL reads numbers: 0x makes them hexadecimal.
  std::uint64_t number(pugi::xml_node node, const char* attribute, std::uint64_t most = UINT64_MAX) const {
    const std::string whole = word(node, attribute);
    const bool hexadecimal = whole.starts_with("0x");
    const std::string_view digits = std::string_view(whole).substr(hexadecimal ? 2 : 0);
    std::uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, hexadecimal ? 16 : 10);
    if (error != std::errc() || end != digits.data() + digits.size() || value > most)
      fail(node, loom::format("{}=\"{}\" of <{}> is no number from 0 to {}: correct it", attribute, whole,
                              node.name(), most));
    return value;
  }
  int integer(pugi::xml_node node, const char* attribute) const {
    return static_cast<int>(number(node, attribute, INT32_MAX));
  }
  int integer(pugi::xml_node node, const char* attribute, int otherwise) const {
    return *node.attribute(attribute).value() != 0 ? integer(node, attribute) : otherwise;
  }
  BusId bus_id(pugi::xml_node node, const char* attribute) const {
    const std::string text = word(node, attribute);
    const auto parsed = BusId::parse(text);
    if (!parsed)
      fail(node, loom::format("{}=\"{}\" is no bus id: write it as 0000:0a:00.0", attribute, text));
    return *parsed;
  }
  [[noreturn]] void fail_unknown(pugi::xml_node node) const {
    fail(node, loom::format("<{}> is not known here: take it out", node.name()));
  }

  std::vector<pugi::xml_node> cpus_of_host(pugi::xml_node system) {
    std::vector<std::uint64_t> hosts;
    std::vector<std::pair<pugi::xml_node, std::size_t>> cpus;
    for (const pugi::xml_node cpu : system) {
      if (cpu.type() != pugi::node_element) continue;
      if (std::string_view(cpu.name()) != "cpu") fail_unknown(cpu);
      const std::uint64_t key = cpu.attribute("host_hash") ? number(cpu, "host_hash") : 0;
      auto found = std::find(hosts.begin(), hosts.end(), key);
      if (found == hosts.end()) found = hosts.insert(found, key);
      cpus.emplace_back(cpu, static_cast<std::size_t>(found - hosts.begin()));
    }
    if (hosts.size() > 1 && host_ >= hosts.size())
      fail(system,
           loom::format("there are {} hosts, but this is host {} by VIRTUAL_GPU_HOST: it must be less",
                        hosts.size(), host_));
    std::vector<pugi::xml_node> mine;
    for (const auto& [cpu, host] : cpus)
      if (hosts.size() == 1 || host == host_) mine.push_back(cpu);
    return mine;
  }

  void read_cpu(pugi::xml_node cpu) {
    Socket socket{.numa = integer(cpu, "numaid"),
                  .processor = {.arch = word(cpu, "arch"),
                                .vendor = cpu.attribute("vendor").value(),
                                .family = integer(cpu, "familyid", 0),
                                .model = integer(cpu, "modelid", 0)}};
    for (const Socket& other : description_.sockets)
      if (other.numa == socket.numa)
        fail(cpu, loom::format("numaid {} is there twice: give each <cpu> its own", socket.numa));
    description_.sockets.push_back(std::move(socket));
    for (const pugi::xml_node child : cpu) read_device(child, Description::kSocketItself);
  }

  /// What lies below a socket or a switch.
  void read_device(pugi::xml_node node, std::size_t parent) {
    if (node.type() != pugi::node_element || std::string_view(node.name()) == "nic") return;
    if (std::string_view(node.name()) != "pci") fail_unknown(node);
    const BusId at = bus_id(node, "busid");
    const double gbps = pcie_gbps(node.attribute("link_speed").value(), integer(node, "link_width", 0));
    std::size_t as_switch = parent;
    if (node.child("pci")) {
      as_switch = description_.switches.size();
      description_.switches.push_back({at.to_string(), parent, description_.sockets.size() - 1, gbps});
    }
    for (const pugi::xml_node child : node) {
      if (std::string_view(child.name()) != "gpu") {
        read_device(child, as_switch);
        continue;
      }
      read_gpu(node, child, at);
      description_.wiring.push_back({parent, gbps});
    }
  }

  void read_gpu(pugi::xml_node pci, pugi::xml_node node, const BusId& at) {
    if (node.attribute("mlopart"))
      fail(node, "GPUs in parts (mlopart) are not known here: take another file");
    for (const Gpu& other : description_.gpus)
      if (other.bus_id == at)
        fail(pci, loom::format("there are two GPUs at {}: correct busid", at.to_string()));
    const auto sixteen_bits = [&](const char* attribute) {
      return pci.attribute(attribute) ? static_cast<unsigned>(number(pci, attribute, 0xffff)) : 0;
    };
    Gpu gpu;
    gpu.bus_id = at;
    gpu.uuid = make_uuid(host_, at);
    gpu.device_id = sixteen_bits("device");
    gpu.vendor_id = sixteen_bits("vendor");
    gpu.subsystem_id = sixteen_bits("subsystem_device") << 16 | sixteen_bits("subsystem_vendor");
    gpu.capability = integer(node, "sm");
    const GpuModel& model = gpu_model(gpu.device_id, gpu.capability);
    gpu.name = loom::format("{} (virtual)", model.name);
    gpu.multiprocessors = model.multiprocessors;
    gpu.ghz = model.ghz;
    gpu.memory_bytes = model.memory_gib << 30;
    gpu.memory_gbps = model.memory_gbps;
    gpu.pcie_peers = model.pcie_peers;
    gpu.socket = description_.sockets.size() - 1;
    for (const pugi::xml_node row : node) read_links(row, gpu);
    devices_.push_back({node, integer(node, "dev")});
    description_.gpus.push_back(std::move(gpu));
  }

  void read_links(pugi::xml_node row, Gpu& gpu) const {
    if (row.type() != pugi::node_element) return;
    const std::string_view kind = row.name();
    if (kind != "nvlink" && kind != "c2c") fail_unknown(row);
    const auto count = static_cast<int>(number(row, "count", kMostLinks));
    if (kind == "c2c") {
      gpu.c2c.push_back({integer(row, "bw"), count, integer(row, "active", 1) != 0});
      return;
    }
    const std::uint64_t target_class = number(row, "tclass");
    const auto to = target_class == 0x068001     ? NvLinks::To::kProcessor
                    : target_class >> 16 == 0x03 ? NvLinks::To::kGpu
                                                 : NvLinks::To::kSwitch;
    const std::string target = word(row, "target");
    gpu.nvlinks.push_back({to, to == NvLinks::To::kGpu ? bus_id(row, "target").to_string() : target, count});
  }

  /// A link has two ends.
  void check_nvlinks() const {
    const std::vector<Gpu>& gpus = description_.gpus;
    for (std::size_t i = 0; i < gpus.size(); ++i)
      for (std::size_t peer = 0; peer < i; ++peer)
        if (const int there = nvlinks_to(gpus[i], gpus[peer]), back = nvlinks_to(gpus[peer], gpus[i]);
            there != back)
          fail(devices_[i].node,
               loom::format(
                   "this GPU has {} NVLinks to {}, which has {} back: correct <nvlink> of one of them", there,
                   gpus[peer].bus_id.to_string(), back));
  }

  /// GPUs by their "dev", which is NVML's number.
  Description in_order() {
    std::vector<std::size_t> order;
    std::set<int> seen;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      order.push_back(i);
      if (!seen.insert(devices_[i].device).second)
        fail(devices_[i].node, loom::format("dev {} is there twice: number the GPUs", devices_[i].device));
    }
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return devices_[a].device < devices_[b].device; });
    Description ordered{host_, description_.sockets, description_.switches, {}, {}};
    for (const std::size_t i : order) {
      ordered.gpus.push_back(description_.gpus[i]);
      ordered.wiring.push_back(description_.wiring[i]);
    }
    return ordered;
  }

  const std::string& text_;
  const std::string& name_;
  std::size_t host_;
  Description description_;
  std::vector<Numbered> devices_;  ///< by GPU
};

}  // namespace

Description read_topology(const std::string& text, const std::string& name, std::size_t host) {
  return Reader(text, name, host).read();
}

std::optional<BusId> BusId::parse(std::string_view text) {
  BusId id;
  const auto take = [&](unsigned& value, std::size_t most_digits) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    const auto digits = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || digits > most_digits) return false;
    text.remove_prefix(digits);
    return true;
  };
  const auto skip = [&](char c) {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
  };
  const bool has_domain = std::count(text.begin(), text.end(), ':') == 2;
  if (has_domain && !(take(id.domain, 8) && skip(':'))) return std::nullopt;
  if (!take(id.bus, 2) || !skip(':') || !take(id.device, 2)) return std::nullopt;
  if (!text.empty() && !(skip('.') && take(id.function, 1) && text.empty())) return std::nullopt;
  if (id.device > 0x1f || id.function > 7) return std::nullopt;  // all ones: what drivers hide
  return id;
}
std::string BusId::to_string() const {
  return loom::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

std::string to_string(const Uuid& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += loom::format("{:02x}", static_cast<unsigned>(uuid[i]));
  }
  return text;
}

}  // namespace virtual_gpu::machine
