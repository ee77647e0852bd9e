// space.hpp -- device addresses, and what loads and stores of a kernel do there. In the end there is the
// host's memory, which other processes may map as well.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace virtual_gpu::memory {

class Arrivals;

/// How a GPU reaches memory. Lines of 128 bytes stay whole in its own and over NVLink.
enum class Path : std::uint8_t { kSameGpu, kNvlink, kPcie, kHost };

/// Which bytes of a region were ever written: one bit each. It may lie in memory that processes share.
class WrittenMap {
 public:
  static constexpr std::size_t words_for(std::size_t bytes) { return (bytes + 63) / 64; }
  /// `words`: words_for(bytes) of them, 0 at first.
  explicit WrittenMap(std::uint64_t* words) : words_(words) {}

  void mark(std::size_t offset, std::size_t bytes);
  bool all_written(std::size_t offset, std::size_t bytes) const;

 private:
  std::uint64_t* words_;
};

/// Keep lines whole: all who reach a region share them, 0 at first. A line's lock follows from its place in
/// its page, which is the same wherever it is mapped.
struct LineLocks {
  static constexpr std::size_t kCount = 4096 / 128;
  std::array<std::atomic<std::uint32_t>, kCount> locks{};
};

class LateLoads;

/// One allocation, or one mapping of it.
struct Region {
  std::uint64_t begin = 0;
  std::size_t bytes = 0;      ///< 0: there is nothing at the address
  std::byte* host = nullptr;  ///< where this process has `begin`; both lie at multiples of 128
  Path path = Path::kSameGpu;
  bool writable = true;
  /// No other GPU or process reaches it: there the scope .gpu is as good as .sys.
  bool this_gpu_only = false;
  WrittenMap* written =
      nullptr;                 ///< nullptr: all counts as written. Outlives the region's place in the space
  LineLocks* locks = nullptr;  ///< nullptr: this process alone reaches it
  LateLoads* late = nullptr;   ///< nullptr: nobody watches loads from there
  const std::function<void()>* on_store = nullptr;  ///< called when a store has come there
  /// Where the bytes that kernels load from it and store to it are added up; nullptr: nobody counts them.
  std::atomic<std::uint64_t>*loaded = nullptr, *stored = nullptr;
  static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);
  std::size_t place = kNowhere;  ///< in the machine, where somebody keeps virtual time
  Arrivals* arrivals = nullptr;  ///< by line of 128 bytes; nullptr: nobody notes them
};

/// The addresses that a kernel may use. Any thread may call it.
class Space {
 public:
  virtual ~Space() = default;
  virtual Region find(std::uint64_t address) const = 0;
  /// Changes with every region that goes: until then, regions that were found may be used without asking
  /// again.
  virtual std::uint64_t generation() const noexcept = 0;
};

/// A wrong access.
class Error : public std::runtime_error {
 public:
  enum class Kind { kMisaligned, kForeignAddress, kReadOnly, kNeverWritten, kUnordered };
  Error(Kind kind, unsigned thread, const std::string& what)
      : std::runtime_error(what), kind_(kind), thread_(thread) {}
  Kind kind() const noexcept { return kind_; }
  unsigned thread() const noexcept { return thread_; }

 private:
  Kind kind_;
  unsigned thread_;
};

/// Volatile is kRelaxed at system scope.
enum class Order : std::uint8_t { kWeak, kRelaxed, kAcquire, kRelease, kAcquireRelease };
enum class Scope : std::uint8_t { kBlock, kGpu, kSystem };

/// One lane's part of an instruction.
struct Access {
  unsigned thread = 0;  ///< in its block; those of a warp follow one another
  std::uint64_t address = 0;
  std::byte* data = nullptr;  ///< `bytes` of them: the result of a load, the operand of a store
};
struct Form {
  std::size_t bytes = 0;  ///< of each access: 1, 2, 4, 8 or 16
  Order order = Order::kWeak;
  Scope scope = Scope::kSystem;
};

/// Memory as the threads of one block see it. Used by one thread of the host.
class View {
 public:
  virtual ~View() = default;

  /// One instruction by lanes of a warp that run together.
  virtual void load(const Form& form, std::span<const Access> lanes) = 0;
  virtual void store(const Form& form, std::span<const Access> lanes) = 0;
  /// What an atomic instruction does with a word of 4 or 8 bytes, in one step. Returns what was there.
  using Change = std::uint64_t (*)(std::uint64_t old, std::uint64_t a, std::uint64_t b);
  virtual std::uint64_t update(const Form& form, unsigned thread, std::uint64_t address, Change change,
                               std::uint64_t a, std::uint64_t b) = 0;
  virtual void fence(unsigned thread, Scope scope) = 0;
  /// These threads of the block have met.
  virtual void meet(std::span<const unsigned> threads) = 0;
  /// The block has ended.
  virtual void finish() = 0;
};

/// Every access takes place at once, in the order of the program.
std::unique_ptr<View> strong_view(const Space& space);
/// As weak as PTX allows: see weak_view.cpp.
std::unique_ptr<View> weak_view(const Space& space, unsigned threads, std::uint64_t seed);

}  // namespace virtual_gpu::memory
