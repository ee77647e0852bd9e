#include "tests/virtual_gpu/machine/clock.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace virtual_gpu::machine {
namespace {

constexpr Ns kNever = std::numeric_limits<Ns>::infinity();

/// All transfers, from the first event to the last.
class Fluid {
 public:
  Fluid(const Machine& machine, std::span<const Transfer> transfers, std::uint64_t first, Ns before_ns)
      : machine_(machine), transfers_(transfers), first_(first), before_ns_(before_ns) {
    for (const Transfer& transfer : transfers) left_.push_back(static_cast<double>(transfer.bytes));
    ends_.resize(transfers.size(), kNever);
    begins_.resize(transfers.size(), kNever);
    for (std::size_t i = 0; i < transfers.size(); ++i) waiting_.push_back(i);
  }

  std::vector<Ns> run() {
    for (begin_those_ready(); !waiting_.empty() || !moving_.empty(); begin_those_ready()) {
      const std::vector<double> rates = rates_now();
      Ns next = kNever;
      for (const std::size_t i : waiting_) next = std::min(next, ready(i));
      for (std::size_t k = 0; k < moving_.size(); ++k) next = std::min(next, finish(moving_[k], rates[k]));
      advance(next, rates);
    }
    return ends_;
  }

 private:
  /// kNever: something that it comes after has no end yet.
  Ns ready(std::size_t i) const {
    Ns at = transfers_[i].earliest_ns;
    for (const Transfer::Range& range : transfers_[i].after)
      for (std::uint64_t number = range.first; number < range.first + range.count; ++number)
        at = std::max(at, number < first_ ? before_ns_ : ends_[number - first_]);
    return at;
  }

  /// An end may lie ahead: latency and work come after the last byte.
  void end(std::size_t i) {
    const Transfer& transfer = transfers_[i];
    const Ns latency = machine_.route(transfer.from, transfer.to).latency_ns;
    ends_[i] = std::max(begins_[i] + transfer.work_ns, transfer.bytes == 0 ? 0 : now_ + latency);
  }

  /// In the order of their numbers: what comes after others has a higher one.
  void begin_those_ready() {
    std::vector<std::size_t> still;
    for (const std::size_t i : waiting_) {
      if (ready(i) > now_) {
        still.push_back(i);
        continue;
      }
      begins_[i] = now_;
      if (transfers_[i].bytes == 0 || route_of(i).empty())
        end(i);
      else
        moving_.push_back(i);
    }
    waiting_ = std::move(still);
  }

  std::vector<double> rates_now() const {
    std::vector<int> passing(machine_.links().size());
    for (const std::size_t i : moving_)
      for (const std::size_t link : route_of(i)) ++passing[machine_.links()[link].capacity];
    std::vector<double> rates;
    for (const std::size_t i : moving_) {
      double rate = kNever;
      for (const std::size_t link : route_of(i))
        rate = std::min(rate, machine_.links()[link].gbps / passing[machine_.links()[link].capacity]);
      rates.push_back(rate);
    }
    return rates;
  }
  const std::vector<std::size_t>& route_of(std::size_t i) const {
    return machine_.route(transfers_[i].from, transfers_[i].to).links;
  }

  Ns finish(std::size_t i, double rate) const { return now_ + std::max(left_[i], 0.) / rate; }

  /// No further than the next finish, which is one of these: so at least one ends, however times are rounded.
  void advance(Ns to, const std::vector<double>& rates) {
    std::vector<std::size_t> still, ending;
    for (std::size_t k = 0; k < moving_.size(); ++k) {
      const std::size_t i = moving_[k];
      (finish(i, rates[k]) <= to ? ending : still).push_back(i);
      left_[i] -= rates[k] * (to - now_);
    }
    now_ = to;
    for (const std::size_t i : ending) end(i);
    moving_ = std::move(still);
  }

  const Machine& machine_;
  std::span<const Transfer> transfers_;
  std::uint64_t first_;
  Ns before_ns_, now_ = 0;
  std::vector<double> left_;
  std::vector<Ns> begins_, ends_;
  std::vector<std::size_t> waiting_, moving_;
};

}  // namespace

std::vector<Ns> ends_of(const Machine& machine, std::span<const Transfer> transfers, std::uint64_t first,
                        Ns before_ns) {
  return Fluid(machine, transfers, first, before_ns).run();
}

void VirtualClock::spend(Ns ns) noexcept {
  Ns now = now_.load(std::memory_order_relaxed);
  while (!now_.compare_exchange_weak(now, now + std::max(ns, 0.), std::memory_order_relaxed)) {
  }
}
void VirtualClock::wait_until(Ns ns) noexcept {
  Ns now = now_.load(std::memory_order_relaxed);
  while (now < ns && !now_.compare_exchange_weak(now, ns, std::memory_order_relaxed)) {
  }
}

VirtualClock::Ticket VirtualClock::enqueue(const Operation& operation, Ns earliest, Ticket after,
                                           Ticket and_after) {
  std::vector<Transfer> transfers;
  for (const Move& move : operation.moves)
    transfers.push_back({.from = static_cast<std::uint32_t>(machine_.index_of(move.from)),
                         .to = static_cast<std::uint32_t>(machine_.index_of(move.to)),
                         .bytes = move.bytes,
                         .after = {}});
  if (transfers.empty()) transfers.emplace_back();
  if (transfers.size() > SharedState::kTransfers / 2)
    throw std::length_error("an operation of so many moves: put them into several");
  const SharedState::Lock lock(state_);
  SharedState::Header& header = state_.header();
  for (const Ticket& ticket : {after, and_after})
    if (ticket.first + ticket.count > header.next) throw std::invalid_argument("a ticket of nobody");
  if (header.next + transfers.size() - header.first > SharedState::kTransfers) forget_half();
  const Ticket ticket{header.next, transfers.size()};
  for (Transfer& transfer : transfers) {
    transfer.earliest_ns = earliest;
    transfer.work_ns = operation.work_ns;
    transfer.after[0] = after;
    transfer.after[1] = and_after;
    header.transfers[header.next++ % SharedState::kTransfers] = transfer;
  }
  return ticket;
}

/// With the lock.
std::vector<Transfer> VirtualClock::kept() const {
  const SharedState::Header& header = state_.header();
  std::vector<Transfer> transfers;
  for (std::uint64_t number = header.first; number < header.next; ++number)
    transfers.push_back(header.transfers[number % SharedState::kTransfers]);
  return transfers;
}

/// With the lock. Those that stay no longer share links with those that go.
void VirtualClock::forget_half() {
  SharedState::Header& header = state_.header();
  const std::vector<Ns> ends = ends_of(machine_, kept(), header.first, header.before_ns);
  const std::ptrdiff_t half = std::ssize(ends) / 2;
  header.before_ns = std::max(header.before_ns, *std::max_element(ends.begin(), ends.begin() + half));
  header.first += static_cast<std::uint64_t>(half);
}

Ns VirtualClock::end_of(Ticket ticket) const {
  const SharedState::Lock lock(state_);
  const SharedState::Header& header = state_.header();
  const std::vector<Ns> ends = ends_of(machine_, kept(), header.first, header.before_ns);
  Ns last = 0;
  for (std::uint64_t number = ticket.first; number < ticket.first + ticket.count; ++number)
    last = std::max(last, number < header.first ? header.before_ns : ends[number - header.first]);
  return last;
}

Ns VirtualClock::arrived(Place memory) const {
  const SharedState::Lock lock(state_);
  const SharedState::Header& header = state_.header();
  const std::vector<Transfer> transfers = kept();
  const std::vector<Ns> ends = ends_of(machine_, transfers, header.first, header.before_ns);
  Ns last = 0;
  for (std::size_t i = 0; i < transfers.size(); ++i)
    if (transfers[i].to == machine_.index_of(memory) && transfers[i].bytes > 0)
      last = std::max(last, ends[i]);
  return last;
}

}  // namespace virtual_gpu::machine
