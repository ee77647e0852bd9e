// Collectives that move data: with contiguous types, types with gaps, negative lower bounds and mixed basic
// types, which may differ from rank to rank. Everything of a result buffer is compared: gaps and surroundings
// must not change.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/mpi/conformance/conformance.hpp"

namespace loom::conformance {
namespace {

enum class Kind { kInts, kGaps, kNegative, kStruct, kLong };

/// A unit of three values. Those of the first three kinds have one signature, so ranks may mix them.
class Layout {
 public:
  explicit Layout(Kind kind) : kind_(kind) {
    const int one = sizeof(int);
    switch (kind) {
      case Kind::kInts:
        offsets_ = {0, one, 2 * one};
        extent_ = 3 * one;
        break;
      case Kind::kGaps:
        offsets_ = {0, 2 * one, 4 * one};
        extent_ = 7 * one;
        break;
      case Kind::kNegative:
        offsets_ = {-2 * one, one, 3 * one};
        extent_ = 6 * one;
        lowest_ = -2 * one;
        break;
      case Kind::kStruct:
        offsets_ = {0, 8, 17};
        sizes_ = {1, 8, 2};
        types_ = {MPI_SIGNED_CHAR, MPI_INT64_T, MPI_SHORT};
        extent_ = 24;
        break;
      case Kind::kLong:  // with the longest basic type that there is
        offsets_ = {0, 16, 50};
        sizes_ = {1, sizeof(long double) * 2, 2};
        types_ = {MPI_SIGNED_CHAR, MPI_C_LONG_DOUBLE_COMPLEX, MPI_SHORT};
        extent_ = 64;
        break;
    }
    if (kind == Kind::kInts) return;
    MPI_Datatype bare;
    std::array<int, 3> ones{1, 1, 1};
    MPI_Type_create_struct(3, ones.data(), offsets_.data(), types_.data(), &bare);
    MPI_Type_create_resized(bare, lowest_, extent_, &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&bare);
  }
  ~Layout() {
    if (kind_ != Kind::kInts) MPI_Type_free(&type_);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  MPI_Datatype type() const { return type_; }
  /// How many elements of type() `units` units are.
  int count(int units) const { return kind_ == Kind::kInts ? 3 * units : units; }
  MPI_Aint extent() const { return extent_; }
  MPI_Aint lowest() const { return lowest_; }
  void put(std::byte* unit, std::int64_t value) const {
    for (std::size_t k = 0; k < 3; ++k) {
      const std::int64_t atom = (value * 3 + static_cast<std::int64_t>(k)) % 113;
      for (std::size_t at = 0; at < sizes_[k]; at += sizeof(atom))
        std::memcpy(unit + offsets_[k] + at, &atom, std::min(sizeof(atom), sizes_[k] - at));
    }
  }

 private:
  Kind kind_;
  std::array<MPI_Aint, 3> offsets_{};
  std::array<std::size_t, 3> sizes_{sizeof(int), sizeof(int), sizeof(int)};
  std::array<MPI_Datatype, 3> types_{MPI_INT, MPI_INT, MPI_INT};
  MPI_Aint extent_ = 0, lowest_ = 0;
  MPI_Datatype type_ = MPI_INT;
};

/// Units of a layout between two guards, in memory of any kind, and what they ought to be.
class Buffer {
 public:
  Buffer(const Layout& layout, int units)
      : layout_(layout),
        bytes_(static_cast<std::size_t>(layout.extent()) * static_cast<std::size_t>(units) + 2 * kGuard),
        memory_(bytes_) {
    clear();
  }
  void* data() { return memory_.address() + kGuard; }
  void clear() {
    memory_.mirror.assign(bytes_, std::byte{0xee});
    expected_.assign(bytes_, std::byte{0xee});
  }
  /// Moves the filled-in data to where the call finds them.
  void upload() { memory_.upload(); }
  /// An operand: there before the call, and expected to be there afterwards.
  void fill(int unit, std::int64_t value) {
    layout_.put(address(memory_.mirror, unit), value);
    expect(unit, value);
  }
  void expect(int unit, std::int64_t value) { layout_.put(address(expected_, unit), value); }
  bool right() {
    memory_.download();
    return memory_.mirror == expected_;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  std::byte* address(std::vector<std::byte>& bytes, int unit) {
    return bytes.data() + kGuard + static_cast<std::ptrdiff_t>(layout_.extent()) * unit;
  }
  const Layout& layout_;
  std::size_t bytes_;
  mpi::Memory memory_;
  std::vector<std::byte> expected_;
};

/// What the unit `i` of the block from one rank to another holds.
std::int64_t value(int from, int to, int i) {
  return from * 31 + to * 17 + i % 89;
}

/// Blocks of one side of a v form: counts and displacements in elements and in bytes, spaced and not in
/// order.
struct Blocks {
  std::vector<int> units, first;  ///< by rank
  std::vector<Count> counts;
  std::vector<Displacement> disps, byte_disps;
  std::vector<MPI_Datatype> types;
  int all = 0;

  Blocks(const Layout& layout, const std::vector<int>& units_of, bool apart)
      : units(units_of), first(units_of.size()), types(units_of.size(), layout.type()) {
    for (std::size_t k = units.size(); k-- > 0;) {  // the last rank's block comes first
      first[k] = all;
      all += units[k] + (apart ? 2 : 0);
    }
    for (std::size_t k = 0; k < units.size(); ++k) {
      counts.push_back(layout.count(units[k]));
      disps.push_back(layout.count(first[k]));
      byte_disps.push_back(static_cast<Displacement>(layout.extent()) * first[k]);
    }
  }
};

struct Case {
  Run& run;
  Form form;
  Kind kind;
  bool in_place;
  int count, root;

  /// This rank's layout: ranks differ, save for structs, whose signature is their own.
  Kind kind_of(int rank) const {
    return kind == Kind::kGaps || kind == Kind::kNegative
               ? static_cast<Kind>((rank + static_cast<int>(kind)) % 3)
               : kind;
  }
};

/// Units that pass from one rank to another in the v forms; symmetric where the exchange is in place.
int unequal(const Case& c, int from, int to) {
  const int a = c.in_place ? std::min(from, to) : from, b = c.in_place ? std::max(from, to) : to;
  switch ((a * 3 + b) % 4) {
    case 0:
      return c.count;
    case 1:
      return 0;
    case 2:
      return c.count / 2 + 1;
    default:
      return c.count + 3;
  }
}
/// Units of a rank's one block.
int own_units(const Case& c, int rank) {
  return unequal(c, rank, 2 * rank);
}

template <class Function>
std::vector<int> for_ranks(const Run& run, Function&& function) {
  std::vector<int> result;
  for (int rank = 0; rank < run.ranks; ++rank) result.push_back(function(rank));
  return result;
}

bool bcast(const Case& c) {
  const Layout layout(c.kind_of(c.run.rank));
  Buffer buffer(layout, c.count);
  const auto refill = [&] {
    buffer.clear();
    for (int i = 0; i < c.count; ++i) {
      if (c.run.rank == c.root) buffer.fill(i, value(c.root, 0, i));
      buffer.expect(i, value(c.root, 0, i));
    }
    buffer.upload();
  };
  LOOM_CALL(c.form, refill, Bcast, bcast, buffer.data(), layout.count(c.count), layout.type(), c.root,
            c.run.comm);
  return buffer.right();
}

/// All-gather and gather, with equal blocks and as v forms.
bool gather_like(const Case& c, bool everywhere, bool v) {
  const auto [me, ranks] = std::pair(c.run.rank, c.run.ranks);
  const bool receives = everywhere || me == c.root;
  const bool in_place = c.in_place && receives;
  const Layout in_layout(c.kind_of(me)), out_layout(in_place ? c.kind_of(me) : c.kind_of(me + 1));
  const auto units = [&](int rank) { return v ? own_units(c, rank) : c.count; };
  const int mine = units(me);
  Blocks blocks(out_layout, for_ranks(c.run, units), v);
  if (!v)  // in order, close together
    for (int rank = 0; rank < ranks; ++rank) blocks.first[static_cast<std::size_t>(rank)] = rank * c.count;
  Buffer in(in_layout, mine), out(out_layout, receives ? blocks.all : 0);
  const auto refill = [&] {
    in.clear();
    out.clear();
    for (int i = 0; i < mine; ++i) in.fill(i, value(me, 0, i));
    for (int from = 0; receives && from < ranks; ++from)
      for (int i = 0; i < units(from); ++i) {
        const int at = blocks.first[static_cast<std::size_t>(from)] + i;
        if (in_place && from == me) out.fill(at, value(me, 0, i));
        out.expect(at, value(from, 0, i));
      }
    in.upload();
    out.upload();
  };
  void* const send = in_place ? MPI_IN_PLACE : in.data();
  const int send_count = in_layout.count(mine), recv_count = out_layout.count(c.count);
  if (everywhere && v)
    LOOM_CALL(c.form, refill, Allgatherv, allgatherv, send, send_count, in_layout.type(), out.data(),
              blocks.counts.data(), blocks.disps.data(), out_layout.type(), c.run.comm);
  else if (everywhere)
    LOOM_CALL(c.form, refill, Allgather, allgather, send, send_count, in_layout.type(), out.data(),
              recv_count, out_layout.type(), c.run.comm);
  else if (v && receives)
    LOOM_CALL(c.form, refill, Gatherv, gatherv, send, send_count, in_layout.type(), out.data(),
              blocks.counts.data(), blocks.disps.data(), out_layout.type(), c.root, c.run.comm);
  else if (v)
    LOOM_CALL(c.form, refill, Gatherv, gatherv, send, send_count, in_layout.type(), nullptr, nullptr, nullptr,
              MPI_DATATYPE_NULL, c.root, c.run.comm);
  else if (receives)
    LOOM_CALL(c.form, refill, Gather, gather, send, send_count, in_layout.type(), out.data(), recv_count,
              out_layout.type(), c.root, c.run.comm);
  else
    LOOM_CALL(c.form, refill, Gather, gather, send, send_count, in_layout.type(), nullptr, 0,
              MPI_DATATYPE_NULL, c.root, c.run.comm);
  return in.right() && out.right();
}

bool scatter_like(const Case& c, bool v) {
  const auto [me, ranks] = std::pair(c.run.rank, c.run.ranks);
  const bool is_root = me == c.root, in_place = c.in_place && is_root;
  const Layout in_layout(c.kind_of(me)), out_layout(c.kind_of(me + 1));
  const auto units = [&](int rank) { return v ? own_units(c, rank) : c.count; };
  Blocks blocks(in_layout, for_ranks(c.run, units), v);
  if (!v)
    for (int rank = 0; rank < ranks; ++rank) blocks.first[static_cast<std::size_t>(rank)] = rank * c.count;
  const int mine = units(me);
  Buffer in(in_layout, is_root ? blocks.all : 0), out(out_layout, in_place ? 0 : mine);
  const auto refill = [&] {
    in.clear();
    out.clear();
    for (int to = 0; is_root && to < ranks; ++to)
      for (int i = 0; i < units(to); ++i)
        in.fill(blocks.first[static_cast<std::size_t>(to)] + i, value(c.root, to, i));
    for (int i = 0; !in_place && i < mine; ++i) out.expect(i, value(c.root, me, i));
    in.upload();
    out.upload();
  };
  void* const recv = in_place ? MPI_IN_PLACE : out.data();
  const int recv_count = out_layout.count(mine);
  if (v && is_root)
    LOOM_CALL(c.form, refill, Scatterv, scatterv, in.data(), blocks.counts.data(), blocks.disps.data(),
              in_layout.type(), recv, recv_count, out_layout.type(), c.root, c.run.comm);
  else if (v)
    LOOM_CALL(c.form, refill, Scatterv, scatterv, nullptr, nullptr, nullptr, MPI_DATATYPE_NULL, recv,
              recv_count, out_layout.type(), c.root, c.run.comm);
  else if (is_root)
    LOOM_CALL(c.form, refill, Scatter, scatter, in.data(), in_layout.count(c.count), in_layout.type(), recv,
              recv_count, out_layout.type(), c.root, c.run.comm);
  else
    LOOM_CALL(c.form, refill, Scatter, scatter, nullptr, 0, MPI_DATATYPE_NULL, recv, recv_count,
              out_layout.type(), c.root, c.run.comm);
  return in.right() && out.right();
}

enum class Exchange { kEqual, kV, kW };

bool all_to_all(const Case& c, Exchange exchange) {
  const auto [me, ranks] = std::pair(c.run.rank, c.run.ranks);
  const bool v = exchange != Exchange::kEqual;
  const Layout in_layout(c.kind_of(me)), out_layout(c.in_place ? c.kind_of(me) : c.kind_of(me + 1));
  const auto units = [&](int from, int to) { return v ? unequal(c, from, to) : c.count; };
  Blocks sent(in_layout, for_ranks(c.run, [&](int to) { return units(me, to); }), v);
  Blocks received(out_layout, for_ranks(c.run, [&](int from) { return units(from, me); }), v);
  if (!v)
    for (int rank = 0; rank < ranks; ++rank)
      sent.first[static_cast<std::size_t>(rank)] = received.first[static_cast<std::size_t>(rank)] =
          rank * c.count;
  Buffer in(in_layout, c.in_place ? 0 : sent.all), out(out_layout, received.all);
  const auto refill = [&] {
    in.clear();
    out.clear();
    for (int peer = 0; peer < ranks; ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      for (int i = 0; i < units(me, peer); ++i)
        (c.in_place ? out : in).fill((c.in_place ? received : sent).first[p] + i, value(me, peer, i));
    }
    for (int from = 0; from < ranks; ++from)
      for (int i = 0; i < units(from, me); ++i)
        out.expect(received.first[static_cast<std::size_t>(from)] + i, value(from, me, i));
    in.upload();
    out.upload();
  };
  void* const send = c.in_place ? MPI_IN_PLACE : in.data();
  switch (exchange) {
    case Exchange::kEqual:
      LOOM_CALL(c.form, refill, Alltoall, alltoall, send, in_layout.count(c.count), in_layout.type(),
                out.data(), out_layout.count(c.count), out_layout.type(), c.run.comm);
      break;
    case Exchange::kV:
      LOOM_CALL(c.form, refill, Alltoallv, alltoallv, send, sent.counts.data(), sent.disps.data(),
                in_layout.type(), out.data(), received.counts.data(), received.disps.data(),
                out_layout.type(), c.run.comm);
      break;
    case Exchange::kW:
      LOOM_CALL(c.form, refill, Alltoallw, alltoallw, send, sent.counts.data(), sent.byte_disps.data(),
                sent.types.data(), out.data(), received.counts.data(), received.byte_disps.data(),
                received.types.data(), c.run.comm);
      break;
  }
  return in.right() && out.right();
}

/// Whether ranks read the same clock: those of one machine, whatever their host names.
bool one_clock(const Run& run) {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  const auto mine = static_cast<std::int64_t>(std::hash<std::string>()(boot) >> 1);
  std::int64_t extremes[2] = {mine, -mine};
  MPI_Allreduce(MPI_IN_PLACE, extremes, 2, MPI_INT64_T, MPI_MAX, run.comm);
  return extremes[0] == -extremes[1];
}

/// No rank leaves before the last one, here `late`, has come.
bool barrier(const Run& run, Form form, int late) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point came;
  const auto come = [&] {
    if (run.rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    came = Clock::now();
  };
  LOOM_CALL(form, come, Barrier, barrier, run.comm);
  const std::int64_t left = Clock::now().time_since_epoch().count();
  std::int64_t last = came.time_since_epoch().count();
  MPI_Allreduce(MPI_IN_PLACE, &last, 1, MPI_INT64_T, MPI_MAX, run.comm);
  return left >= last;
}

const struct Moving {
  const char* name;
  bool has_in_place, rooted;
  std::function<bool(const Case&)> call;
} kMoving[] = {
    {"bcast", false, true, bcast},
    {"allgather", true, false, [](const Case& c) { return gather_like(c, true, false); }},
    {"allgatherv", true, false, [](const Case& c) { return gather_like(c, true, true); }},
    {"gather", true, true, [](const Case& c) { return gather_like(c, false, false); }},
    {"gatherv", true, true, [](const Case& c) { return gather_like(c, false, true); }},
    {"scatter", true, true, [](const Case& c) { return scatter_like(c, false); }},
    {"scatterv", true, true, [](const Case& c) { return scatter_like(c, true); }},
    {"alltoall", true, false, [](const Case& c) { return all_to_all(c, Exchange::kEqual); }},
    {"alltoallv", true, false, [](const Case& c) { return all_to_all(c, Exchange::kV); }},
    {"alltoallw", true, false, [](const Case& c) { return all_to_all(c, Exchange::kW); }},
};

}  // namespace

void run_moving(Run& run) {
  for (const Moving& collective : kMoving) {
    if (!run.takes(collective.name)) continue;
    for (const Form form : kForms)
      for (const Kind kind : {Kind::kInts, Kind::kGaps, Kind::kNegative, Kind::kStruct})
        for (const bool in_place : {false, true})
          for (const int count : run.counts())
            for (const int root : {0, run.ranks - 1}) {
              if (!run.takes(form) || (in_place && !collective.has_in_place)) continue;
              if (root > 0 && !collective.rooted) continue;
              if (!run.draw()) continue;
              const bool is_long = run.settings.long_elements && kind == Kind::kStruct;
              const Case one{run, form, is_long ? Kind::kLong : kind, in_place, count, root};
              run.judge(collective.call(one), collective.name, form,
                        loom::format("layout {}, {} units, root {}{}", static_cast<int>(one.kind), count, root,
                                     in_place ? ", in place" : ""));
            }
  }
  if (!run.takes("barrier")) return;
  const bool comparable = one_clock(run);
  for (const Form form : kForms)
    for (int late = 0; late < run.ranks && run.takes(form); ++late)
      run.judge(barrier(run, form, late) || !comparable, "barrier", form,
                loom::format("left before rank {} came", late));
}

}  // namespace loom::conformance
