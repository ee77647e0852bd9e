/* The arrays of a call (counts, displacements, types): how many elements they have on this rank, and copies
 * of them for calls that start later. Includes operands.h downwards; regions.c, deferred.c and
 * staged_request.c include it. */
#ifndef LOOM_COMPONENT_MCA_ARRAYS_H
#define LOOM_COMPONENT_MCA_ARRAYS_H

#include "component/mca/operands.h"

/* This rank's role in a call. root: as the program gives it, between two groups too. */
loom_role coll_loom_role_of(ompi_communicator_t* communicator, int root);
/* Of a neighbourhood. which: enum loom_collective or loom_staged_only. */
static inline bool coll_loom_is_of_neighbours(int which) {
  return which >= LOOM_COLLECTIVE_COUNT && which != LOOM_REDUCE_LOCAL;
}
/* The blocks of each side that has one for each peer. */
void coll_loom_peers_of(ompi_communicator_t* communicator, int which, int each[LOOM_SIDE_COUNT]);

/* Replaces the arrays that are significant on this rank by copies: bindings (Fortran, mpi4py) may free theirs
 * soon. *memory, for free(), has the copies, or is NULL. False: there is no memory. args->collective may be
 * one of enum loom_staged_only. */
bool coll_loom_keep_arrays(ompi_communicator_t* communicator, struct coll_loom_args* args, void** memory);

#endif
