#include "mpi_examples/bench/collectives.hpp"

#if OMPI_MAJOR_VERSION == 4
#include <mpi-ext.h>
#define PERSISTENT(Name) MPIX_##Name##_init
#else
#define PERSISTENT(Name) MPI_##Name##_init
#endif

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

namespace loom::bench {
namespace {

// Each link of the bus carries this share of the size, whatever the algorithm: see nccl-tests'
// doc/PERFORMANCE.md.
double both_ways(double ranks) {
  return 2 * (ranks - 1) / ranks;
}
double all_but_own(double ranks) {
  return (ranks - 1) / ranks;
}

std::size_t wrong_reduced(const Case& one, int, const std::byte* output, std::uint64_t shift) {
  if (!one.reduced) return 0;  // rank 0 of an exscan
  return one.reduced->count_wrong(output, one.count, shift);
}

/// Only the root may say MPI_IN_PLACE; the others send from their receive buffer.
struct RootedBuffers {
  explicit RootedBuffers(const Call& c) : send(c.send), recv(c.recv) {
    if (c.send == MPI_IN_PLACE && c.one->rank != c.root) send = std::exchange(recv, nullptr);
  }
  const void* send;
  void* recv;
};

/// Each rank's block, in order.
std::size_t wrong_gathered(const Case& one, int, const std::byte* output, std::uint64_t shift) {
  const std::size_t block_bytes = one.block() * mpi::size_of(one.type);
  std::size_t wrong = 0;
  for (std::size_t from = 0; from < one.data.size(); ++from)
    wrong += one.data[from].count_wrong(output + from * block_bytes, one.block(), shift);
  return wrong;
}

/// This rank's block of a reduction.
std::size_t wrong_reduced_block(const Case& one, int, const std::byte* output, std::uint64_t shift) {
  const std::uint64_t first = static_cast<std::uint64_t>(one.rank) * one.block();
  return one.reduced->count_wrong(output, one.block(), shift + first);
}

/// Of an all-to-all: what each rank sends this one.
std::size_t wrong_exchanged(const Case& one, int, const std::byte* output, std::uint64_t shift) {
  const std::size_t block_bytes = one.block() * mpi::size_of(one.type);
  const std::uint64_t mine = static_cast<std::uint64_t>(one.rank) * one.block();
  std::size_t wrong = 0;
  for (std::size_t from = 0; from < one.data.size(); ++from) {
    wrong += one.data[from].count_wrong(output + from * block_bytes, one.block(), shift + mine);
  }
  return wrong;
}

/// Of blocks of one length. Requests refer to them until the end.
struct Lists {
  explicit Lists(const Call& c) : counts(static_cast<std::size_t>(c.one->ranks), c.block()) {
    for (std::size_t rank = 0; rank < counts.size(); ++rank)
      places.push_back(static_cast<int>(rank) * c.block());
  }
  static const Lists& of(const Call& c) {
    static std::map<int, Lists> by_block;
    return by_block.try_emplace(c.block(), c).first->second;
  }
  std::vector<int> counts, places;
};

const std::array kCollectives = {
    Collective{
        .name = "allreduce",
        .reduces = true,
        .has_in_place = true,
        .input = Part::kWhole,
        .output = Part::kWhole,
        .busbw_factor = both_ways,
        .call =
            [](const Call& c) { return MPI_Allreduce(c.send, c.recv, c.count(), c.type(), c.op(), c.comm); },
        .start =
            [](const Call& c, MPI_Request* request) {
              return MPI_Iallreduce(c.send, c.recv, c.count(), c.type(), c.op(), c.comm, request);
            },
        .init =
            [](const Call& c, MPI_Request* request) {
              return PERSISTENT(Allreduce)(c.send, c.recv, c.count(), c.type(), c.op(), c.comm, MPI_INFO_NULL,
                                           request);
            },
        .count_wrong = wrong_reduced},
    Collective{.name = "reduce",
               .reduces = true,
               .has_in_place = true,
               .has_root = true,
               .input = Part::kWhole,
               .output = Part::kWhole,
               .call =
                   [](const Call& c) {
                     const RootedBuffers buffers(c);
                     return MPI_Reduce(buffers.send, buffers.recv, c.count(), c.type(), c.op(), c.root,
                                       c.comm);
                   },
               .start =
                   [](const Call& c, MPI_Request* request) {
                     const RootedBuffers buffers(c);
                     return MPI_Ireduce(buffers.send, buffers.recv, c.count(), c.type(), c.op(), c.root,
                                        c.comm, request);
                   },
               .init =
                   [](const Call& c, MPI_Request* request) {
                     const RootedBuffers buffers(c);
                     return PERSISTENT(Reduce)(buffers.send, buffers.recv, c.count(), c.type(), c.op(),
                                               c.root, c.comm, MPI_INFO_NULL, request);
                   },
               .count_wrong =
                   [](const Case& one, int root, const std::byte* output, std::uint64_t shift) {
                     return one.rank == root ? wrong_reduced(one, root, output, shift) : 0;
                   }},
    Collective{.name = "bcast",
               .has_root = true,
               .always_in_place = true,
               .input = Part::kNone,
               .output = Part::kWhole,
               .call = [](const Call& c) { return MPI_Bcast(c.recv, c.count(), c.type(), c.root, c.comm); },
               .start =
                   [](const Call& c, MPI_Request* request) {
                     return MPI_Ibcast(c.recv, c.count(), c.type(), c.root, c.comm, request);
                   },
               .init =
                   [](const Call& c, MPI_Request* request) {
                     return PERSISTENT(Bcast)(c.recv, c.count(), c.type(), c.root, c.comm, MPI_INFO_NULL,
                                              request);
                   },
               .count_wrong =
                   [](const Case& one, int root, const std::byte* output, std::uint64_t shift) {
                     return one.data[static_cast<std::size_t>(root)].count_wrong(output, one.count, shift);
                   }},
    Collective{.name = "allgather",
               .blocks = true,
               .has_in_place = true,
               .input = Part::kBlock,
               .output = Part::kWhole,
               .busbw_factor = all_but_own,
               .call =
                   [](const Call& c) {
                     return MPI_Allgather(c.send, c.block(), c.type(), c.recv, c.block(), c.type(), c.comm);
                   },
               .start =
                   [](const Call& c, MPI_Request* request) {
                     return MPI_Iallgather(c.send, c.block(), c.type(), c.recv, c.block(), c.type(), c.comm,
                                           request);
                   },
               .init =
                   [](const Call& c, MPI_Request* request) {
                     return PERSISTENT(Allgather)(c.send, c.block(), c.type(), c.recv, c.block(), c.type(),
                                                  c.comm, MPI_INFO_NULL, request);
                   },
               .count_wrong = wrong_gathered},
    Collective{.name = "allgatherv",
               .blocks = true,
               .has_in_place = true,
               .input = Part::kBlock,
               .output = Part::kWhole,
               .busbw_factor = all_but_own,
               .call =
                   [](const Call& c) {
                     const Lists& lists = Lists::of(c);
                     return MPI_Allgatherv(c.send, c.block(), c.type(), c.recv, lists.counts.data(),
                                           lists.places.data(), c.type(), c.comm);
                   },
               .start =
                   [](const Call& c, MPI_Request* request) {
                     const Lists& lists = Lists::of(c);
                     return MPI_Iallgatherv(c.send, c.block(), c.type(), c.recv, lists.counts.data(),
                                            lists.places.data(), c.type(), c.comm, request);
                   },
               .init =
                   [](const Call& c, MPI_Request* request) {
                     const Lists& lists = Lists::of(c);
                     return PERSISTENT(Allgatherv)(c.send, c.block(), c.type(), c.recv, lists.counts.data(),
                                                   lists.places.data(), c.type(), c.comm, MPI_INFO_NULL,
                                                   request);
                   },
               .count_wrong = wrong_gathered},
    Collective{.name = "reduce_scatter_block",
               .reduces = true,
               .blocks = true,
               .has_in_place = true,
               .input = Part::kWhole,
               .output = Part::kBlock,
               .busbw_factor = all_but_own,
               .call =
                   [](const Call& c) {
                     return MPI_Reduce_scatter_block(c.send, c.recv, c.block(), c.type(), c.op(), c.comm);
                   },
               .start =
                   [](const Call& c, MPI_Request* request) {
                     return MPI_Ireduce_scatter_block(c.send, c.recv, c.block(), c.type(), c.op(), c.comm,
                                                      request);
                   },
               .init =
                   [](const Call& c, MPI_Request* request) {
                     return PERSISTENT(Reduce_scatter_block)(c.send, c.recv, c.block(), c.type(), c.op(),
                                                             c.comm, MPI_INFO_NULL, request);
                   },
               .count_wrong = wrong_reduced_block},
    Collective{.name = "reduce_scatter",
               .reduces = true,
               .blocks = true,
               .has_in_place = true,
               .input = Part::kWhole,
               .output = Part::kBlock,
               .busbw_factor = all_but_own,
               .call =
                   [](const Call& c) {
                     return MPI_Reduce_scatter(c.send, c.recv, Lists::of(c).counts.data(), c.type(), c.op(),
                                               c.comm);
                   },
               .start =
                   [](const Call& c, MPI_Request* request) {
                     return MPI_Ireduce_scatter(c.send, c.recv, Lists::of(c).counts.data(), c.type(), c.op(),
                                                c.comm, request);
                   },
               .init =
                   [](const Call& c, MPI_Request* request) {
                     return PERSISTENT(Reduce_scatter)(c.send, c.recv, Lists::of(c).counts.data(), c.type(),
                                                       c.op(), c.comm, MPI_INFO_NULL, request);
                   },
               .count_wrong = wrong_reduced_block},
    Collective{.name = "alltoall",
               .blocks = true,
               .has_in_place = true,
               .input = Part::kWhole,
               .output = Part::kWhole,
               .busbw_factor = all_but_own,
               .call =
                   [](const Call& c) {
                     return MPI_Alltoall(c.send, c.block(), c.type(), c.recv, c.block(), c.type(), c.comm);
                   },
               .start =
                   [](const Call& c, MPI_Request* request) {
                     return MPI_Ialltoall(c.send, c.block(), c.type(), c.recv, c.block(), c.type(), c.comm,
                                          request);
                   },
               .init =
                   [](const Call& c, MPI_Request* request) {
                     return PERSISTENT(Alltoall)(c.send, c.block(), c.type(), c.recv, c.block(), c.type(),
                                                 c.comm, MPI_INFO_NULL, request);
                   },
               .count_wrong = wrong_exchanged},
    Collective{.name = "alltoallv",
               .blocks = true,
               .has_in_place = true,
               .input = Part::kWhole,
               .output = Part::kWhole,
               .busbw_factor = all_but_own,
               .call =
                   [](const Call& c) {
                     const Lists& lists = Lists::of(c);
                     return MPI_Alltoallv(c.send, lists.counts.data(), lists.places.data(), c.type(), c.recv,
                                          lists.counts.data(), lists.places.data(), c.type(), c.comm);
                   },
               .start =
                   [](const Call& c, MPI_Request* request) {
                     const Lists& lists = Lists::of(c);
                     return MPI_Ialltoallv(c.send, lists.counts.data(), lists.places.data(), c.type(), c.recv,
                                           lists.counts.data(), lists.places.data(), c.type(), c.comm,
                                           request);
                   },
               .init =
                   [](const Call& c, MPI_Request* request) {
                     const Lists& lists = Lists::of(c);
                     return PERSISTENT(Alltoallv)(c.send, lists.counts.data(), lists.places.data(), c.type(),
                                                  c.recv, lists.counts.data(), lists.places.data(), c.type(),
                                                  c.comm, MPI_INFO_NULL, request);
                   },
               .count_wrong = wrong_exchanged},
    Collective{.name = "gather",
               .blocks = true,
               .has_root = true,
               .input = Part::kBlock,
               .output = Part::kWhole,
               .busbw_factor = all_but_own,
               .call =
                   [](const Call& c) {
                     return MPI_Gather(c.send, c.block(), c.type(), c.recv, c.block(), c.type(), c.root,
                                       c.comm);
                   },
               .start =
                   [](const Call& c, MPI_Request* request) {
                     return MPI_Igather(c.send, c.block(), c.type(), c.recv, c.block(), c.type(), c.root,
                                        c.comm, request);
                   },
               .init =
                   [](const Call& c, MPI_Request* request) {
                     return PERSISTENT(Gather)(c.send, c.block(), c.type(), c.recv, c.block(), c.type(),
                                               c.root, c.comm, MPI_INFO_NULL, request);
                   },
               .count_wrong =
                   [](const Case& one, int root, const std::byte* output, std::uint64_t shift) {
                     return one.rank == root ? wrong_gathered(one, root, output, shift) : 0;
                   }},
    Collective{
        .name = "scatter",
        .blocks = true,
        .has_root = true,
        .input = Part::kWhole,
        .output = Part::kBlock,
        .busbw_factor = all_but_own,
        .call =
            [](const Call& c) {
              return MPI_Scatter(c.send, c.block(), c.type(), c.recv, c.block(), c.type(), c.root, c.comm);
            },
        .start =
            [](const Call& c, MPI_Request* request) {
              return MPI_Iscatter(c.send, c.block(), c.type(), c.recv, c.block(), c.type(), c.root, c.comm,
                                  request);
            },
        .init =
            [](const Call& c, MPI_Request* request) {
              return PERSISTENT(Scatter)(c.send, c.block(), c.type(), c.recv, c.block(), c.type(), c.root,
                                         c.comm, MPI_INFO_NULL, request);
            },
        .count_wrong =
            [](const Case& one, int root, const std::byte* output, std::uint64_t shift) {
              const std::uint64_t first = static_cast<std::uint64_t>(one.rank) * one.block();
              return one.data[static_cast<std::size_t>(root)].count_wrong(output, one.block(), shift + first);
            }},
    Collective{
        .name = "scan",
        .reduces = true,
        .has_in_place = true,
        .input = Part::kWhole,
        .output = Part::kWhole,
        .operands = [](int rank, int) { return rank + 1; },
        .call = [](const Call& c) { return MPI_Scan(c.send, c.recv, c.count(), c.type(), c.op(), c.comm); },
        .start =
            [](const Call& c, MPI_Request* request) {
              return MPI_Iscan(c.send, c.recv, c.count(), c.type(), c.op(), c.comm, request);
            },
        .init =
            [](const Call& c, MPI_Request* request) {
              return PERSISTENT(Scan)(c.send, c.recv, c.count(), c.type(), c.op(), c.comm, MPI_INFO_NULL,
                                      request);
            },
        .count_wrong = wrong_reduced},
    Collective{
        .name = "exscan",
        .reduces = true,
        .has_in_place = true,
        .input = Part::kWhole,
        .output = Part::kWhole,
        .operands = [](int rank, int) { return rank; },
        .call = [](const Call& c) { return MPI_Exscan(c.send, c.recv, c.count(), c.type(), c.op(), c.comm); },
        .start =
            [](const Call& c, MPI_Request* request) {
              return MPI_Iexscan(c.send, c.recv, c.count(), c.type(), c.op(), c.comm, request);
            },
        .init =
            [](const Call& c, MPI_Request* request) {
              return PERSISTENT(Exscan)(c.send, c.recv, c.count(), c.type(), c.op(), c.comm, MPI_INFO_NULL,
                                        request);
            },
        .count_wrong = wrong_reduced},
    Collective{
        .name = "barrier",
        .input = Part::kNone,
        .output = Part::kNone,
        .call = [](const Call& c) { return MPI_Barrier(c.comm); },
        .start = [](const Call& c, MPI_Request* request) { return MPI_Ibarrier(c.comm, request); },
        .init = [](const Call& c,
                   MPI_Request* request) { return PERSISTENT(Barrier)(c.comm, MPI_INFO_NULL, request); },
        .count_wrong = [](const Case&, int, const std::byte*, std::uint64_t) { return std::size_t{0}; }},
};

}  // namespace

std::span<const Collective> collectives() {
  return kCollectives;
}

const Collective* find_collective(std::string_view name) {
  const auto found = std::find_if(kCollectives.begin(), kCollectives.end(),
                                  [&](const Collective& collective) { return collective.name == name; });
  return found == kCollectives.end() ? nullptr : &*found;
}

std::size_t elements(Part part, const Case& one) {
  switch (part) {
    case Part::kNone:
      return 0;
    case Part::kBlock:
      return one.block();
    case Part::kWhole:
      break;
  }
  return one.count;
}

Case make_case(const Collective& collective, mpi::Type type, mpi::Op op, int rank, int ranks, int root,
               bool in_place) {
  using mpi::Range;
  using mpi::Tile;
  if (collective.reduces) {
    const int operands = collective.operands(rank, ranks);
    return {.type = type,
            .op = op,
            .rank = rank,
            .ranks = ranks,
            .root = root,
            .in_place = in_place,
            .operand = Tile::operand(type, op, Range::kExact, rank, ranks),
            .reduced = operands == 0 ? std::nullopt
                                     : std::optional(Tile::result(type, op, Range::kExact, ranks, operands)),
            .data = {}};
  }
  std::vector<Tile> data;
  for (int each = 0; each < ranks; ++each) data.push_back(Tile::data(type, each));
  Tile own = data[static_cast<std::size_t>(rank)];
  return {.type = type,
          .op = op,
          .rank = rank,
          .ranks = ranks,
          .root = root,
          .in_place = in_place || collective.always_in_place,
          .operand = std::move(own),
          .reduced = std::nullopt,
          .data = std::move(data)};
}

void fill_input(const Collective& collective, const Case& one, std::byte* send, std::byte* recv,
                std::uint64_t shift) {
  if (!one.in_place) {
    one.operand.fill(send, elements(collective.input, one), shift);
  } else if (collective.input == Part::kBlock) {  // in place, a block stands at its final position
    const std::size_t block_bytes = one.block() * mpi::size_of(one.type);
    one.operand.fill(recv + static_cast<std::size_t>(one.rank) * block_bytes, one.block(), shift);
  } else {
    one.operand.fill(recv, one.count, shift);
  }
}

}  // namespace loom::bench
