// launch.hpp -- PTX as a program for the CPU, and grids of it. Each block is a thread of the host; its warps
// and lanes take turns in it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/virtual_gpu/memory/space.hpp"
#include "tests/virtual_gpu/ptx/module.hpp"
#include "tests/virtual_gpu/run/residency.hpp"

namespace virtual_gpu::run {

struct Dim {
  unsigned x = 1, y = 1, z = 1;

  constexpr std::size_t count() const { return std::size_t{x} * y * z; }
  friend constexpr bool operator==(const Dim&, const Dim&) = default;
};

struct Launch {
  Dim grid, block;
  unsigned dynamic_shared_bytes = 0;
  std::span<const std::byte> parameters;  ///< laid out as Entry::parameters says
};

/// Where lanes that a branch has parted meet again.
enum class Meeting {
  kPostDominators,  ///< as soon as the program allows
  kVotesOnly  ///< at votes, barriers and bar.warp.sync alone; meanwhile they go on separately, in random
              ///< order
};

/// Blocks of several grids that wait for each other. When none of them gets on, it is a deadlock.
class Company {
 public:
  /// So many blocks; whoever else may end their waiting counts, too.
  explicit Company(unsigned members) : members_(members) {}

  void get_on() { ++progress_; }
  void join() { ++members_; }
  /// One of them has ended.
  void leave() {
    --members_;
    ++progress_;
  }
  /// A member has spun in vain for long. Whether all have, since anybody got on.
  bool is_stuck(const void* member);

 private:
  std::atomic<unsigned> members_;
  std::atomic<std::uint64_t> progress_ = 0;
  std::mutex mutex_;
  std::uint64_t seen_ = 0;            ///< of progress_
  std::map<const void*, int> stuck_;  ///< how often each has said so since
};

struct Settings {
  Meeting meeting = Meeting::kPostDominators;
  bool random_order = false;  ///< of the warps of a block
  bool weak_memory = false;
  std::uint64_t seed = 0;
  /// Where set: what a block sees its memory through, made of the view that it would have.
  std::function<std::unique_ptr<memory::View>(std::unique_ptr<memory::View>)> observe = {};
  /// Blocks of a grid that run at once; the others wait for one to end.
  unsigned resident_blocks = 64;
  Residency* residency = nullptr;  ///< instead: as many as get a place there, more when more places come free
  /// Gets a text that says who waits where, once a block has waited, or waited for a place, for so long. It
  /// may still go on. Called by any thread.
  std::function<void(const std::string&)> on_patience_lost = {};
  std::chrono::milliseconds patience{30'000};
  Company* company = nullptr;  ///< that the blocks of this grid are of; nullptr: they may spin for ever
  /// Where it is set: how often each line of the PTX has run, from line 0. At least as long as the text.
  std::vector<std::atomic<unsigned>>* runs_of_lines = nullptr;
};

/// What a kernel did wrong, and where.
class Fault : public std::runtime_error {
 public:
  enum class Kind {
    kMisaligned,
    kForeignAddress,  ///< in no region, or beyond its end
    kReadOnly,        ///< a store to memory that is mapped for loads alone
    kNeverWritten,    ///< loads what nobody has stored
    kUnordered,       ///< a load and a store of others that nothing keeps apart
    kVote,      ///< a vote or bar.warp.sync whose lanes do not agree, or that names lanes that have exited
    kBarrier,   ///< threads of one barrier that do not agree on it
    kDeadlock,  ///< all threads of a block wait
    kDivideByZero,
    kTrap,
    kStopped  ///< `stop` was set while it ran
  };
  struct Place {
    std::string kernel;
    Dim block{0, 0, 0}, thread{0, 0, 0};
    int line = 0;      ///< of the PTX
    std::string text;  ///< of the instruction
  };
  Fault(Kind kind, Place place, const std::string& what);

  Kind kind() const noexcept { return kind_; }
  const Place& place() const noexcept { return place_; }

 private:
  Kind kind_;
  Place place_;
};

namespace detail {
struct Code;
}

struct Parameter {
  std::size_t offset = 0, bytes = 0, align = 1;
};
/// A kernel of a program.
struct Entry {
  std::string name{};
  std::vector<Parameter> parameters{};
  std::size_t parameter_bytes = 0;
  std::size_t shared_bytes = 0;  ///< static
  std::size_t local_bytes = 0;   ///< of each thread, calls included
  std::optional<Dim> most_threads{};
  unsigned least_blocks = 1;  ///< that its registers leave room for on a multiprocessor
  std::size_t function = 0;   ///< its index in the program
};

class Program {
 public:
  /// Where a module's variable in global or constant memory lies; its initial value is for the caller to put
  /// there.
  using Place = std::function<std::uint64_t(const ptx::Variable&)>;

  /// Throws ptx::Error for what the virtual GPU does not know. Keeps what it needs of the module.
  explicit Program(const ptx::Module& module, const Place& place = {});
  ~Program();
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;

  const Entry* find(std::string_view name) const;
  std::span<const Entry> entries() const;
  const detail::Code& code() const { return *code_; }

 private:
  std::unique_ptr<detail::Code> code_;
};

/// Runs the whole grid and returns when all its blocks have ended, with all stores in memory. Throws the
/// first Fault; std::invalid_argument for parameters of another size than the entry's, and a block without
/// threads or with more than 1,024 or the entry allows. Any number of grids may run at once. `stop` may be
/// set at any time.
void run(const Program& program, const Entry& entry, const Launch& launch, memory::Space& space,
         const Settings& settings, const std::atomic<bool>& stop);

}  // namespace virtual_gpu::run
