// gpus.hpp -- the GPUs that this process sees, and the machine that they are in.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tests/virtual_gpu/driver/memory_file.hpp"
#include "tests/virtual_gpu/machine/clock.hpp"
#include "tests/virtual_gpu/machine/machine.hpp"
#include "tests/virtual_gpu/machine/shared_state.hpp"
#include "tests/virtual_gpu/machine/traffic.hpp"

namespace virtual_gpu {

class Gpus {
 public:
  /// From the environment. Each process has GPUs of its own, unless VIRTUAL_GPU_SHARED gives them a name or
  /// VIRTUAL_GPU_MACHINE says which they are. Throws machine::Error.
  Gpus();

  std::size_t size() const { return visible_.size(); }
  /// By CUDA's ordinal.
  const machine::Gpu& operator[](int ordinal) const { return gpus_[index(ordinal)]; }
  /// Nothing: this process does not see it.
  std::optional<int> ordinal_of(const Uuid& uuid) const;
  /// Whether one reaches the other's memory.
  bool can_access(int from, int to) const;
  /// How a GPU reaches memory of another, which this process may not see.
  memory::Path path(int from, const Uuid& to) const;

  /// Virtual time; nullptr: nobody keeps it.
  machine::VirtualClock* clock() { return clock_ ? &*clock_ : nullptr; }
  /// A copy between memories, whose GPUs this process may not see; nullptr: memory of the host. share: of the
  /// bandwidth that it reaches. Returns when it has ended that has begun then, in virtual time.
  machine::Ns copy(const Uuid* from, const Uuid* to, std::size_t bytes, double share, machine::Ns begin);
  /// A fill by a GPU, likewise.
  machine::Ns fill(int by, const Uuid* to, std::size_t bytes, machine::Ns begin);
  /// In the machine: a GPU's multiprocessors, and memory that it uses; nullptr: of the host. kNowhere: that
  /// is of another machine.
  std::size_t place_of_gpu(int ordinal) const { return machine_.index_of(machine::gpu(index(ordinal))); }
  std::size_t place_of_memory(const Uuid* memory, int user) const;
  /// Tells a region where to add up what kernels of a GPU load and store there. nullptr: memory of the host.
  /// The GPU's own is counted only if VIRTUAL_GPU_OWN_TRAFFIC is set: how much of that its caches take,
  /// nothing here knows.
  void count_in(memory::Region& region, int by, const Uuid* of);
  /// Bytes that a link has carried, for all who share the machine. Nothing: there is no such link.
  std::optional<std::uint64_t> carried(std::string_view from, std::string_view to) const;
  /// Which kernels of all processes are on a GPU.
  machine::Residents& residents(int ordinal) const { return state_.residents(index(ordinal)); }
  /// At the end of the process.
  void leave();

 private:
  std::atomic<std::uint64_t>& counter(std::optional<machine::Place> from, std::optional<machine::Place> to);
  machine::Ns moved(std::optional<machine::Place> from, std::optional<machine::Place> to, std::size_t bytes,
                    double share, machine::Ns begin);
  /// Memory of the host is that of the socket of `user`. Nothing: it is of no GPU of this machine.
  std::optional<machine::Place> place_of(const Uuid* memory, std::size_t user) const;
  std::size_t index(int ordinal) const { return visible_[static_cast<std::size_t>(ordinal)]; }
  std::optional<std::size_t> index_of(const Uuid& uuid) const;

  machine::Machine machine_;
  machine::SharedState state_;
  machine::Traffic traffic_;
  std::optional<machine::VirtualClock> clock_;
  std::vector<machine::Gpu> gpus_;    ///< of the machine, with the UUIDs that they have here
  std::vector<std::size_t> visible_;  ///< by ordinal, in gpus_
  bool counts_own_ = false;           ///< what kernels load and store in memory of their own GPU
};

}  // namespace virtual_gpu
