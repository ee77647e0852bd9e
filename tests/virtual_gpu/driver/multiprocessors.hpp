// multiprocessors.hpp -- which blocks of kernels are on a GPU at once. Figures of compute capability 9.0; a
// kernel's registers are as many as its largest block may have at most, since ptxas is not there to ask.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace virtual_gpu {

inline constexpr unsigned kWarp = 32, kMostThreadsOfBlock = 1024, kMostThreads = 2048, kMostBlocks = 32,
                          kRegisters = 65536, kMostRegistersOfThread = 255;
inline constexpr std::size_t kSharedOfBlock = 48 * 1024, kMostSharedOfBlock = 227 * 1024,
                             kShared = 228 * 1024, kReservedShared = 1024;

/// What a block takes of a multiprocessor.
struct BlockNeeds {
  unsigned threads;
  unsigned registers;  ///< of a thread
  std::size_t shared;
};
/// A kernel that is compiled for blocks of so many threads has at most these.
constexpr unsigned registers_of_thread(unsigned most_threads) {
  const unsigned registers = kRegisters / ((most_threads + kWarp - 1) / kWarp * kWarp) / 8 * 8;
  return registers < kMostRegistersOfThread ? registers : kMostRegistersOfThread;
}
/// How many of such blocks one multiprocessor holds.
unsigned blocks_of_multiprocessor(const BlockNeeds& needs);

/// Those of one GPU. Processes that share it take turns where turns is the name of a file: whoever has it
/// locked runs kernels, until none of its own is left. The lock ends with its process.
class Multiprocessors {
 public:
  Multiprocessors(int count, std::string turns);
  ~Multiprocessors();
  Multiprocessors(const Multiprocessors&) = delete;
  Multiprocessors& operator=(const Multiprocessors&) = delete;

  /// Waits until some block fits, and takes room for as many as fit, up to `blocks`. (A GPU gives the rest of
  /// a grid whatever room comes free; here they wait for blocks of their own grid.) False: `stop` was set.
  class Room {
   public:
    Room(Multiprocessors& of, std::size_t blocks, const BlockNeeds& needs, const std::atomic<bool>& stop);
    ~Room();
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    std::size_t blocks() const { return taken_.size(); }  ///< 0: `stop` was set

   private:
    Multiprocessors& of_;
    BlockNeeds needs_;
    std::vector<std::size_t> taken_;  ///< the multiprocessor of each block
  };

 private:
  struct Use {
    unsigned blocks = 0, threads = 0, registers = 0;
    std::size_t shared = 0;
  };
  bool fits(const Use& use, const BlockNeeds& needs) const;
  bool take_turn();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Use> use_;
  std::size_t kernels_ = 0;
  int file_ = -1;
};

}  // namespace virtual_gpu
