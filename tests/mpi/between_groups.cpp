#include "tests/mpi/between_groups.hpp"

#include <algorithm>
#include <vector>

#include "tests/mpi/conformance/conformance.hpp"

namespace loom::mpi_test {
namespace {

using conformance::Form;
using Numbers = std::vector<int>;

/// Element i of the block from a process of one group to one of the other.
int number(bool from_first, int from, int to, int i) {
  return (from_first ? 100'000 : 0) + from * 10'000 + to * 1000 + i % 997;
}

struct Groups {
  MPI_Comm both;
  bool first;
  int rank = 0, here = 0, there = 0;  ///< of this process in its group; processes of its group and the other
  Form form = Form::kBlocking;
  int count = 0;

  std::size_t all() const { return static_cast<std::size_t>(there) * static_cast<std::size_t>(count); }
  Numbers counts() const { return Numbers(static_cast<std::size_t>(there), count); }
  Numbers disps(int bytes) const {
    Numbers result(static_cast<std::size_t>(there));
    for (int of = 0; of < there; ++of) result[static_cast<std::size_t>(of)] = of * count * bytes;
    return result;
  }
  /// Blocks for all of the other group.
  Numbers to_all() const {
    Numbers blocks(all());
    for (int to = 0; to < there; ++to)
      for (int i = 0; i < count; ++i)
        blocks[static_cast<std::size_t>(to * count + i)] = number(first, rank, to, i);
    return blocks;
  }
  /// Whether these are the blocks from all of the other group to this process, or to everybody.
  bool from_all(const Numbers& blocks, bool to_everybody) const {
    for (int from = 0; from < there; ++from)
      for (int i = 0; i < count; ++i)
        if (blocks[static_cast<std::size_t>(from * count + i)] !=
            number(!first, from, to_everybody ? 0 : rank, i))
          return false;
    return true;
  }
};

void nothing() {}

bool all_reduces(const Groups& g) {
  const auto n = static_cast<std::size_t>(g.count);
  Numbers in(n), out(n, -1);
  for (int i = 0; i < g.count; ++i) in[static_cast<std::size_t>(i)] = number(g.first, g.rank, 0, i);
  LOOM_CALL(g.form, nothing, Allreduce, allreduce, in.data(), out.data(), g.count, MPI_INT, MPI_MAX, g.both);
  for (int i = 0; i < g.count; ++i)
    if (out[static_cast<std::size_t>(i)] != number(!g.first, g.there - 1, 0, i)) return false;
  return true;
}

/// Both groups reduce as many elements; each gets the other's sums, dealt out among its processes.
bool reduce_scatters(const Groups& g) {
  const auto part = static_cast<std::size_t>(g.there * g.count),
             total = part * static_cast<std::size_t>(g.here);
  const Numbers in(total, g.rank + 1), counts(static_cast<std::size_t>(g.here), g.there * g.count);
  Numbers out(part, -1);
  const auto right = [&] {
    return std::all_of(out.begin(), out.end(), [&](int sum) { return sum == g.there * (g.there + 1) / 2; });
  };
  LOOM_CALL(g.form, nothing, Reduce_scatter_block, reduce_scatter_block, in.data(), out.data(),
            g.there * g.count, MPI_INT, MPI_SUM, g.both);
  if (!right()) return false;
  out.assign(part, -1);
  LOOM_CALL(g.form, nothing, Reduce_scatter, reduce_scatter, in.data(), out.data(), counts.data(), MPI_INT,
            MPI_SUM, g.both);
  return right();
}

bool all_gathers(const Groups& g) {
  Numbers in(static_cast<std::size_t>(g.count)), out(g.all(), -1);
  const Numbers counts = g.counts(), disps = g.disps(1);
  for (int i = 0; i < g.count; ++i) in[static_cast<std::size_t>(i)] = number(g.first, g.rank, 0, i);
  LOOM_CALL(g.form, nothing, Allgather, allgather, in.data(), g.count, MPI_INT, out.data(), g.count, MPI_INT,
            g.both);
  if (!g.from_all(out, true)) return false;
  out.assign(g.all(), -1);
  LOOM_CALL(g.form, nothing, Allgatherv, allgatherv, in.data(), g.count, MPI_INT, out.data(), counts.data(),
            disps.data(), MPI_INT, g.both);
  return g.from_all(out, true);
}

bool all_to_alls(const Groups& g) {
  const Numbers in = g.to_all(), counts = g.counts(), disps = g.disps(1), bytes = g.disps(sizeof(int));
  const std::vector<MPI_Datatype> types(counts.size(), MPI_INT);
  Numbers out(g.all(), -1);
  LOOM_CALL(g.form, nothing, Alltoall, alltoall, in.data(), g.count, MPI_INT, out.data(), g.count, MPI_INT,
            g.both);
  if (!g.from_all(out, false)) return false;
  out.assign(g.all(), -1);
  LOOM_CALL(g.form, nothing, Alltoallv, alltoallv, in.data(), counts.data(), disps.data(), MPI_INT,
            out.data(), counts.data(), disps.data(), MPI_INT, g.both);
  if (!g.from_all(out, false)) return false;
  out.assign(g.all(), -1);
  LOOM_CALL(g.form, nothing, Alltoallw, alltoallw, in.data(), counts.data(), bytes.data(), types.data(),
            out.data(), counts.data(), bytes.data(), types.data(), g.both);
  return g.from_all(out, false);
}

/// The last of one group is the root, and what it has comes from or goes to the other group.
bool rooted(const Groups& g, bool here_is_root) {
  const int place = here_is_root ? g.here - 1 : g.there - 1;
  const int root = !here_is_root ? place : g.rank == place ? MPI_ROOT : MPI_PROC_NULL;
  const auto n = static_cast<std::size_t>(g.count);
  const bool is_root = root == MPI_ROOT;
  Numbers block(n, -1), all(is_root ? g.all() : 0, -1);
  const Numbers counts = g.counts(), disps = g.disps(1);
  const auto own = [&](int to) {
    for (int i = 0; i < g.count; ++i) block[static_cast<std::size_t>(i)] = number(g.first, g.rank, to, i);
  };
  const auto block_is_right = [&](int to) {
    for (int i = 0; i < g.count; ++i)
      if (block[static_cast<std::size_t>(i)] != number(!g.first, place, to, i)) return false;
    return true;
  };

  if (is_root) own(0);
  LOOM_CALL(g.form, nothing, Bcast, bcast, block.data(), g.count, MPI_INT, root, g.both);
  if (!here_is_root && !block_is_right(0)) return false;

  if (is_root) all = g.to_all();
  LOOM_CALL(g.form, nothing, Scatter, scatter, all.data(), g.count, MPI_INT, block.data(), g.count, MPI_INT,
            root, g.both);
  if (!here_is_root && !block_is_right(g.rank)) return false;
  block.assign(n, -1);
  LOOM_CALL(g.form, nothing, Scatterv, scatterv, all.data(), counts.data(), disps.data(), MPI_INT,
            block.data(), g.count, MPI_INT, root, g.both);
  if (!here_is_root && !block_is_right(g.rank)) return false;

  own(place);
  const auto gathered = [&] {
    for (int from = 0; from < g.there; ++from)
      for (int i = 0; i < g.count; ++i)
        if (all[static_cast<std::size_t>(from * g.count + i)] != number(!g.first, from, place, i))
          return false;
    return true;
  };
  std::fill(all.begin(), all.end(), -1);
  LOOM_CALL(g.form, nothing, Gather, gather, block.data(), g.count, MPI_INT, all.data(), g.count, MPI_INT,
            root, g.both);
  if (is_root && !gathered()) return false;
  std::fill(all.begin(), all.end(), -1);
  LOOM_CALL(g.form, nothing, Gatherv, gatherv, block.data(), g.count, MPI_INT, all.data(), counts.data(),
            disps.data(), MPI_INT, root, g.both);
  if (is_root && !gathered()) return false;

  Numbers largest(n, -1);
  LOOM_CALL(g.form, nothing, Reduce, reduce, block.data(), largest.data(), g.count, MPI_INT, MPI_MAX, root,
            g.both);
  for (int i = 0; is_root && i < g.count; ++i)
    if (largest[static_cast<std::size_t>(i)] != number(!g.first, g.there - 1, place, i)) return false;
  return true;
}

}  // namespace

const char* wrong_between_groups(MPI_Comm both, bool first) {
  Groups g{.both = both, .first = first};
  MPI_Comm_rank(both, &g.rank);
  MPI_Comm_size(both, &g.here);
  MPI_Comm_remote_size(both, &g.there);
  for (const Form form : conformance::kForms)
    for (const int count : {1, 700, 20'000}) {
      g.form = form;
      g.count = count;
      LOOM_CALL(form, nothing, Barrier, barrier, both);
      if (!all_reduces(g)) return "an all-reduce between groups";
      if (!reduce_scatters(g)) return "a reduce-scatter between groups";
      if (!all_gathers(g)) return "an all-gather between groups";
      if (!all_to_alls(g)) return "an all-to-all between groups";
      if (!rooted(g, first) || !rooted(g, !first)) return "a collective with a root between groups";
    }
  return nullptr;
}

}  // namespace loom::mpi_test
