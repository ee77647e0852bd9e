// harness.hpp -- checks that run under mpirun. Every rank runs every check; all ranks agree on each verdict.
// GoogleTest knows nothing of ranks: it would let one rank leave a check that the others still wait in.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "mpi_examples/support/loom_pvars.hpp"
#include "mpi_examples/support/typed_values.hpp"

namespace loom::mpi_test {

enum class Carrier { kUnknown, kLoom, kFallback };

struct Settings {
  Carrier expected = Carrier::kUnknown;
  std::size_t loom_from_bytes = 0;  // loom may leave smaller messages to the fallback component
  int threads = 0;                  // 0: MPI was not initialized for several threads
  bool big = false;
  std::string filter;  // run only the checks whose name contains this
  std::uint64_t seed = 1;

  /// loom's arithmetic can be relied on for a message of this size.
  bool loom_carries(std::size_t bytes) const {
    return expected == Carrier::kLoom && bytes >= loom_from_bytes;
  }
};

/// A communicator with its rank and size.
struct Group {
  MPI_Comm comm;
  int rank = 0, ranks = 0;

  explicit Group(MPI_Comm communicator) : comm(communicator) {
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
  }
};

/// What one check found on this rank. Several threads may use it.
class Check {
 public:
  explicit Check(const Settings& of_run) : settings(of_run) {}
  const Settings& settings;
  const Group world{MPI_COMM_WORLD};

  template <class... Args>
  bool expect(bool condition, FormatString<Args...> otherwise, Args&&... args) {
    if (!condition) add_failure(loom::format(otherwise, std::forward<Args>(args)...));
    return condition;
  }
  /// Called on all ranks or on none.
  void skip(std::string why) { skipped_ = std::move(why); }

  // Which counters of loom must move by how much; only in runs that know who carries the calls.
  void expect_carried(std::size_t bytes);
  void expect_fallback();
  void expect_either();

 private:
  friend class Suite;
  void add_failure(std::string text);

  std::mutex mutex_;
  std::vector<std::string> failures_;
  std::size_t failure_count_ = 0;
  std::string skipped_;
  std::uint64_t carried_ = 0, fallbacks_ = 0, either_ = 0;
};

class Suite {
 public:
  using Body = std::function<void(Check&)>;
  void add(std::string sentence, Body body) { checks_.emplace_back(std::move(sentence), std::move(body)); }

  /// Runs the checks; returns the exit code, the same on every rank.
  int run(const Settings& settings);

 private:
  void judge_carrier(Check& check, std::uint64_t carried, std::uint64_t fallbacks) const;

  std::vector<std::pair<std::string, Body>> checks_;
};

// The groups of checks, one file each.
void add_value_checks(Suite& suite);
void add_special_type_checks(Suite& suite);
void add_communicator_checks(Suite& suite);
void add_big_count_checks(Suite& suite);

/// A buffer between two guards, `misalignment` bytes past an aligned address.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t bytes, std::size_t misalignment = 0);
  std::byte* data() { return storage_.get() + kGuardBytes + misalignment_; }
  bool guards_intact() const;

 private:
  static constexpr std::size_t kGuardBytes = 256;
  std::size_t bytes_, misalignment_;
  std::unique_ptr<std::byte[]> storage_;
};

/// Operands of this rank and the expected result, for allreduces of one type and operation in one group.
class Reduction {
 public:
  Reduction(const Group& group, mpi::Type type, mpi::Op op, mpi::Range range = mpi::Range::kExact)
      : group_(group),
        type_(type),
        op_(op),
        operand_(mpi::Tile::operand(type, op, range, group.rank, group.ranks)),
        result_(mpi::Tile::result(type, op, range, group.ranks)) {}

  struct Variation {
    bool in_place = false;
    std::uint64_t shift = 0;       // other values for every call
    std::size_t misalignment = 0;  // of both buffers, in bytes
  };
  /// One MPI_Allreduce: its result, the guards around both buffers, and the send buffer afterwards.
  void run(Check& check, std::size_t count, Variation how) const;
  void run(Check& check, std::size_t count) const { run(check, count, Variation{}); }

 private:
  const Group& group_;
  mpi::Type type_;
  mpi::Op op_;
  mpi::Tile operand_, result_;
};

}  // namespace loom::mpi_test
