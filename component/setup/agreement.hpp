// agreement.hpp -- a part of a set-up that all ranks go through together, and that may fail on any rank at
// any point: then it fails on all, and none waits for another.
//
// Every exchange begins with an all-reduce of the same form, in memory on the stack, by which each rank says
// that it can go on; it has the memory for the rest of the exchange by then. So a rank that has failed,
// wherever that was, has one thing to do: take part in the all-reduce that the others come to next, and say
// there that it cannot.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "component/setup/bootstrap.hpp"
#include "component/setup/process.hpp"

namespace loom {

/// Ranks, ascending.
using Peers = std::vector<int>;

/// The bytes of ranks in one piece, each padded with zeros to the length of the longest.
class GatheredBytes {
 public:
  /// Of these ranks; of all where there are none.
  GatheredBytes(std::vector<std::byte> all, std::size_t stride, Peers ranks = {})
      : all_(std::move(all)), stride_(stride), ranks_(std::move(ranks)) {}

  /// One of the ranks; throws Error for another.
  std::span<const std::byte> operator[](int rank) const {
    const auto found = std::ranges::lower_bound(ranks_, rank);
    if (!ranks_.empty() && (found == ranks_.end() || *found != rank))
      throw Error(ErrorCode::kInternal, loom::format("Nothing was gathered from rank {}.", rank));
    const auto place = ranks_.empty() ? rank : found - ranks_.begin();
    return std::span(all_).subspan(static_cast<std::size_t>(place) * stride_, stride_);
  }

 private:
  std::vector<std::byte> all_;
  std::size_t stride_;
  Peers ranks_;
};

/// What a rank sends in the exchanges of a set-up.
struct SentBytes {
  std::size_t to_all = 0;    ///< counted once, however many hear it
  std::size_t to_peers = 0;  ///< in all, to ranks that it names
};

/// A failure: what rank 0 would say of it, in place, for memory may be what has run out; and whether this
/// rank has failed because it does not reach another process.
struct Failure {
  char where[256] = {}, text[640] = {};
  bool unreachable = false;
};

/// body(agreement) on all ranks. true on all of them; or false on all of them, after rank 0 has shown a
/// cause, where body has thrown on any; it does not show what `failure` takes. Body must not throw after its
/// last exchange. Throws BootstrapFailed and ExchangeGivenUp.
template <class Body>
bool agree_on(const Bootstrap& bootstrap, Process& process, Body&& body, Failure* failure = nullptr);

/// Its exchanges are collective. They throw SteppedAside where another rank cannot go on, BootstrapFailed and
/// ExchangeGivenUp.
class Agreement {
 public:
  struct SteppedAside {
    std::uint64_t mark;  ///< of the rank whose cause is shown
  };
  using Words = std::array<std::uint64_t, 2>;

  Agreement(const Bootstrap& bootstrap, Process& process) : bootstrap_(bootstrap), process_(process) {}

  /// All ranks have come so far.
  void agree() { largest({}); }
  /// Of each word the largest over all ranks.
  Words largest(const Words& mine);

  /// Every rank's value, by rank.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> all_gather(const T& mine) {
    const auto size = static_cast<std::size_t>(bootstrap_.size());
    auto memory = std::make_unique<Gathered<T, T>>(Gathered<T, T>{mine, std::vector<T>(size)});
    gather(memory, &memory->mine, memory->all.data(), sizeof(T));
    return std::move(memory->all);
  }
  /// Every rank's bytes one after the other, by rank; all have equally many.
  std::vector<std::byte> all_gather_slices(std::vector<std::byte> mine);
  /// Every rank's bytes.
  GatheredBytes all_gather_bytes(std::vector<std::byte> mine);

  /// The values of `peers` alone, in their order; not this rank itself. Each of them names this rank, too.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> gather_from(const Peers& peers, const T& mine) {
    auto memory =
        std::make_unique<FromPeers<T, T>>(FromPeers<T, T>{mine, std::vector<T>(peers.size()), peers});
    gather_from(memory, &memory->mine, sizeof(T));
    return std::move(memory->all);
  }
  /// The same of bytes.
  GatheredBytes gather_bytes_from(const Peers& peers, std::vector<std::byte> mine);

  /// Since the last call.
  SentBytes take_sent() noexcept { return std::exchange(sent_, {}); }

 private:
  template <class Body>
  friend bool agree_on(const Bootstrap& bootstrap, Process& process, Body&& body, Failure* failure);

  template <class Mine, class T>
  struct Gathered {
    Mine mine;
    std::vector<T> all;
  };
  template <class Mine, class T>
  struct FromPeers {
    Mine mine;
    std::vector<T> all;
    Peers peers;
    std::vector<void*> requests = std::vector<void*>(2 * peers.size());
  };
  /// body() after all have come so far. Memory is never freed if the exchange does not end.
  template <class Memory, class Body>
  void exchange(std::unique_ptr<Memory>& memory, Body&& body) {
    agree();
    try {
      body();
    } catch (...) {
      static_cast<void>(memory.release());
      throw;
    }
  }
  /// Between these addresses in `memory`.
  template <class Memory>
  void gather(std::unique_ptr<Memory>& memory, const void* mine, void* all, std::size_t bytes) {
    exchange(memory, [&] {
      sent_.to_all += bytes;
      if (bytes > 0) bootstrap_.gather(mine, all, bytes);
    });
  }
  /// bytes > 0.
  template <class Memory>
  void gather_from(std::unique_ptr<Memory>& memory, const void* mine, std::size_t bytes) {
    exchange(memory, [&] {
      sent_.to_peers += bytes * memory->peers.size();
      bootstrap_.gather_from(memory->peers, mine, memory->all.data(), bytes, memory->requests.data());
    });
  }
  /// Instead of the next exchange. `heard`: the failure of another rank is the cause.
  void step_aside(const char* cause, bool heard, Failure* failure);
  /// What all ranks do after that; `mark`: of the rank whose cause is told, `my_mark` 0: not this one.
  void explain(std::uint64_t mark, std::uint64_t my_mark, const char* cause, Failure* failure);

  const Bootstrap& bootstrap_;
  Process& process_;
  SentBytes sent_;
};

template <class Body>
bool agree_on(const Bootstrap& bootstrap, Process& process, Body&& body, Failure* failure) {
  Agreement agreement(bootstrap, process);
  try {
    body(agreement);
    return true;
  } catch (const Agreement::SteppedAside& stepped) {
    agreement.explain(stepped.mark, 0, "", failure);
  } catch (const BootstrapFailed&) {
    throw;
  } catch (const ExchangeGivenUp&) {
    throw;
  } catch (const Error& error) {
    if (failure != nullptr) failure->unreachable = error.code() == ErrorCode::kUnreachable;
    agreement.step_aside(error.what(), error.code() == ErrorCode::kGivenUp, failure);
  } catch (const std::bad_alloc&) {
    agreement.step_aside("There is no memory left.", false, failure);
  } catch (const std::exception& error) {
    agreement.step_aside(error.what(), false, failure);
  }
  return false;
}

}  // namespace loom
