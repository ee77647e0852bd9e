/* Who carries a call? Includes coll_loom.h downwards, set-up (setup.h, connecting.h) in its code; perform.h
 * and make_request.h ask it. */
#ifndef LOOM_COMPONENT_MCA_WAY_H
#define LOOM_COMPONENT_MCA_WAY_H

#include "component/mca/coll_loom.h"

/* No rank has a byte to move, which all of them know. Some may never get here: Open MPI itself ends calls
 * with a count of 0, but not those with elements of no size, which are the same to MPI. So nothing may be
 * exchanged for such a call. */
bool coll_loom_is_empty(struct coll_loom_module* self, const struct coll_loom_args* args);

/* Open MPI makes the ids of communicators by small collectives of these forms, on their parents and on the
 * local communicators of intercommunicators. Those of MPI_Comm_idup start from the progress loop, so that
 * their place among the program's calls differs from rank to rank. Below, where calls that wait and calls
 * that do not never meet, they are as safe as without loom. For calls that do not wait; the same on all
 * ranks. */
bool coll_loom_may_make_an_id(const struct coll_loom_args* args);

/* COLL_LOOM_IN_ORDER: in_order.h has to, if anyone. */
enum coll_loom_way {
  COLL_LOOM_BY_LOOM,
  COLL_LOOM_BY_FALLBACK,
  COLL_LOOM_FAILS,
  COLL_LOOM_IN_ORDER,
  COLL_LOOM_DEFERRED
};
enum coll_loom_way coll_loom_way_of(struct coll_loom_module* self, const struct coll_loom_args* args,
                                    enum coll_loom_form form, enum loom_op* op, enum loom_type* type);

/* Counts a call that never comes to the core, and says so once for each kind. op, type: of a reduction, or
 * NULL. */
void coll_loom_fall_back(struct coll_loom_module* self, enum loom_collective collective,
                         enum loom_fallback reason, const struct ompi_op_t* op,
                         const struct ompi_datatype_t* type);

#endif
