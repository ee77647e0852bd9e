// device_links.hpp -- makes the links between the GPUs of all ranks, and finds out what each rank's GPU can
// do. What fails on one rank is used on none: every verdict is one that all ranks share.
#pragma once

#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "component/execute/execution.hpp"
#include "component/links/links.hpp"
#include "component/select/tuner.hpp"
#include "component/setup/device_use.hpp"
#include "component/setup/member.hpp"
#include "connect/gpu_channels.hpp"
#include "device/cuda/gpu_links.hpp"
#include "device/cuda/network_writes.hpp"
#include "device/steps/layout.hpp"
#include "ucx_transport/transport.hpp"

namespace loom {

class DeviceLinks {
 public:
  /// All must outlive this.
  DeviceLinks(Member& member, Links& links, Execution& execution)
      : member_(member), links_(links), execution_(execution) {}

  /// Collective, between ranks that have links for host memory: Links::gpus, and the tuner for its calls.
  /// True on every rank or on none. Throws as Execution::perform().
  bool make(const device::cuda::Owner& owner, std::unique_ptr<Tuner>& tuner);

  /// Collective. Whether body() is true on all ranks; what it throws is told, with what is done otherwise,
  /// and is a no.
  template <class Body>
  bool try_everywhere(const char* otherwise, Body&& body) {
    return !first_failure(otherwise, body);
  }
  /// At coll_loom_verbose 1, for it is no error.
  void say(const char* what, const char* why) const;

 private:
  using Gpu = device::cuda::Gpu;
  using GpuFacts = device::cuda::GpuFacts;
  using GpuLinks = device::cuda::GpuLinks;

  /// The lowest rank where body() is false or throws, because of itself if there is one.
  template <class Body>
  std::optional<int> first_failure(const char* otherwise, Body&& body) {
    bool here = false, heard = false;
    try {
      here = body();
    } catch (const Error& error) {
      heard = error.code() == ErrorCode::kGivenUp;
      say(otherwise, error.what());
    } catch (const std::exception& error) {
      say(otherwise, error.what());
    }
    return execution_.first_without(here, heard);
  }
  bool may_ll128(std::span<const GpuFacts> facts);
  /// By rank; empty: all are on one.
  std::vector<int> hosts() const;
  bool take_channels(std::span<const GpuFacts> facts, GpuLinks::Form& form);
  void tell_room(int channels, const GpuLinks::Form& wanted, std::uint64_t room) const;
  bool make_on(const device::cuda::Owner& owner, std::unique_ptr<Tuner>& tuner);
  /// One way to connect, of which the first that works is taken.
  struct Attempt {
    Gpu::Memory memory = Gpu::Memory::kPlain;
    bool zero_copy = true;  ///< if the form has it
    bool by_ports = false;  ///< between hosts through those that channels were planned for
    bool direct = false;    ///< which read and write GPUs' memory, where they can
  };
  // What is tried next where such an attempt fails.
  static constexpr const char* kNoDirect =
      "links between hosts have their slots in page-locked host memory next";
  static constexpr const char* kNoZeroCopy =
      "links are made without zero_copy next, which may lead to fewer GPUs";
  static constexpr const char* kNoPorts = "UCX chooses the ports of links between hosts next";
  /// What is tried next where an attempt fails: before it comes to other hosts, and there.
  struct Otherwise {
    const char* here = nullptr;
    const char* between_hosts = nullptr;
  };
  /// How this rank's ends of links between hosts reach them.
  struct Ways {
    std::vector<ucx_transport::RailId> rails;  ///< by end
    std::shared_ptr<const device::cuda::NetworkWrites> writes;
    std::size_t on_gpu = 0;  ///< ends with their slots there
  };
  bool has_ports();
  bool may_go_direct(const std::shared_ptr<Gpu>& gpu);
  Otherwise otherwise(std::span<const Attempt> all, std::size_t failed) const;
  std::vector<Attempt> attempts(std::span<const GpuFacts> facts, const GpuLinks::Form& form,
                                const std::shared_ptr<Gpu>& gpu);
  bool connect(const std::shared_ptr<Gpu>& gpu, const GpuLinks::Form& wanted, const Attempt& attempt,
               const Otherwise& otherwise, bool& reached_hosts);
  /// way: what UCX took.
  bool join_hosts(const Ways& ways, const char* otherwise, std::string& way);
  connect::ChannelPorts::Port planned_port(const device::steps::FarEnd& end) const;
  ucx_transport::RailId rail_of(const std::string& port);
  bool goes_direct(const connect::ChannelPorts::Port& port, bool sends);
  Ways choose_ways(const Attempt& attempt, const std::shared_ptr<Gpu>& gpu,
                   std::vector<device::steps::FarEnd>& ends);
  /// Whether body() is true on all ranks; if not, rank 0 tells which part of the links has failed where.
  template <class Body>
  bool works(const char* what, const char* otherwise, Body&& body) {
    const std::optional<int> failed = first_failure(otherwise, body);
    if (failed && member_.tells(1)) tell_failure(what, *failed, otherwise);
    return !failed;
  }
  void tell_failure(const char* what, int rank, const char* otherwise) const;
  /// all: of as many as there are ranks.
  template <class T>
  void gather(const T& mine, std::vector<T>& all) {
    execution_.gather(&mine, all.data(), sizeof(mine));
  }

  Member& member_;
  Links& links_;
  Execution& execution_;
  std::vector<connect::ChannelPorts> ports_;            ///< by channel, of this rank
  std::map<std::string, ucx_transport::RailId> rails_;  ///< by port, those that were asked for
};

}  // namespace loom
