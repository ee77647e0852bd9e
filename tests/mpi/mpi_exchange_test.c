/* mpi_exchange_test -- the exchanges of component/mca/exchange.c alone, those with peers and those with all:
 * what comes, and that all ranks leave where one has left, also those that wait for a peer and hear from no
 * other rank. At least 4 ranks. Exit code 1: wrong. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "component/mca/exchange.h"
#include "component/mca/fallback.h"

enum { MOST_RANKS = 64 };

/* Of fallback.c, which is not in this program; for gathers that it does not make. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
int coll_loom_fallback_allgather(PARAMS_allgather struct ompi_communicator_t* communicator,
                                 struct coll_loom_module* self) {
  return MPI_ERR_INTERN;
}
#pragma GCC diagnostic pop

static struct coll_loom_module module;
static int rank, ranks;
static bool right = true;

static void expect(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "rank %d: %s\n", rank, what);
  right = false;
}

static double began;
static bool for_ten_seconds(void* context) {
  (void)context;
  return MPI_Wtime() - began < 10;
}

static enum loom_exchanged exchange(struct loom_exchange wanted) {
  const struct loom_watch watch = {.goes_on = for_ten_seconds, .context = NULL};
  began = MPI_Wtime();
  return coll_loom_exchange(&module, &wanted, &watch);
}

/* Of this rank's and the peers' numbers; peers of ranks: the caller's. */
static enum loom_exchanged meet(const int* peers, int count) {
  static void* requests[2 * MOST_RANKS];
  static int mine, theirs[MOST_RANKS];
  const int nobody = 0;
  mine = 1000 + rank;
  for (int i = 0; i < count; ++i) theirs[i] = -1;
  const enum loom_exchanged exchanged = exchange((struct loom_exchange){.in = &mine,
                                                                        .out = theirs,
                                                                        .bytes_per_rank = sizeof mine,
                                                                        .peers = count > 0 ? peers : &nobody,
                                                                        .peer_count = count,
                                                                        .requests = requests});
  for (int i = 0; i < count && exchanged == LOOM_EXCHANGED; ++i)
    expect(theirs[i] == 1000 + peers[i], "what a peer has sent is wrong");
  return exchanged;
}

static enum loom_exchanged largest(void) {
  const uint64_t mine = (uint64_t)rank;
  uint64_t all = 0;
  const enum loom_exchanged exchanged =
      exchange((struct loom_exchange){.in = &mine, .out = &all, .words = 1});
  if (exchanged == LOOM_EXCHANGED) expect(all == (uint64_t)ranks - 1, "the largest word is wrong");
  return exchanged;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks < 4 || ranks > MOST_RANKS) return 2;
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  module.communicator = comm;

  /* With all others, with those beside in a row, and with none; exchanges with all follow at once. */
  int others[MOST_RANKS], beside[2], all = 0, near = 0;
  for (int other = 0; other < ranks; ++other)
    if (other != rank) others[all++] = other;
  if (rank > 0) beside[near++] = rank - 1;
  if (rank + 1 < ranks) beside[near++] = rank + 1;
  for (int i = 0; i < 200; ++i) {
    expect(meet(others, all) == LOOM_EXCHANGED, "an exchange with all others has failed");
    expect(meet(beside, near) == LOOM_EXCHANGED, "an exchange with neighbours has failed");
    expect(meet(NULL, 0) == LOOM_EXCHANGED, "an exchange with nobody has failed");
    expect(largest() == LOOM_EXCHANGED, "an exchange with all has failed");
  }

  /* The last rank leaves before an exchange in which rank 0 alone waits for it, and the others for nobody.
   * The last does not tell rank 0, unless the number of ranks is one above a power of two. */
  const int first = 0, last = ranks - 1;
  if (rank == last) {
    coll_loom_leave_exchanges(&module, true);
    expect(meet(&first, 1) == LOOM_EXCHANGE_LEFT, "a rank that has left takes part in an exchange");
  } else {
    const enum loom_exchanged met = meet(&last, rank == first ? 1 : 0);
    expect(met == (rank == first ? LOOM_EXCHANGE_LEFT : LOOM_EXCHANGED),
           "a rank waits for a peer that has left");
    expect(largest() == LOOM_EXCHANGE_LEFT, "a rank waits for one that has left");
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
