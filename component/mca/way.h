/* Does loom perform a call, or the fallback component? Includes coll_loom.h downwards, set-up (setup.h,
 * connecting.h) in its code; perform.c and make_request.c ask it. */
#ifndef LOOM_COMPONENT_MCA_WAY_H
#define LOOM_COMPONENT_MCA_WAY_H

#include "component/mca/coll_loom.h"

/* No rank has a byte to move, and all ranks know it. Some ranks may never get here: Open MPI itself ends
 * calls with a count of 0, but not calls with elements of size 0, which are the same to MPI. So the ranks may
 * exchange nothing for such a call. */
bool coll_loom_is_empty(struct coll_loom_module* self, const struct coll_loom_args* args);

/* Open MPI makes the ids of communicators by small collectives of these forms, on their parents and on the
 * local communicators of intercommunicators. Those of MPI_Comm_idup start from the progress loop, so their
 * place among the program's calls differs between ranks. The fallback component never matches a call that
 * waits with one that does not, so there they are as safe as without loom. For calls that do not wait; the
 * same on all ranks. */
bool coll_loom_may_make_an_id(const struct coll_loom_args* args);

/* COLL_LOOM_IN_ORDER: in_order.h, if it can, performs the call. */
enum coll_loom_way {
  COLL_LOOM_BY_LOOM,
  COLL_LOOM_BY_FALLBACK,
  COLL_LOOM_FAILS,
  COLL_LOOM_IN_ORDER,
  COLL_LOOM_DEFERRED
};
enum coll_loom_way coll_loom_way_of(struct coll_loom_module* self, const struct coll_loom_args* args,
                                    enum coll_loom_form form, enum loom_op* op, enum loom_type* type);

/* Whether the fallback component gets the call whatever the ranks find out later: loom never reads or writes
 * its buffers. */
bool coll_loom_always_falls_back(const struct coll_loom_module* self, const struct coll_loom_args* args,
                                 enum coll_loom_form form);

/* Counts a call that never reaches the core, and reports it once for each kind. op, type: of a reduction, or
 * NULL. */
void coll_loom_fall_back(struct coll_loom_module* self, enum loom_collective collective,
                         enum loom_fallback reason, const struct ompi_op_t* op,
                         const struct ompi_datatype_t* type);

#endif
