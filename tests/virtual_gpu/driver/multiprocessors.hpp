// multiprocessors.hpp -- which blocks of kernels are on a GPU at once, of all processes that share it.
// Figures of compute capability 9.0; a kernel's registers are as many as its largest block may have at most,
// since ptxas is not there to ask.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include "tests/virtual_gpu/machine/shared_state.hpp"
#include "tests/virtual_gpu/run/residency.hpp"

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

/// Those of one GPU, as this process uses them. Kernels of processes that share it are there together where
/// all of them say so (MPS), and take what room the others leave. Else processes take turns, in the order in
/// which they asked: whose turn it is runs kernels until none of its own is left. A process that dies leaves
/// its turn and its room.
class Multiprocessors {
 public:
  /// Throws machine::Error if too many processes share them.
  Multiprocessors(int count, machine::Residents& residents, bool together);
  ~Multiprocessors();
  Multiprocessors(const Multiprocessors&) = delete;
  Multiprocessors& operator=(const Multiprocessors&) = delete;

  /// What a grid has of them. Of those that wait, the one that came first takes what fits, then the next.
  class Room final : public run::Residency {
   public:
    Room(Multiprocessors& of, const BlockNeeds& needs) : of_(of), needs_(needs) {}
    ~Room() override;  ///< gives back what it has
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    std::size_t take(std::size_t most, const std::function<bool()>& given_up) override;
    void give_back() override;

   private:
    friend class Multiprocessors;
    Multiprocessors& of_;
    BlockNeeds needs_;
    std::vector<std::size_t> taken_;  ///< the multiprocessor of each block
    std::size_t wanted_ = 0;          ///< while it waits
    std::size_t granted_ = 0;         ///< since it has waited
  };

 private:
  using Use = machine::Residents::Use;
  using Process = machine::Residents::Process;

  void serve();
  void grant(Room& room, std::vector<Use>& use);
  void release(Room& room, std::size_t multiprocessor);
  bool may_run();
  std::vector<Use> use_of_all() const;

  const std::size_t count_;
  machine::Residents& residents_;
  Process* mine_ = nullptr;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Room*> waiting_;  ///< the first to come first
};

}  // namespace virtual_gpu
