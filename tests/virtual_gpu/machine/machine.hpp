// machine.hpp -- the machine that the virtual GPUs are in: which GPUs there are, what joins them, and by
// which links bytes go from one place to another. Made from a topology file as NCCL writes them.
//
// Variables of the environment:
//   VIRTUAL_GPU_MACHINE=FILE   the topology file; without it two GPUs that reach each other over PCIe
//   VIRTUAL_GPU_HOST=N         which host this is (0). Of a file with several (host_hash) it takes the Nth;
//                              else all hosts are alike. GPUs of different hosts have different UUIDs.
//
// A file has no sockets but NUMA nodes (its `cpu` elements); each counts as a socket of its own here. NVLinks
// to switches are one link to one switch: the hardware spreads what is sent over all of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/virtual_gpu/machine/figures.hpp"

namespace virtual_gpu::machine {

/// The file or a setting is wrong. what() tells where, what, and what to do about it.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct BusId {
  unsigned domain = 0, bus = 0, device = 0, function = 0;

  /// "0000:0a:00.0", with a domain of any length or none.
  static std::optional<BusId> parse(std::string_view text);
  std::string to_string() const;  ///< "0000:0a:00.0"
  friend bool operator==(const BusId&, const BusId&) = default;
};

using Uuid = std::array<std::byte, 16>;
/// "GPU-01234567-89ab-cdef-0123-456789abcdef"
std::string to_string(const Uuid& uuid);

/// A row of NVLinks, as the file has it.
struct NvLinks {
  enum class To { kGpu, kSwitch, kProcessor };
  To to = To::kSwitch;
  std::string target;  ///< bus id, or what drivers write for one that they hide
  int count = 0;
};
struct C2cLinks {
  int mbps = 0, count = 0;
  bool active = true;  ///< an attribute of our own, "active": links that are down exist, but carry nothing
};

struct Gpu {
  std::string name;
  Uuid uuid{};
  BusId bus_id;
  unsigned device_id = 0, vendor_id = 0;  ///< on PCI
  unsigned subsystem_id = 0;              ///< device and vendor
  int capability = 0;                     ///< 90: 9.0
  int multiprocessors = 0;
  double ghz = 0;
  std::size_t memory_bytes = 0;
  double memory_gbps = 0;
  bool pcie_peers = true;
  std::size_t socket = 0;
  std::vector<NvLinks> nvlinks;
  std::vector<C2cLinks> c2c;
};

/// How many join the two directly.
int nvlinks_to(const Gpu& from, const Gpu& to);

struct Socket {
  int numa = 0;
  Processor processor;
};

enum class Peers {
  kNone,
  kNoneByChipset,  ///< these GPUs do not reach peers over PCIe
  kNoneBySocket,   ///< they would, but not between these sockets
  kPcie,
  kNvlink
};

/// Where bytes come from or go to: the multiprocessors of a GPU (loads and stores), the memory of a GPU, or
/// that of a socket.
struct Place {
  enum class Kind { kGpu, kGpuMemory, kHostMemory };
  Kind kind;
  std::size_t index;
  friend bool operator==(const Place&, const Place&) = default;
};
constexpr Place gpu(std::size_t index) {
  return {Place::Kind::kGpu, index};
}
constexpr Place gpu_memory(std::size_t index) {
  return {Place::Kind::kGpuMemory, index};
}
constexpr Place host_memory(std::size_t socket) {
  return {Place::Kind::kHostMemory, socket};
}

/// In one direction. The other one is links()[i ^ 1].
struct Link {
  enum class Kind { kMemory, kNvlink, kC2c, kPcie, kSocket };
  Kind kind;
  std::string from, to;
  double gbps;
  double latency_ns;
  /// Links with the same number share their bandwidth: the two directions of memory. All else is duplex.
  std::size_t capacity;
};
const char* to_string(Link::Kind kind);

struct Route {
  std::vector<std::size_t> links;  ///< in the order that bytes pass them
  double gbps = 0;                 ///< while nothing else moves. Of the empty route, from a GPU to itself: 0
  double latency_ns = 0;
};

/// What a topology file says of one host, before it is wired up.
struct Description {
  struct Switch {
    std::string bus_id;
    std::size_t parent;  ///< in switches; kSocketItself: none
    std::size_t socket;
    double gbps;
  };
  static constexpr std::size_t kSocketItself = static_cast<std::size_t>(-1);
  struct Wiring {
    std::size_t parent;  ///< in switches
    double gbps;         ///< of PCIe
  };
  std::size_t host = 0;
  std::vector<Socket> sockets;
  std::vector<Switch> switches;
  std::vector<Gpu> gpus;       ///< as NVML orders them
  std::vector<Wiring> wiring;  ///< by GPU
};
/// `name` stands in errors.
Description read_topology(const std::string& text, const std::string& name, std::size_t host);

class Machine {
 public:
  explicit Machine(Description description);
  /// Throws Error.
  static Machine from_file(const std::string& path, std::size_t host = 0);
  static Machine from_environment();

  std::size_t host() const { return description_.host; }
  const std::vector<Gpu>& gpus() const { return description_.gpus; }
  const std::vector<Socket>& sockets() const { return description_.sockets; }
  const std::vector<Link>& links() const { return links_; }

  Peers peers(std::size_t from, std::size_t to) const;

  /// All places, in one order. Throws std::out_of_range for what is not there.
  std::size_t place_count() const { return 2 * gpus().size() + sockets().size(); }
  std::size_t index_of(Place place) const;
  Place place(std::size_t index) const;
  std::string name_of(Place place) const;
  /// The way of bytes: what a GPU loads goes from the memory to it, what it stores the other way round, what
  /// is copied from memory to memory.
  const Route& route(Place from, Place to) const { return route(index_of(from), index_of(to)); }
  const Route& route(std::size_t from, std::size_t to) const { return routes_.at(from * place_count() + to); }
  /// The same for machines that are wired alike.
  std::uint64_t fingerprint() const;

 private:
  struct Node {
    std::string name;
    std::vector<std::pair<std::size_t, std::size_t>> links;  ///< that leave it: to which node, which link
  };
  std::size_t add_node(std::string name);
  /// Both directions.
  void join(std::size_t a, std::size_t b, Link::Kind kind, double gbps, double latency_ns,
            bool shared = false);
  void add_nvlinks();
  std::optional<std::size_t> find_link(std::size_t from, std::size_t to) const;
  bool nvlinks_between(std::size_t from, std::size_t to) const;
  std::vector<std::size_t> way_up(std::size_t gpu) const;
  std::vector<std::size_t> way_between(Place from, Place to) const;
  Route make_route(Place from, Place to) const;

  Description description_;
  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::vector<Route> routes_;
  std::vector<std::size_t> gpu_node_, socket_node_, switch_node_;
  std::optional<std::size_t> nvswitch_;
};

/// Which GPUs CUDA shows, in which order, where CUDA_VISIBLE_DEVICES has this value; nullptr: it is not set.
std::vector<std::size_t> visible_gpus(const std::vector<Gpu>& gpus, const char* value);

/// The same in every process.
std::uint64_t hash_of(std::string_view text);

/// Of the environment; "" where it is not set.
std::string variable(const char* name);

}  // namespace virtual_gpu::machine
