// The table of significance.h beside what the MPI standard says of each collective, stated here once more:
// for each rank and with MPI_IN_PLACE or without, which blocks the rank reads and writes, and which of its
// arrays.
#include "device/significance.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "device/call.h"

namespace loom {
namespace {

constexpr int kRanks = 4, kRoot = 2;
constexpr int kIndegree = 3, kOutdegree = 2;  // of each rank in the topology of neighbourhood collectives

enum Ranks { kAll, kFirst, kAllButFirst, kRootAlone, kAllButRoot };
bool is_among(int rank, Ranks ranks) {
  switch (ranks) {
    case kAll:
      return true;
    case kFirst:
      return rank == 0;
    case kAllButFirst:
      return rank != 0;
    case kRootAlone:
      return rank == kRoot;
    case kAllButRoot:
      return rank != kRoot;
  }
  return false;
}

/// What ranks do with their arguments. Where MPI does not allow MPI_IN_PLACE, nothing is stated with it.
struct Statement {
  int collective;
  Ranks ranks;
  bool in_place;
  std::string reads, writes, arrays;
};

const std::vector<Statement>& statements() {
  const std::string send_v = "sendcounts displs", recv_v = "recvcounts displs";
  const std::string both_v = send_v + " " + recv_v;
  const std::string send_w = send_v + " sendtypes", recv_w = recv_v + " recvtypes";
  static const std::vector<Statement> all = {
      // MPI_Barrier has a communicator alone.
      {LOOM_BARRIER, kAll, false, "", "", ""},
      // MPI_Bcast: from the process with rank root to all processes, itself included, in one buffer.
      {LOOM_BCAST, kRootAlone, false, "1 of sendbuf", "", ""},
      {LOOM_BCAST, kAllButRoot, false, "", "1 of recvbuf", ""},
      // MPI_Gather: recvbuf, recvcount and recvtype are significant only at root. In place at the root:
      // sendcount and sendtype are ignored, and the root's contribution is in its place in recvbuf.
      {LOOM_GATHER, kRootAlone, false, "1 of sendbuf", "4 of recvbuf", ""},
      {LOOM_GATHER, kAllButRoot, false, "1 of sendbuf", "", ""},
      {LOOM_GATHER, kRootAlone, true, "own of recvbuf", "4 of recvbuf", ""},
      // MPI_Gatherv: the same, and of recvcounts and displs.
      {LOOM_GATHERV, kRootAlone, false, "1 of sendbuf", "4 of recvbuf", recv_v},
      {LOOM_GATHERV, kAllButRoot, false, "1 of sendbuf", "", ""},
      {LOOM_GATHERV, kRootAlone, true, "own of recvbuf", "4 of recvbuf", recv_v},
      // MPI_Scatter: sendbuf, sendcount and sendtype are significant only at root. In place at the root:
      // recvbuf is MPI_IN_PLACE, recvcount and recvtype are ignored, and root sends nothing to itself.
      {LOOM_SCATTER, kRootAlone, false, "4 of sendbuf", "1 of recvbuf", ""},
      {LOOM_SCATTER, kAllButRoot, false, "", "1 of recvbuf", ""},
      {LOOM_SCATTER, kRootAlone, true, "4 of sendbuf", "own of sendbuf", ""},
      // MPI_Scatterv: the same, and of sendcounts and displs.
      {LOOM_SCATTERV, kRootAlone, false, "4 of sendbuf", "1 of recvbuf", send_v},
      {LOOM_SCATTERV, kAllButRoot, false, "", "1 of recvbuf", ""},
      {LOOM_SCATTERV, kRootAlone, true, "4 of sendbuf", "own of sendbuf", send_v},
      // MPI_Allgather: in place at all processes, sendcount and sendtype are ignored, and each process has
      // its
      // contribution in its place in recvbuf.
      {LOOM_ALLGATHER, kAll, false, "1 of sendbuf", "4 of recvbuf", ""},
      {LOOM_ALLGATHER, kAll, true, "own of recvbuf", "4 of recvbuf", ""},
      {LOOM_ALLGATHERV, kAll, false, "1 of sendbuf", "4 of recvbuf", recv_v},
      {LOOM_ALLGATHERV, kAll, true, "own of recvbuf", "4 of recvbuf", recv_v},
      // MPI_Alltoall: in place at all processes, what describes sendbuf is ignored, and the data to be sent
      // is
      // taken from recvbuf and replaced.
      {LOOM_ALLTOALL, kAll, false, "4 of sendbuf", "4 of recvbuf", ""},
      {LOOM_ALLTOALL, kAll, true, "4 of recvbuf", "4 of recvbuf", ""},
      {LOOM_ALLTOALLV, kAll, false, "4 of sendbuf", "4 of recvbuf", both_v},
      {LOOM_ALLTOALLV, kAll, true, "4 of recvbuf", "4 of recvbuf", recv_v},
      {LOOM_ALLTOALLW, kAll, false, "4 of sendbuf", "4 of recvbuf", send_w + " " + recv_w},
      {LOOM_ALLTOALLW, kAll, true, "4 of recvbuf", "4 of recvbuf", recv_w},
      // MPI_Reduce: recvbuf is significant only at root. In place at the root: its operand is in recvbuf.
      {LOOM_REDUCE, kRootAlone, false, "1 of sendbuf", "1 of recvbuf", ""},
      {LOOM_REDUCE, kAllButRoot, false, "1 of sendbuf", "", ""},
      {LOOM_REDUCE, kRootAlone, true, "1 of recvbuf", "1 of recvbuf", ""},
      // MPI_Allreduce: in place at all processes, the operands are in recvbuf.
      {LOOM_ALLREDUCE, kAll, false, "1 of sendbuf", "1 of recvbuf", ""},
      {LOOM_ALLREDUCE, kAll, true, "1 of recvbuf", "1 of recvbuf", ""},
      // MPI_Reduce_scatter_block: n blocks of recvcount elements are reduced, and each process gets its own.
      {LOOM_REDUCE_SCATTER_BLOCK, kAll, false, "4 of sendbuf", "1 of recvbuf", ""},
      {LOOM_REDUCE_SCATTER_BLOCK, kAll, true, "4 of recvbuf", "1 of recvbuf", ""},
      // MPI_Reduce_scatter: the same, with recvcounts, the same on all processes, also in place.
      {LOOM_REDUCE_SCATTER, kAll, false, "4 of sendbuf", "1 of recvbuf", "sendcounts"},
      {LOOM_REDUCE_SCATTER, kAll, true, "4 of recvbuf", "1 of recvbuf", "sendcounts"},
      // MPI_Scan.
      {LOOM_SCAN, kAll, false, "1 of sendbuf", "1 of recvbuf", ""},
      {LOOM_SCAN, kAll, true, "1 of recvbuf", "1 of recvbuf", ""},
      // MPI_Exscan: recvbuf is not significant on process 0; in place it has the operand there, and is not
      // changed.
      {LOOM_EXSCAN, kFirst, false, "1 of sendbuf", "", ""},
      {LOOM_EXSCAN, kFirst, true, "1 of recvbuf", "", ""},
      {LOOM_EXSCAN, kAllButFirst, false, "1 of sendbuf", "1 of recvbuf", ""},
      {LOOM_EXSCAN, kAllButFirst, true, "1 of recvbuf", "1 of recvbuf", ""},
      // MPI_Neighbor_allgather and its like: to outdegree processes and from indegree ones, never in place.
      {LOOM_NEIGHBOR_ALLGATHER, kAll, false, "1 of sendbuf", "3 of recvbuf", ""},
      {LOOM_NEIGHBOR_ALLGATHERV, kAll, false, "1 of sendbuf", "3 of recvbuf", recv_v},
      {LOOM_NEIGHBOR_ALLTOALL, kAll, false, "2 of sendbuf", "3 of recvbuf", ""},
      {LOOM_NEIGHBOR_ALLTOALLV, kAll, false, "2 of sendbuf", "3 of recvbuf", both_v},
      {LOOM_NEIGHBOR_ALLTOALLW, kAll, false, "2 of sendbuf", "3 of recvbuf", send_w + " " + recv_w},
      // MPI_Reduce_local: the operands are in inbuf and inoutbuf, the result in the latter.
      {LOOM_REDUCE_LOCAL, kAll, false, "1 of sendbuf 1 of recvbuf", "1 of recvbuf", ""},
  };
  return all;
}

/// The blocks of one side, as loom finds them: nothing, or "how many of which buffer".
std::string blocks_of(const loom_significance& row, loom_side side, int rank, bool in_place) {
  const bool is_neighbourhood =
      row.collective >= LOOM_NEIGHBOR_ALLGATHER && row.collective < LOOM_REDUCE_LOCAL;
  const int each = !is_neighbourhood ? kRanks : side == LOOM_IN ? kOutdegree : kIndegree;
  const int blocks = loom_blocks_of(&row, side, loom_role_of(rank, kRoot), each);
  if (blocks == 0) return "";
  const bool stands_aside = in_place && loom_may_be_in_place(&row, side, loom_role_of(rank, kRoot));
  const bool is_sendbuf = (side == LOOM_IN) != stands_aside;
  const std::string number =
      stands_aside && row.in_place.source == LOOM_OWN_BLOCK ? "own" : std::to_string(blocks);
  return number + (is_sendbuf ? " of sendbuf" : " of recvbuf");
}

std::string arrays_of(const loom_significance& row, int rank, bool in_place) {
  std::string names;
  const auto name = [&](bool given, const char* of) {
    if (!given) return;
    if (!names.empty()) names += ' ';
    names += of;
  };
  for (const loom_side side : {LOOM_IN, LOOM_OUT}) {
    const loom_role role = loom_role_of(rank, kRoot);
    const unsigned arrays =
        loom_arrays_of(&row, side, role, in_place && loom_may_be_in_place(&row, side, role));
    name((arrays & LOOM_COUNTS) != 0, side == LOOM_IN ? "sendcounts" : "recvcounts");
    name((arrays & LOOM_DISPS) != 0, "displs");
    name((arrays & LOOM_TYPES) != 0, side == LOOM_IN ? "sendtypes" : "recvtypes");
  }
  return names;
}

TEST(Significance, HasARowForEachCollectiveInItsPlace) {
  for (int collective = 0; collective < LOOM_SIGNIFICANCE_COUNT; ++collective)
    EXPECT_EQ(loom_significance_of(collective)->collective, collective);
}

TEST(Significance, IsWhatMpiSaysOnEveryRankInPlaceOrNot) {
  for (int collective = 0; collective < LOOM_SIGNIFICANCE_COUNT; ++collective) {
    const loom_significance& row = *loom_significance_of(collective);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << "collective " << collective << ", rank " << rank << ", in place " << in_place);
        std::vector<Statement> stated;
        std::ranges::copy_if(statements(), std::back_inserter(stated), [&](const Statement& of) {
          return of.collective == collective && of.in_place == in_place && is_among(rank, of.ranks);
        });
        const loom_role role = loom_role_of(rank, kRoot);
        const bool allowed = !in_place || loom_may_be_in_place(&row, LOOM_IN, role) ||
                             loom_may_be_in_place(&row, LOOM_OUT, role);
        ASSERT_EQ(stated.size(), allowed ? 1 : 0);
        if (!allowed) continue;
        std::string reads = blocks_of(row, LOOM_IN, rank, in_place);
        const std::string writes = blocks_of(row, LOOM_OUT, rank, in_place);
        if ((row.traits & LOOM_UPDATES_RESULT) != 0) reads += " " + writes;
        EXPECT_EQ(reads, stated[0].reads);
        EXPECT_EQ(writes, stated[0].writes);
        EXPECT_EQ(arrays_of(row, rank, in_place), stated[0].arrays);
      }
    }
  }
}

std::vector<int> collectives_where(bool (*holds)(const loom_significance&)) {
  std::vector<int> found;
  for (int collective = 0; collective < LOOM_COLLECTIVE_COUNT; ++collective)
    if (holds(*loom_significance_of(collective))) found.push_back(collective);
  return found;
}

TEST(Significance, HasARootWhereMpiHasOne) {
  EXPECT_THAT(collectives_where([](const auto& row) { return (row.traits & LOOM_HAS_ROOT) != 0; }),
              testing::UnorderedElementsAre(LOOM_BCAST, LOOM_REDUCE, LOOM_GATHER, LOOM_GATHERV, LOOM_SCATTER,
                                            LOOM_SCATTERV));
}

// MPI: "by passing MPI_IN_PLACE at all processes". Of the other reductions it says so of no process but the
// own.
TEST(Significance, HasInPlaceOnAllRanksOrOnNoneWhereMpiSaysSo) {
  EXPECT_THAT(collectives_where([](const auto& row) { return row.in_place.alike; }),
              testing::UnorderedElementsAre(LOOM_ALLREDUCE, LOOM_ALLGATHER, LOOM_ALLGATHERV, LOOM_ALLTOALL,
                                            LOOM_ALLTOALLV, LOOM_ALLTOALLW));
}

TEST(Significance, HasOneBufferForBothSidesOfABroadcast) {
  EXPECT_THAT(collectives_where([](const auto& row) { return (row.traits & LOOM_SHARES_BUFFER) != 0; }),
              testing::ElementsAre(LOOM_BCAST));
}

TEST(Significance, KnowsTheSameReductionsAsTheCore) {
  for (int collective = 0; collective < LOOM_COLLECTIVE_COUNT; ++collective)
    EXPECT_EQ(loom_reduces(collective), device::is_reduction(static_cast<device::Collective>(collective)))
        << collective;
}

// Counts that may be given differently on each rank (gatherv and the like) say nothing to the others.
TEST(Significance, KnowsWhichSizesAllRanksShare) {
  EXPECT_THAT(collectives_where([](const auto& row) { return row.size != LOOM_SIZE_OF_ALL; }),
              testing::UnorderedElementsAre(LOOM_BARRIER, LOOM_GATHERV, LOOM_SCATTERV, LOOM_ALLTOALLV,
                                            LOOM_ALLTOALLW));
  EXPECT_THAT(collectives_where([](const auto& row) { return row.size == LOOM_NO_SIZE; }),
              testing::ElementsAre(LOOM_BARRIER));
}

// An empty call is ended by every rank alone: the side that is looked at has to be significant, must not be
// in place, and at a root is the one that names the others' blocks.
TEST(Significance, FindsTheSizeOnASideThatIsNeverInPlace) {
  for (const int collective :
       collectives_where([](const auto& row) { return row.size == LOOM_SIZE_OF_ALL; })) {
    const loom_significance& row = *loom_significance_of(collective);
    for (int rank = 0; rank < kRanks; ++rank) {
      const loom_role role = loom_role_of(rank, kRoot);
      const loom_side side = loom_side_of_size(&row, role);
      EXPECT_TRUE(loom_is_significant(&row, side, role)) << collective;
      if (loom_reduces(collective))
        EXPECT_EQ(side, LOOM_IN) << collective;
      else
        EXPECT_FALSE(loom_may_be_in_place(&row, side, role)) << collective;
    }
  }
  EXPECT_EQ(loom_side_of_size(loom_significance_of(LOOM_GATHER), loom_role_of(kRoot, kRoot)), LOOM_OUT);
  EXPECT_EQ(loom_side_of_size(loom_significance_of(LOOM_GATHER), loom_role_of(1, kRoot)), LOOM_IN);
  EXPECT_EQ(loom_side_of_size(loom_significance_of(LOOM_SCATTER), loom_role_of(kRoot, kRoot)), LOOM_IN);
  EXPECT_EQ(loom_side_of_size(loom_significance_of(LOOM_SCATTER), loom_role_of(1, kRoot)), LOOM_OUT);
}

TEST(Significance, KnowsWhichRanksSendToWhich) {
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      const auto passes = [&](int collective) {
        return loom_passes(loom_significance_of(collective), loom_role_of(from, kRoot),
                           loom_role_of(to, kRoot));
      };
      EXPECT_EQ(passes(LOOM_GATHERV), to == kRoot);
      EXPECT_EQ(passes(LOOM_SCATTERV), from == kRoot);
      EXPECT_EQ(passes(LOOM_BCAST), from == kRoot && to != kRoot);
      EXPECT_TRUE(passes(LOOM_ALLGATHERV));
      EXPECT_TRUE(passes(LOOM_ALLTOALLW));
      EXPECT_FALSE(passes(LOOM_BARRIER));
    }
  }
}

// The root gives MPI_ROOT, the ranks beside it MPI_PROC_NULL, and those of the other group its rank.
TEST(Significance, BetweenGroupsIsThatOfTheRootAndOfTheGroupThatItServes) {
  const loom_role root = loom_role_between_groups(true, false),
                  served = loom_role_between_groups(false, true),
                  beside = loom_role_between_groups(false, false);
  for (const int collective : {LOOM_GATHER, LOOM_GATHERV, LOOM_REDUCE}) {
    const loom_significance* const row = loom_significance_of(collective);
    EXPECT_FALSE(loom_is_significant(row, LOOM_IN, root));
    EXPECT_TRUE(loom_is_significant(row, LOOM_OUT, root));
    EXPECT_TRUE(loom_is_significant(row, LOOM_IN, served));
    EXPECT_FALSE(loom_is_significant(row, LOOM_OUT, served));
  }
  for (const int collective : {LOOM_SCATTER, LOOM_SCATTERV, LOOM_BCAST}) {
    const loom_significance* const row = loom_significance_of(collective);
    EXPECT_TRUE(loom_is_significant(row, LOOM_IN, root));
    EXPECT_FALSE(loom_is_significant(row, LOOM_OUT, root));
    EXPECT_FALSE(loom_is_significant(row, LOOM_IN, served));
    EXPECT_TRUE(loom_is_significant(row, LOOM_OUT, served));
  }
  for (const int collective : {LOOM_GATHER, LOOM_REDUCE, LOOM_SCATTER, LOOM_BCAST})
    for (const loom_side side : {LOOM_IN, LOOM_OUT})
      EXPECT_FALSE(loom_is_significant(loom_significance_of(collective), side, beside));
}

}  // namespace
}  // namespace loom
