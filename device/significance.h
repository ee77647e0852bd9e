/* Which arguments of a collective mean something on which rank: the MPI standard calls them significant
 * (chapter "Collective Communication"). One table has a row for each collective. Code that reads a buffer, a
 * count, a type or an array of a call asks it first.
 *
 * A row also has what Open MPI documents of the call on device memory. Includes nothing of Open MPI and CUDA,
 * for C and C++ alike. */
#ifndef LOOM_DEVICE_SIGNIFICANCE_H
#define LOOM_DEVICE_SIGNIFICANCE_H

#include "device/call.h"

#ifdef __cplusplus
#define LOOM_TABLE inline constexpr
#define LOOM_QUESTION constexpr
#else
#define LOOM_TABLE static const
#define LOOM_QUESTION static inline
#endif

/* Calls that loom never performs: it only replaces their device buffers by staging buffers. */
enum loom_staged_only {
  LOOM_NEIGHBOR_ALLGATHER = LOOM_COLLECTIVE_COUNT,
  LOOM_NEIGHBOR_ALLGATHERV,
  LOOM_NEIGHBOR_ALLTOALL,
  LOOM_NEIGHBOR_ALLTOALLV,
  LOOM_NEIGHBOR_ALLTOALLW,
  LOOM_REDUCE_LOCAL,
  LOOM_SIGNIFICANCE_COUNT
};

/* The two sides of a call: what a rank sends, and what it receives. */
enum loom_side { LOOM_IN, LOOM_OUT, LOOM_SIDE_COUNT };

/* Sets of ranks. Between two groups, "all" are those of the group that the root serves. */
enum loom_ranks {
  LOOM_NO_RANK = 0,
  LOOM_ROOT = 1,
  LOOM_ALL_BUT_ROOT = 2,
  LOOM_ALL_BUT_FIRST = 4,
  LOOM_ALL_RANKS = 8
};

/* LOOM_BLOCK_EACH: one for each rank; in neighbourhood collectives, one for each neighbour on this side. */
enum loom_blocks { LOOM_NO_BLOCK, LOOM_ONE_BLOCK, LOOM_BLOCK_EACH };

/* Arguments that are arrays, with an element for each block. */
enum { LOOM_COUNTS = 1, LOOM_DISPS = 2, LOOM_TYPES = 4 };

/* Where the data of a side lies if it is MPI_IN_PLACE: in this rank's block of the other side, or in the same
 * blocks of the other side. */
enum loom_in_place_source { LOOM_NOTHING, LOOM_OWN_BLOCK, LOOM_SAME_BLOCKS };

/* What ranks know of a call's size. LOOM_SIZE_OF_ALL: every rank knows the bytes of the message, or of a
 * block if all blocks are equal. LOOM_SIZE_OF_PAIRS: only the two ranks know what passes between them. */
enum loom_size { LOOM_NO_SIZE, LOOM_SIZE_OF_PAIRS, LOOM_SIZE_OF_ALL };

enum {
  /* MPI gives one count (or array) and one type, significant on all ranks: those of the operand. */
  LOOM_REDUCES = 1,
  LOOM_HAS_ROOT = 2,
  /* One argument is the buffer of both sides. */
  LOOM_SHARES_BUFFER = 4,
  /* The buffer of the result has an operand before the call. */
  LOOM_UPDATES_RESULT = 8
};

struct loom_significant_side {
  enum loom_ranks ranks; /* where the buffer is significant; in a move also its count, type and arrays */
  enum loom_blocks blocks;
  unsigned arrays;
};
struct loom_significant_in_place {
  enum loom_side side;   /* the one that may be MPI_IN_PLACE; in a move its count, type and arrays are ignored
                            then */
  enum loom_ranks ranks; /* that may give MPI_IN_PLACE */
  bool alike;            /* all of them have to, or none */
  enum loom_in_place_source source;
};
/* Which messages of a CUDA-aware Open MPI carry a call on device memory as it is: none for sure, those of
 * UCX, or those of any transport that moves such memory. */
enum loom_messages { LOOM_NO_MESSAGES, LOOM_UCX_MESSAGES, LOOM_ANY_MESSAGES };
struct loom_significance {
  int collective; /* enum loom_collective or loom_staged_only: the row's index */
  unsigned traits;
  enum loom_size size;
  struct loom_significant_side sides[LOOM_SIDE_COUNT];
  struct loom_significant_in_place in_place;
  enum loom_messages on_devices[3]; /* of the blocking, the nonblocking and the persistent form */
};

/* clang-format off */
#define LOOM_NOT_IN_PLACE      {LOOM_IN,  LOOM_NO_RANK,   false, LOOM_NOTHING}
#define LOOM_EACH_BY_ITSELF    {LOOM_IN,  LOOM_ALL_RANKS, false, LOOM_SAME_BLOCKS}
#define LOOM_ALL_OR_NONE(what) {LOOM_IN,  LOOM_ALL_RANKS, true,  what}
#define LOOM_ROOTS(side, what) {side,     LOOM_ROOT,      false, what}
/* What Open MPI documents: "Which MPI APIs work with CUDA-aware?" and "... with CUDA-aware UCX?", and which do
 * not (4.1: FAQ, "Running CUDA-aware Open MPI"; 5.0 and 6.0: docs.open-mpi.org, tuning-apps, CUDA). Both have
 * all blocking collectives of a communicator's ranks. No nonblocking one works, but with UCX those here
 * (MPI_Iexscan is listed as working there, while no nonblocking reduction does). Neither names
 * neighbourhoods, persistent collectives or MPI_Reduce_local. */
#define LOOM_ALSO_NONBLOCKING {LOOM_ANY_MESSAGES, LOOM_UCX_MESSAGES, LOOM_NO_MESSAGES}
#define LOOM_ONLY_BLOCKING    {LOOM_ANY_MESSAGES, LOOM_NO_MESSAGES,  LOOM_NO_MESSAGES}
#define LOOM_NEVER            {LOOM_NO_MESSAGES,  LOOM_NO_MESSAGES,  LOOM_NO_MESSAGES}
/* Indexed by enum loom_collective, and then enum loom_staged_only. */
LOOM_TABLE struct loom_significance loom_significance_table[LOOM_SIGNIFICANCE_COUNT] = {
    {LOOM_ALLREDUCE, LOOM_REDUCES, LOOM_SIZE_OF_ALL,
     {{LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}, {LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}},
     LOOM_ALL_OR_NONE(LOOM_SAME_BLOCKS), LOOM_ONLY_BLOCKING},
    {LOOM_REDUCE, LOOM_REDUCES | LOOM_HAS_ROOT, LOOM_SIZE_OF_ALL,
     {{LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}, {LOOM_ROOT, LOOM_ONE_BLOCK, 0}},
     LOOM_ROOTS(LOOM_IN, LOOM_SAME_BLOCKS), LOOM_ONLY_BLOCKING},
    {LOOM_REDUCE_SCATTER_BLOCK, LOOM_REDUCES, LOOM_SIZE_OF_ALL,
     {{LOOM_ALL_RANKS, LOOM_BLOCK_EACH, 0}, {LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}},
     LOOM_EACH_BY_ITSELF, LOOM_ONLY_BLOCKING},
    {LOOM_BCAST, LOOM_HAS_ROOT | LOOM_SHARES_BUFFER, LOOM_SIZE_OF_ALL,
     {{LOOM_ROOT, LOOM_ONE_BLOCK, 0}, {LOOM_ALL_BUT_ROOT, LOOM_ONE_BLOCK, 0}},
     LOOM_NOT_IN_PLACE, LOOM_ALSO_NONBLOCKING},
    {LOOM_ALLGATHER, 0, LOOM_SIZE_OF_ALL,
     {{LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}, {LOOM_ALL_RANKS, LOOM_BLOCK_EACH, 0}},
     LOOM_ALL_OR_NONE(LOOM_OWN_BLOCK), LOOM_ALSO_NONBLOCKING},
    {LOOM_ALLTOALL, 0, LOOM_SIZE_OF_ALL,
     {{LOOM_ALL_RANKS, LOOM_BLOCK_EACH, 0}, {LOOM_ALL_RANKS, LOOM_BLOCK_EACH, 0}},
     LOOM_ALL_OR_NONE(LOOM_SAME_BLOCKS), LOOM_ALSO_NONBLOCKING},
    {LOOM_BARRIER, 0, LOOM_NO_SIZE,
     {{LOOM_NO_RANK, LOOM_NO_BLOCK, 0}, {LOOM_NO_RANK, LOOM_NO_BLOCK, 0}},
     LOOM_NOT_IN_PLACE, LOOM_NEVER},
    {LOOM_REDUCE_SCATTER, LOOM_REDUCES, LOOM_SIZE_OF_ALL,
     {{LOOM_ALL_RANKS, LOOM_BLOCK_EACH, LOOM_COUNTS}, {LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}},
     LOOM_EACH_BY_ITSELF, LOOM_ONLY_BLOCKING},
    {LOOM_SCAN, LOOM_REDUCES, LOOM_SIZE_OF_ALL,
     {{LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}, {LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}},
     LOOM_EACH_BY_ITSELF, LOOM_ONLY_BLOCKING},
    {LOOM_EXSCAN, LOOM_REDUCES, LOOM_SIZE_OF_ALL,
     {{LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}, {LOOM_ALL_BUT_FIRST, LOOM_ONE_BLOCK, 0}},
     LOOM_EACH_BY_ITSELF, LOOM_ONLY_BLOCKING},
    {LOOM_GATHER, LOOM_HAS_ROOT, LOOM_SIZE_OF_ALL,
     {{LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}, {LOOM_ROOT, LOOM_BLOCK_EACH, 0}},
     LOOM_ROOTS(LOOM_IN, LOOM_OWN_BLOCK), LOOM_ONLY_BLOCKING},
    {LOOM_GATHERV, LOOM_HAS_ROOT, LOOM_SIZE_OF_PAIRS,
     {{LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}, {LOOM_ROOT, LOOM_BLOCK_EACH, LOOM_COUNTS | LOOM_DISPS}},
     LOOM_ROOTS(LOOM_IN, LOOM_OWN_BLOCK), LOOM_ONLY_BLOCKING},
    {LOOM_SCATTER, LOOM_HAS_ROOT, LOOM_SIZE_OF_ALL,
     {{LOOM_ROOT, LOOM_BLOCK_EACH, 0}, {LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}},
     LOOM_ROOTS(LOOM_OUT, LOOM_OWN_BLOCK), LOOM_ONLY_BLOCKING},
    {LOOM_SCATTERV, LOOM_HAS_ROOT, LOOM_SIZE_OF_PAIRS,
     {{LOOM_ROOT, LOOM_BLOCK_EACH, LOOM_COUNTS | LOOM_DISPS}, {LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}},
     LOOM_ROOTS(LOOM_OUT, LOOM_OWN_BLOCK), LOOM_ONLY_BLOCKING},
    {LOOM_ALLGATHERV, 0, LOOM_SIZE_OF_ALL,
     {{LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}, {LOOM_ALL_RANKS, LOOM_BLOCK_EACH, LOOM_COUNTS | LOOM_DISPS}},
     LOOM_ALL_OR_NONE(LOOM_OWN_BLOCK), LOOM_ALSO_NONBLOCKING},
    {LOOM_ALLTOALLV, 0, LOOM_SIZE_OF_PAIRS,
     {{LOOM_ALL_RANKS, LOOM_BLOCK_EACH, LOOM_COUNTS | LOOM_DISPS},
      {LOOM_ALL_RANKS, LOOM_BLOCK_EACH, LOOM_COUNTS | LOOM_DISPS}},
     LOOM_ALL_OR_NONE(LOOM_SAME_BLOCKS), LOOM_ALSO_NONBLOCKING},
    {LOOM_ALLTOALLW, 0, LOOM_SIZE_OF_PAIRS,
     {{LOOM_ALL_RANKS, LOOM_BLOCK_EACH, LOOM_COUNTS | LOOM_DISPS | LOOM_TYPES},
      {LOOM_ALL_RANKS, LOOM_BLOCK_EACH, LOOM_COUNTS | LOOM_DISPS | LOOM_TYPES}},
     LOOM_ALL_OR_NONE(LOOM_SAME_BLOCKS), LOOM_ALSO_NONBLOCKING},
    {LOOM_NEIGHBOR_ALLGATHER, 0, LOOM_SIZE_OF_ALL,
     {{LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}, {LOOM_ALL_RANKS, LOOM_BLOCK_EACH, 0}},
     LOOM_NOT_IN_PLACE, LOOM_NEVER},
    {LOOM_NEIGHBOR_ALLGATHERV, 0, LOOM_SIZE_OF_PAIRS,
     {{LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}, {LOOM_ALL_RANKS, LOOM_BLOCK_EACH, LOOM_COUNTS | LOOM_DISPS}},
     LOOM_NOT_IN_PLACE, LOOM_NEVER},
    {LOOM_NEIGHBOR_ALLTOALL, 0, LOOM_SIZE_OF_ALL,
     {{LOOM_ALL_RANKS, LOOM_BLOCK_EACH, 0}, {LOOM_ALL_RANKS, LOOM_BLOCK_EACH, 0}},
     LOOM_NOT_IN_PLACE, LOOM_NEVER},
    {LOOM_NEIGHBOR_ALLTOALLV, 0, LOOM_SIZE_OF_PAIRS,
     {{LOOM_ALL_RANKS, LOOM_BLOCK_EACH, LOOM_COUNTS | LOOM_DISPS},
      {LOOM_ALL_RANKS, LOOM_BLOCK_EACH, LOOM_COUNTS | LOOM_DISPS}},
     LOOM_NOT_IN_PLACE, LOOM_NEVER},
    {LOOM_NEIGHBOR_ALLTOALLW, 0, LOOM_SIZE_OF_PAIRS,
     {{LOOM_ALL_RANKS, LOOM_BLOCK_EACH, LOOM_COUNTS | LOOM_DISPS | LOOM_TYPES},
      {LOOM_ALL_RANKS, LOOM_BLOCK_EACH, LOOM_COUNTS | LOOM_DISPS | LOOM_TYPES}},
     LOOM_NOT_IN_PLACE, LOOM_NEVER},
    {LOOM_REDUCE_LOCAL, LOOM_REDUCES | LOOM_UPDATES_RESULT, LOOM_NO_SIZE,
     {{LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}, {LOOM_ALL_RANKS, LOOM_ONE_BLOCK, 0}},
     LOOM_NOT_IN_PLACE, LOOM_NEVER}};
#undef LOOM_NOT_IN_PLACE
#undef LOOM_EACH_BY_ITSELF
#undef LOOM_ALL_OR_NONE
#undef LOOM_ROOTS
#undef LOOM_ALSO_NONBLOCKING
#undef LOOM_ONLY_BLOCKING
#undef LOOM_NEVER
/* clang-format on */

LOOM_QUESTION const struct loom_significance* loom_significance_of(int collective) {
  return &loom_significance_table[collective];
}

LOOM_QUESTION bool loom_reduces(int collective) {
  return (loom_significance_of(collective)->traits & LOOM_REDUCES) != 0;
}

/* A rank's role in a call: the sets that contain it, as bits of enum loom_ranks. */
typedef unsigned loom_role;
LOOM_QUESTION loom_role loom_role_of(int rank, int root) {
  return (unsigned)LOOM_ALL_RANKS | (unsigned)(rank == root ? LOOM_ROOT : LOOM_ALL_BUT_ROOT) |
         (unsigned)(rank == 0 ? LOOM_NO_RANK : LOOM_ALL_BUT_FIRST);
}
/* Between two groups the root gives MPI_ROOT, and the ranks of the group that it serves give its rank. The
 * other ranks of the root's group give MPI_PROC_NULL: they are neither. */
LOOM_QUESTION loom_role loom_role_between_groups(bool is_root, bool is_served) {
  return (unsigned)(is_root ? LOOM_ROOT : LOOM_NO_RANK) |
         (is_served ? (unsigned)LOOM_ALL_RANKS | (unsigned)LOOM_ALL_BUT_ROOT : 0U);
}

/* Apart from MPI_IN_PLACE. */
LOOM_QUESTION bool loom_is_significant(const struct loom_significance* row, enum loom_side side,
                                       loom_role role) {
  return (role & (unsigned)row->sides[side].ranks) != 0;
}

/* How many blocks this side has on this rank, wherever they lie. each: the number for LOOM_BLOCK_EACH. */
LOOM_QUESTION int loom_blocks_of(const struct loom_significance* row, enum loom_side side, loom_role role,
                                 int each) {
  if (!loom_is_significant(row, side, role)) return 0;
  return row->sides[side].blocks == LOOM_BLOCK_EACH ? each : 1;
}

/* Whether this side may be MPI_IN_PLACE on this rank. */
LOOM_QUESTION bool loom_may_be_in_place(const struct loom_significance* row, enum loom_side side,
                                        loom_role role) {
  return row->in_place.side == side && (role & (unsigned)row->in_place.ranks) != 0;
}

/* Which arrays of this side may be read on this rank. Those of a reduction stay significant in place. */
LOOM_QUESTION unsigned loom_arrays_of(const struct loom_significance* row, enum loom_side side,
                                      loom_role role, bool in_place) {
  if (!loom_is_significant(row, side, role)) return 0;
  return in_place && (row->traits & LOOM_REDUCES) == 0 ? 0 : row->sides[side].arrays;
}

/* The side whose count and type give the size that all ranks know: never one that is in place. */
LOOM_QUESTION enum loom_side loom_side_of_size(const struct loom_significance* row, loom_role role) {
  if ((row->traits & LOOM_REDUCES) != 0 || !loom_is_significant(row, LOOM_OUT, role)) return LOOM_IN;
  if (!loom_is_significant(row, LOOM_IN, role)) return LOOM_OUT;
  return row->sides[LOOM_OUT].blocks >= row->sides[LOOM_IN].blocks ? LOOM_OUT : LOOM_IN;
}

/* Whether bytes of a move go from one rank to the other. */
LOOM_QUESTION bool loom_passes(const struct loom_significance* row, loom_role from, loom_role to) {
  return loom_is_significant(row, LOOM_IN, from) && loom_is_significant(row, LOOM_OUT, to);
}

#undef LOOM_TABLE
#undef LOOM_QUESTION
#endif
