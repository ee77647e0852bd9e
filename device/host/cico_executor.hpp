// cico_executor.hpp -- collectives of one host, for messages larger than an ImmediateExchange takes: every
// rank has a CICO buffer that all others read. Performs all-reduce (two-shot), reduce, reduce-scatter,
// all-gather, broadcast and all-to-all straight between the ranks, tile by tile, in rounds. Resumable: it
// never waits.
//
// Reductions go in order of rank: the result depends on the operands alone, not on their number, their sizes
// or their place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/host/cico_walk.hpp"

namespace loom::device {

/// One rank's; see Rounds.
struct CicoBuffer {
  static constexpr std::size_t kBytes = 512 * 1024;  // stay in an L2 cache of 1 MiB, beside what goes through
  /// With as few banks as there can be.
  static constexpr std::uint64_t kBanks = Rounds::kFewestBanks;
  static constexpr std::size_t kBankBytes = kBytes / kBanks;
  /// For so many a bank has a line of each, and what CicoBlocksExecutor tells each.
  static constexpr int kMostRanks = 1024;
  static_assert(kBankBytes / kMostRanks >= kCacheLine + 16);

  alignas(kCacheLine) RoundFlags flags;
  alignas(kCacheLine) std::byte banks[kBytes];
};

/// Where a rank's CICO buffer lies.
struct CicoPlace {
  RoundFlags* flags;
  std::byte* banks;
};

/// The CICO buffers of one communicator whose ranks are all on one host.
class CicoBuffers : public Rounds {
 public:
  /// cico[r] is rank r's, zeroed before any rank constructs; they must outlive this. At least two.
  /// The rest as for Rounds.
  CicoBuffers(std::vector<CicoBuffer*> cico, int self, bool few_rounds = false,
              std::uint64_t banks = CicoBuffer::kBanks)
      : CicoBuffers(places_of(cico), self, few_rounds, banks, CicoBuffer::kBytes / banks) {}
  /// The same with banks of another length, a multiple of a cache line.
  CicoBuffers(const std::vector<CicoPlace>& places, int self, bool few_rounds, std::uint64_t banks,
              std::size_t bank_bytes)
      : Rounds(flags_of(places), self, few_rounds, banks), bank_bytes_(bank_bytes) {
    for (const CicoPlace& place : places) banks_of_.push_back(place.banks);
  }

  std::size_t bank_bytes() const noexcept { return bank_bytes_; }
  std::byte* to_write() const { return bank(self(), bank_to_write()); }
  /// Two adjacent banks of this rank for its own use, once all are level: the bank to write, if the round
  /// writes nothing there, and the next one; or the next two. Nobody reads them before this rank publishes
  /// the round after this one.
  std::span<std::byte> room() const {
    static_assert(kFewestBanks >= 4);
    const std::uint64_t first = bank_to_write() < banks() - 1 ? bank_to_write() : 0;
    return {bank(self(), first), 2 * bank_bytes()};
  }
  const std::byte* to_read(int rank) const { return bank(rank, bank_to_read()); }

 private:
  static std::vector<CicoPlace> places_of(const std::vector<CicoBuffer*>& cico) {
    std::vector<CicoPlace> places;
    for (CicoBuffer* buffer : cico) places.push_back({&buffer->flags, buffer->banks});
    return places;
  }
  static std::vector<RoundFlags*> flags_of(const std::vector<CicoPlace>& places) {
    std::vector<RoundFlags*> flags;
    for (const CicoPlace& place : places) flags.push_back(place.flags);
    return flags;
  }
  std::byte* bank(int rank, std::uint64_t which) const {
    return banks_of_[static_cast<std::size_t>(rank)] + which * bank_bytes_;
  }
  std::vector<std::byte*> banks_of_;  ///< by rank
  std::size_t bank_bytes_;
};

class CicoExecutor : public CicoWalk {
 public:
  static constexpr bool takes(Collective collective) {
    return collective <= Collective::kAllToAll || collective == Collective::kReduceScatterV;
  }

  /// A call that takes() accepts. begun: as for CicoWalk.
  CicoExecutor(CicoBuffers& cico, const Call& call, Begun begun = Begun::kNo);
  /// streams: whether writes to a contiguous output bypass the caches, whatever the buffers' size.
  CicoExecutor(CicoBuffers& cico, const Call& call, bool streams, Begun begun = Begun::kNo);

  /// Performs one round unless it must wait.
  State advance();

 private:
  void offer(std::size_t tile);
  void reduce_own(std::size_t tile);
  void take(std::size_t tile);
  std::size_t block_bytes(const std::byte* out, std::size_t at) const;
  void read(int block, std::size_t first, std::byte* to, std::size_t bytes) const;
  void put(int block, std::size_t first, const std::byte* from, std::size_t bytes) const;
  void write(int block, std::size_t first, const std::byte* from, std::size_t bytes) const;
  void keep(const Range& own) const;
  const std::byte* fetched(std::size_t first, std::size_t bytes) const;
  void tell(const std::byte* out, std::size_t bytes) const;
  std::byte* piece(int part) const { return cico_.to_write() + piece_at(part); }
  const std::byte* piece_of(int rank, int part) const { return cico_.to_read(rank) + piece_at(part); }
  void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) const;

  CicoBuffers& cico_;
  bool streams_;  ///< writes to the output bypass the caches
};

}  // namespace loom::device
