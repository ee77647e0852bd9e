// immediate_calls.cpp -- calls by immediate exchanges, and what ranks tell each other before others.
#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "component/execute/execution.hpp"

namespace loom {

void Execution::announce(const device::Call& call, device::CallFamily family) {
  if (!links_.immediate) return;
  device::Waiter waiter(wait_policy_);
  try {
    links_.immediate->announce(call, family, waiter);
  } catch (...) {
    fail_immediate();
  }
}

template <class Exchange>
void Execution::exchange_immediately(const device::Call& call, Exchange& exchange) {
  device::Waiter waiter(wait_policy_);
  try {
    if (call.in_packer == nullptr && call.out_packer == nullptr) [[likely]]
      exchange.perform(call, waiter);
    else
      pack_and_exchange(call, exchange, waiter, call.bytes());
  } catch (...) {
    fail_immediate();
  }
}

/// A small call with non-contiguous buffers: they are packed on the stack. A long broadcast goes piece by
/// piece, cut as ranks with contiguous buffers cut it. No other immediate call is longer than an offer.
template <class Exchange>
void Execution::pack_and_exchange(const device::Call& call, Exchange& exchange, device::Waiter& waiter,
                                  std::size_t call_bytes) {
  using device::Collective;
  constexpr std::size_t kMostBytes = device::ImmediateArea::kMostOffered;
  alignas(device::kCacheLine) std::byte in[kMostBytes], out[device::ImmediateArea::kMostPackedResult];
  const bool many_in = call.collective == Collective::kAllToAll;
  const bool many_out = many_in || call.collective == Collective::kAllGather;
  const bool bcast = call.collective == Collective::kBroadcast;
  if (const std::size_t most = device::ImmediateArea::kMostOffered; bcast && call.bytes() > most) {
    device::Call piece = call;
    piece.type = device::Type::kUint8;
    for (std::size_t at = 0; at < call.bytes(); at += most) {
      if (call.in != nullptr) piece.in = call.in + at;
      if (call.out != nullptr) piece.out = call.out + at;
      piece.count = std::min(most, call.bytes() - at);
      pack_and_exchange(piece, exchange, waiter, call_bytes);
      waiter.moved();
    }
    return;
  }
  const auto ranks = static_cast<std::size_t>(links_.immediate->size());
  const std::size_t in_blocks = many_in ? ranks : 1, out_blocks = many_out ? ranks : 1;
  if (in_blocks * call.bytes() > sizeof(in) || out_blocks * call.bytes() > sizeof(out))
    throw Error(ErrorCode::kInternal, "A non-contiguous message is too large for an immediate exchange.");
  const bool sends = !bcast || member_.rank == call.root, receives = !bcast || member_.rank != call.root;
  device::Call packed = call;
  if (call.in_packer != nullptr) {
    for (std::size_t block = 0; sends && block < in_blocks; ++block)
      call.in_packer->move(call.in_packer->context, static_cast<int>(block), in + block * call.bytes(),
                           call.bytes());
    packed.in = in;
  }
  if (call.out_packer != nullptr) packed.out = out;
  exchange.perform_part(packed, call_bytes, waiter);
  if (call.out_packer == nullptr || !receives) return;
  for (std::size_t block = 0; block < out_blocks; ++block)
    call.out_packer->move(call.out_packer->context, static_cast<int>(block), out + block * call.bytes(),
                          call.bytes());
}

template void Execution::exchange_immediately(const device::Call&, device::ImmediateExchange&);
template void Execution::exchange_immediately(const device::Call&, device::TieredExchange&);

device::Call combination(device::Op op, std::span<std::uint64_t> words) {
  const auto there = std::as_writable_bytes(words);
  return {.collective = device::Collective::kAllreduce,
          .in = there.data(),
          .out = there.data(),
          .count = words.size(),
          .type = device::Type::kUint64,
          .op = op};
}

/// What links of any communicator carry, and not what the user's rules name: those are for the program's
/// calls, and may leave them to others.
Algorithm Execution::combines_by() const {
  const connect::Shape& shape = group().wiring.shape;
  return shape.hosts == 1 ? Algorithm::kCico : may_use_hier(shape) ? Algorithm::kHier : Algorithm::kRing;
}

void Execution::combine(device::Op op, std::span<std::uint64_t> words) {
  const device::Call call = combination(op, words);
  if (links_.immediate)
    exchange_immediately(call, *links_.immediate);
  else
    perform(combines_by(), call);
}

/// As combines_by().
void Execution::gather(const void* mine, void* all, std::size_t bytes) {
  perform(group().wiring.shape.hosts == 1 ? Algorithm::kCico : Algorithm::kRing,
          {.collective = device::Collective::kAllGather,
           .in = static_cast<const std::byte*>(mine),
           .out = static_cast<std::byte*>(all),
           .count = bytes});
}

std::uint64_t Execution::largest(std::uint64_t mine) {
  combine(device::Op::kMax, std::span(&mine, 1));
  return mine;
}

bool Execution::all_have(std::uint64_t word) {
  std::array words{word, ~word};
  combine(device::Op::kMax, words);
  return word != 0 && words[0] == word && words[1] == ~word;
}

Execution::Lacking Execution::who_lacks(std::uint64_t word, bool here) {
  const std::uint64_t bit = std::uint64_t{1} << std::min(member_.rank, 63);
  // Words that are the same have no bit in common with their complement; 0 stands for one that none has.
  std::array words{word != 0 ? word : ~word, ~word, here ? 0 : bit};
  combine(device::Op::kBor, words);
  return {(words[0] & words[1]) == 0, words[2]};
}

Execution::Lacking Execution::who_lacks(std::uint64_t word, bool here, std::uint64_t pairs) {
  static_assert(device::cuda::kMostExchanging <= 64, "each rank has a bit of its own");
  const auto ranks = static_cast<std::uint64_t>(group().wiring.shape.ranks);
  std::array words{word, here ? 0 : std::uint64_t{1} << member_.rank, pairs};
  combine(device::Op::kSum, words);
  return {word != 0 && words[0] == ranks * word && words[2] == 0, words[1]};
}

void Execution::fail_immediate() const {
  try {
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(error.code(), loom::format("{} Waiting for {}.", error.what(),
                                           group().names.at(links_.immediate->awaited())));
  }
}

}  // namespace loom
