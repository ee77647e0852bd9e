// member.hpp -- one rank of one communicator, before there are links: who it is, and what it shares with
// whom.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "component/setup/agreement.hpp"
#include "component/setup/bootstrap.hpp"
#include "component/setup/group.hpp"
#include "component/setup/process.hpp"
#include "component/setup/set_up_watch.hpp"

namespace loom {

/// For a message: if there is no memory for it, nothing changes of what the ranks have agreed on.
template <class Body>
void without_failing(Body&& body) noexcept {
  try {
    body();
  } catch (const std::exception&) {
  }
}

/// How long each part of the set-up took, and what this rank sent in it.
class SetUpTimes {
 public:
  void begin() noexcept { began_ = Clock::now(); }
  /// The part since begin(), or since the part before, has ended.
  void note(const char* name, Agreement& agreement) noexcept;
  std::string text() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Part {
    const char* name;
    SentBytes sent;
    double milliseconds;
  };
  std::array<Part, 6> parts_;
  std::size_t count_ = 0;
  Clock::time_point began_;
};

struct Member {
  Member(const Bootstrap& with, Process& of);
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  Process& process;
  const std::string name;  ///< of the communicator, for messages
  SetUpWatch watch;        ///< of the exchanges by `bootstrap`
  Bootstrap bootstrap;     ///< of the set-up; its context outlives this
  const int rank;
  const std::string where;  ///< "rank 3 of 8 of MPI_COMM_WORLD on host node1", for messages
  std::shared_ptr<Group> group = std::make_shared<Group>();
  bool group_is_known = false;  ///< from an earlier communicator, on all ranks
  SetUpTimes times;

  /// A message of coll_loom_verbose >= level is due: one for the communicator, from rank 0.
  bool tells(int level) const { return rank == 0 && process.runtime().parameters.verbose >= level; }
  /// From now on.
  void exchange_through(const Bootstrap& other) noexcept {
    bootstrap = other.watched_by(watch);
    bootstrap.rename(name.c_str());
  }
  /// Opened at the first call. Throws Error.
  ucx_transport::Transport& network() const {
    return process.transport(group->host_places, group->self_on_host);
  }
};

}  // namespace loom
