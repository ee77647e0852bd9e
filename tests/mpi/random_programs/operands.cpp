#include "tests/mpi/random_programs/operands.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/format.hpp"
#include "tests/mpi/random_programs/draw.hpp"

namespace loom::random_programs {
namespace {

constexpr std::byte kPoison{0xee};

bool has_unequal_blocks(Collective collective) {
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kAllgatherv:
    case Collective::kGatherv:
    case Collective::kScatterv:
    case Collective::kAlltoallv:
    case Collective::kAlltoallw:
      return true;
    default:
      return false;
  }
}

}  // namespace

Operands::Operands(const Call& call, const Place& place, const UserOperations& operations, std::uint64_t name,
                   const std::string& memory)
    : call_(call),
      place_(place),
      name_(name),
      memory_(memory),
      op_(operations.of(call.operation)),
      equal_(!has_unequal_blocks(call.collective)),
      in_{Layout(call.element, drawn(kLayout, 0, place.rank)), "send buffer"},
      out_{Layout(call.element, drawn(kLayout, 1, place.rank)), "receive buffer"} {
  const std::size_t blocks = has_blocks(call.collective) ? static_cast<std::size_t>(place.ranks) : 1;
  count_ = static_cast<int>(call.bytes / Layout::data_bytes(call.element) / blocks);
  lay_out();
  allocate(in_);
  allocate(out_);
}

std::uint64_t Operands::drawn(std::uint64_t use, int a, int b) const {
  return hash({name_, use, static_cast<std::uint64_t>(place_.group), static_cast<std::uint64_t>(a),
               static_cast<std::uint64_t>(b)});
}

/// In place, what two ranks exchange is equally long.
int Operands::units_between(int from, int to) const {
  if (equal_) return count_;
  const bool exchanges =
      call_.collective == Collective::kAlltoallv || call_.collective == Collective::kAlltoallw;
  if (exchanges && call_.in_place && from > to) std::swap(from, to);
  const std::uint64_t which = drawn(kUnits, from, to);
  switch (which % 4) {
    case 0:
      return 0;
    case 1:
      return count_ / 2;
    case 2:
      return static_cast<int>(which / 4 % (static_cast<std::uint64_t>(count_) + 1));
    default:
      return count_;
  }
}

/// Blocks apart lie in any order, with some room between them.
Operands::Blocks Operands::place_blocks(Side& side, bool apart, const std::vector<int>& units,
                                        std::vector<std::size_t>& first) const {
  std::vector<int> order(units.size());
  std::iota(order.begin(), order.end(), 0);
  const int which = &side == &in_ ? 0 : 1;
  const auto key = [&](int peer) { return drawn(kPlace, which, place_.rank * 1000 + peer); };
  if (apart) std::sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
  first.assign(units.size(), 0);
  std::size_t at = 0;
  for (const int peer : order) {
    if (apart) at += key(peer) / 7 % 3;
    first[static_cast<std::size_t>(peer)] = at;
    at += static_cast<std::size_t>(units[static_cast<std::size_t>(peer)]);
  }
  Blocks blocks;
  for (std::size_t peer = 0; peer < units.size(); ++peer) {
    blocks.counts.push_back(units[peer]);
    blocks.disps.push_back(static_cast<int>(first[peer]));
    blocks.byte_disps.push_back(static_cast<int>(first[peer] * side.layout.extent()));
    blocks.types.push_back(side.layout.type());
  }
  return blocks;
}

void Operands::lay_out() {
  const auto units = static_cast<std::size_t>(count_);
  if (call_.collective == Collective::kBarrier) return;
  if (reduces(call_.collective)) return lay_out_reduction();
  switch (call_.collective) {
    case Collective::kBcast: {
      const int root = call_.root % place_.ranks;
      out_.name = "buffer";
      out_.blocks.push_back({.units = units, .before = place_.rank == root, .after = true, .from = root});
      break;
    }
    case Collective::kAllgather:
    case Collective::kAllgatherv:
    case Collective::kGather:
    case Collective::kGatherv:
      return lay_out_gather();
    case Collective::kScatter:
    case Collective::kScatterv:
      return lay_out_scatter();
    default:
      return lay_out_exchange();
  }
}

void Operands::lay_out_reduction() {
  const auto units = static_cast<std::size_t>(count_);
  const bool is_root = place_.rank == call_.root % place_.ranks;
  const bool receives = call_.collective != Collective::kReduce || is_root;
  in_place_ = call_.in_place && receives;
  Block in{.units = units, .before = true, .after = true, .from = place_.rank},
      out{.units = units, .after = true};
  out.operands = call_.collective == Collective::kScan     ? place_.rank + 1
                 : call_.collective == Collective::kExscan ? place_.rank
                                                           : place_.ranks;
  if (has_blocks(call_.collective)) {
    received_ = {};
    in.units = 0;
    for (int rank = 0; rank < place_.ranks; ++rank) {
      received_.counts.push_back(units_between(rank, rank));
      if (rank < place_.rank) out.offset += static_cast<std::size_t>(received_.counts.back());
      in.units += static_cast<std::size_t>(received_.counts.back());
    }
    out.units = static_cast<std::size_t>(received_.counts[static_cast<std::size_t>(place_.rank)]);
  }
  if (in_place_) {
    in.after = false;
    in.anything = true;  // behind the result; the result's block comes after this one
    out_.blocks.push_back(in);
  } else {
    in_.blocks.push_back(in);
  }
  if (out.operands == 0) {  // exscan on the first rank
    out.after = false;
    out.anything = true;
  }
  if (receives) out_.blocks.push_back(out);
}

void Operands::lay_out_gather() {
  const bool everywhere =
      call_.collective == Collective::kAllgather || call_.collective == Collective::kAllgatherv;
  const bool receives = everywhere || place_.rank == call_.root % place_.ranks;
  in_place_ = call_.in_place && receives;
  if (!in_place_)
    in_.blocks.push_back({.units = static_cast<std::size_t>(units_between(place_.rank, 0)),
                          .before = true,
                          .after = true,
                          .from = place_.rank});
  if (!receives) return;
  std::vector<int> units;
  std::vector<std::size_t> first;
  units.reserve(static_cast<std::size_t>(place_.ranks));
  for (int from = 0; from < place_.ranks; ++from) units.push_back(units_between(from, 0));
  received_ = place_blocks(out_, !equal_, units, first);
  for (int from = 0; from < place_.ranks; ++from)
    out_.blocks.push_back({.first = first[static_cast<std::size_t>(from)],
                           .units = static_cast<std::size_t>(units[static_cast<std::size_t>(from)]),
                           .before = in_place_ && from == place_.rank,
                           .after = true,
                           .from = from});
}

void Operands::lay_out_scatter() {
  const int root = call_.root % place_.ranks;
  in_place_ = call_.in_place && place_.rank == root;
  if (!in_place_)
    out_.blocks.push_back({.units = static_cast<std::size_t>(units_between(0, place_.rank)),
                           .after = true,
                           .from = root,
                           .to = place_.rank});
  if (place_.rank != root) return;
  std::vector<int> units;
  std::vector<std::size_t> first;
  units.reserve(static_cast<std::size_t>(place_.ranks));
  for (int to = 0; to < place_.ranks; ++to) units.push_back(units_between(0, to));
  sent_ = place_blocks(in_, !equal_, units, first);
  for (int to = 0; to < place_.ranks; ++to)
    in_.blocks.push_back({.first = first[static_cast<std::size_t>(to)],
                          .units = static_cast<std::size_t>(units[static_cast<std::size_t>(to)]),
                          .before = true,
                          .after = true,
                          .from = root,
                          .to = to});
}

void Operands::lay_out_exchange() {
  in_place_ = call_.in_place;
  const int me = place_.rank;
  std::vector<int> to_them, from_them;
  std::vector<std::size_t> first_sent, first_received;
  for (int peer = 0; peer < place_.ranks; ++peer) {
    to_them.push_back(units_between(me, peer));
    from_them.push_back(units_between(peer, me));
  }
  // Of one rank, coll/self of Open MPI 4.1 takes the displacements of alltoallw for numbers of elements.
  const bool apart = !equal_ && (place_.ranks > 1 || call_.collective != Collective::kAlltoallw);
  sent_ = place_blocks(in_, apart, to_them, first_sent);
  received_ = place_blocks(out_, apart, from_them, first_received);
  for (int peer = 0; peer < place_.ranks; ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    Block out{.first = first_received[p],
              .units = static_cast<std::size_t>(from_them[p]),
              .after = true,
              .from = peer,
              .to = me};
    Block in{.first = in_place_ ? out.first : first_sent[p],
             .units = static_cast<std::size_t>(to_them[p]),
             .before = true,
             .after = !in_place_,
             .from = me,
             .to = peer};
    (in_place_ ? out_ : in_).blocks.push_back(in);
    out_.blocks.push_back(out);
  }
}

void Operands::allocate(Side& side) {
  std::size_t units = 0;
  for (const Block& block : side.blocks) units = std::max(units, block.first + block.units);
  mpi::set_memory_kinds(memory_, drawn(kMemory, &side == &in_ ? 0 : 1, place_.rank));
  side.memory = std::make_unique<mpi::Memory>(units * side.layout.extent() + 2 * kGuard);
}

/// For operand(): one of each rank that the block's values come from.
std::vector<std::uint64_t> Operands::sources(const Block& block) const {
  std::vector<std::uint64_t> result;
  const auto add = [&](int from) {
    result.push_back(hash({name_, kValues, run_, static_cast<std::uint64_t>(place_.group),
                           static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(block.to)}));
  };
  if (block.operands == 0) add(block.from);
  for (int rank = 0; rank < block.operands; ++rank) add(rank);
  return result;
}

/// What the buffer holds before or after the call; where anything is allowed, what was found.
void Operands::paint(const Side& side, bool after, std::vector<std::byte>& bytes,
                     const std::vector<std::byte>* found) const {
  std::fill(bytes.begin(), bytes.end(), kPoison);
  const std::size_t extent = side.layout.extent();
  for (const Block& block : side.blocks) {
    std::byte* const begin = bytes.data() + kGuard + block.first * extent;
    if (after && block.anything)
      std::copy_n(found->data() + kGuard + block.first * extent, block.units * extent, begin);
    if (!(after ? block.after : block.before)) continue;
    const std::vector<std::uint64_t> from = sources(block);
    for (std::size_t i = 0; i < block.units; ++i) {
      std::uint64_t value = operand(call_.element, from[0], block.offset + i);
      for (std::size_t rank = 1; rank < from.size(); ++rank)
        value = combine(call_.operation, value, operand(call_.element, from[rank], block.offset + i));
      side.layout.put(begin + i * extent, value);
    }
  }
}

void Operands::fill(std::uint64_t run) {
  run_ = run;
  for (Side* side : {&in_, &out_}) {
    paint(*side, false, side->memory->mirror, nullptr);
    side->memory->upload();
  }
}

std::optional<std::string> Operands::wrong() {
  auto first = wrong(out_);
  return first ? first : wrong(in_);
}

std::optional<std::string> Operands::wrong(Side& side) const {
  side.memory->download();
  const std::vector<std::byte>& found = side.memory->mirror;
  std::vector<std::byte> expected(found.size());
  paint(side, true, expected, &found);
  if (found == expected) return std::nullopt;
  const auto at = static_cast<std::size_t>(std::mismatch(found.begin(), found.end(), expected.begin()).first -
                                           found.begin());
  std::size_t differ = 0;
  for (std::size_t i = 0; i < found.size(); ++i) differ += found[i] != expected[i] ? 1 : 0;
  const std::size_t extent = side.layout.extent(), before = side.layout.before();
  for (const Block& block : side.blocks) {
    const std::size_t begin = kGuard + block.first * extent;
    const std::size_t unit = at + before < begin ? block.units : (at + before - begin) / extent;
    if (!block.after || unit >= block.units) continue;
    const std::string is = side.layout.show(found.data() + begin + unit * extent);
    const std::string ought = side.layout.show(expected.data() + begin + unit * extent);
    return loom::format("{}, element {} of {} from {}: is {}, expected {}{}; {} bytes of {} differ",
                        side.name, unit, block.units,
                        block.operands > 0 ? "all" : loom::format("rank {}", block.from), is, ought,
                        is == ought ? ", but a gap has been written to" : "", differ, found.size());
  }
  return loom::format("{}, byte {} of {} outside of all results: is {}, expected {}", side.name,
                      static_cast<std::ptrdiff_t>(at) - static_cast<std::ptrdiff_t>(kGuard),
                      found.size() - 2 * kGuard, static_cast<int>(found[at]), static_cast<int>(expected[at]));
}

}  // namespace loom::random_programs
