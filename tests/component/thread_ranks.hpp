// thread_ranks.hpp -- ranks as threads of one process: no mpirun, no GPU. Each has its own Process, as if it
// were one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "component/communicator/communicator.hpp"

namespace loom::test {

/// What the ranks of a run said through the runtime, in any order.
class Transcript {
 public:
  void add(loom_message message, const std::string& where, const std::string& cause);
  /// "where: cause" of all messages of this kind.
  std::vector<std::string> messages(loom_message message);
  void add_line(const std::string& line);
  /// What was logged, in order.
  std::vector<std::string> lines();
  /// Called in the thread that logs a line; may be empty.
  std::function<void()> on_line;

 private:
  std::mutex mutex_;
  std::vector<std::pair<loom_message, std::string>> messages_;
  std::vector<std::string> lines_;
};

class Rank {
 public:
  int rank() const { return bootstrap().rank; }
  int size() const { return bootstrap().size; }
  Process& process() { return *process_; }
  ProgressEngine& engine() { return *engine_; }
  /// For one of the threads of the rank that meet those of the others.
  const loom_bootstrap& bootstrap(std::size_t thread = 0) const { return bootstraps_[thread]; }
  /// Collective.
  template <class T>
  std::vector<T> all_gather(const T& mine) const {
    std::vector<T> all(static_cast<std::size_t>(size()));
    Bootstrap(bootstrap()).gather(&mine, all.data(), sizeof(T));
    return all;
  }
  /// Collective; nullptr if the ranks stepped aside.
  std::unique_ptr<Communicator> connect() {
    return Communicator::create(Bootstrap(bootstrap()), *process_, *engine_);
  }

 private:
  friend struct Job;
  std::vector<loom_bootstrap> bootstraps_;
  std::unique_ptr<Process> process_;
  std::unique_ptr<ProgressEngine> engine_;
};

/// coll_loom_tune: the table's choice, with links between node leaders from the first small call on. (The
/// rule fits no call that has a byte, but it names the algorithm.)
inline constexpr const char* kHierAtOnce = "allreduce:0-1:hier";

inline loom_parameters with_rendezvous(loom_rendezvous rendezvous) {
  loom_parameters parameters{};
  parameters.rendezvous = rendezvous;
  return parameters;
}
/// Whether loom took the call.
inline bool allreduce(Communicator& communicator, const std::byte* in, std::byte* out, std::size_t count,
                      device::Type type, device::Op op) {
  return communicator.perform({device::Collective::kAllreduce, in, out, count, type, op});
}

inline loom_parameters with_timeout(double seconds) {
  loom_parameters parameters{};
  parameters.timeout_s = seconds;
  return parameters;
}

struct Job {
  int ranks = 2;
  /// The host of each rank; all on one where empty.
  std::function<std::string(int rank)> host = {};
  loom_parameters parameters = {};
  /// Those of each rank, where they differ.
  std::function<loom_parameters(int rank)> parameters_of = {};
  /// In which a rank may meet the others at the same time, each with its bootstrap.
  std::size_t threads_per_rank = 1;
  Transcript transcript = {};
  double (*now)(void) = nullptr;  ///< as in loom_runtime

  /// Runs body(rank) in one thread for each rank and rethrows the first exception of any.
  void run(const std::function<void(Rank&)>& body);
};

}  // namespace loom::test
