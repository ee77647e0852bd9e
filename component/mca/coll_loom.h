/* What the files of the Open MPI glue know of each other. */
#ifndef LOOM_COMPONENT_MCA_COLL_LOOM_H
#define LOOM_COMPONENT_MCA_COLL_LOOM_H

#include "component/core.h"
#include "component/mca/calls.h"
#include "component/mca/ompi_compat.h"
#include "component/mca/operands.h"
#include "component/mca/variables.h"

extern mca_coll_base_component_t mca_coll_loom_component;

extern struct coll_loom_variables coll_loom_variables;

/* register.c: makes the variables and counters known to Open MPI. An OMPI_* error code. */
int coll_loom_register(void);
/* Variables that are out of range get their defaults, once. */
void coll_loom_correct_variables(void);
/* Says which these were, once. One rank shows it for all. */
void coll_loom_complain(bool show);

/* One per communicator.
 *
 *   cold -- first call that loom has a kernel for --> ready | declined | broken
 *   cold | ready -- a call that may not wait, but needs more set-up --> connecting --> ready | declined |
 * broken ready -- a call fails --> broken
 *
 * A declined communicator falls back to the fallback component for good; a broken one fails for good. A ready
 * one whose links cannot be made stays ready: the core declines its calls, save those that need none. */
enum coll_loom_state {
  COLL_LOOM_COLD,
  COLL_LOOM_READY,
  COLL_LOOM_DECLINED,
  COLL_LOOM_BROKEN,
  COLL_LOOM_CONNECTING /* calls are deferred back: deferred.c */
};

/* Of deferred.c. */
struct coll_loom_deferral {
  struct loom_set_up* set_up;
  ompi_request_t* exchange;     /* under way */
  ompi_datatype_t* bytes;       /* of that */
  enum coll_loom_state outcome; /* for the calls that are made again */
  struct coll_loom_deferred *first, **last;
  struct coll_loom_module* next; /* that is connecting, too */
};

/* Of checked_start.c. */
struct coll_loom_starts {
  enum { COLL_LOOM_STARTS_UNDECIDED, COLL_LOOM_STARTS_COMPARED, COLL_LOOM_STARTS_TRUSTED } state;
  uint64_t made, started;                        /* requests */
  struct coll_loom_checked_start *first, **last; /* that are compared, in the order of their starts */
};

struct coll_loom_module {
  mca_coll_base_module_t super;
  enum coll_loom_state state;
  uint32_t
      explained[LOOM_FALLBACK_COUNT]; /* bit 1 << collective: that such calls fall back for this reason */
  uint32_t explained_staging[2]; /* bit 1 << collective: that a buffer was on a device; copied while the call
                                    went on */
  int error;                     /* what calls return while broken */
  struct loom_comm* comm;        /* while ready or broken */
  const uint64_t* small_below;   /* while ready: loom_small_below, or 0 */
  ompi_communicator_t* communicator;
  bool carries[LOOM_COLLECTIVE_COUNT]; /* else the fallback component does */
  bool carries_all;
  struct coll_loom_deferral deferral; /* while connecting */
  struct coll_loom_starts starts;
  bool one_host;                       /* all ranks are on this host: loom carries everything */
  struct loom_streamed_copies* copies; /* of the blocking call that is on its way to coll_loom_perform */
  bool stages; /* there may be buffers on devices, and the entry points look for them */
  struct coll_loom_operands operands; /* of the blocking call */
  bool operands_in_use;
  /* The fallback component, one function and module for each collective: loom holds a reference to the
   * modules from enable to disable. */
#define COLL_LOOM_FALLBACK_MEMBER(api, which)       \
  mca_coll_base_module_##api##_fn_t fallback_##api; \
  mca_coll_base_module_t* fallback_##api##_module;
  COLL_LOOM_APIS(COLL_LOOM_FALLBACK_MEMBER)
#undef COLL_LOOM_FALLBACK_MEMBER
#define COLL_LOOM_FALLBACK_MEMBER(api)              \
  mca_coll_base_module_##api##_fn_t fallback_##api; \
  mca_coll_base_module_t* fallback_##api##_module;
  COLL_LOOM_NEIGHBORHOOD_APIS(COLL_LOOM_FALLBACK_MEMBER)
  COLL_LOOM_FALLBACK_MEMBER(reduce_local)
#undef COLL_LOOM_FALLBACK_MEMBER
};
typedef struct coll_loom_module coll_loom_module_t;
OBJ_CLASS_DECLARATION(coll_loom_module_t);

/* module.c */
mca_coll_base_module_t* coll_loom_comm_query(ompi_communicator_t* communicator, int* priority);

/* entries.c: the fallback component carries a blocking call. Meanwhile it stands in the communicator's table
 * as if there were no loom: up to 5.0, coll/han hands what it cannot do to whoever stands there. */
#define COLL_LOOM_DECLARE_FALLBACK(api, which)                                        \
  int coll_loom_fallback_##api(PARAMS_##api struct ompi_communicator_t* communicator, \
                               struct coll_loom_module* self);
COLL_LOOM_COLLECTIVES(COLL_LOOM_DECLARE_FALLBACK)

/* setup.c: takes a cold module to its next state. Collective. Leaves it cold when this thread is in an
 * exchange of another set-up: the call comes from inside the fallback component and belongs to it. */
void coll_loom_set_up(struct coll_loom_module* self);
/* For the same set-up by a caller that may not wait. */
struct loom_bootstrap coll_loom_bootstrap_of(struct coll_loom_module* self);
/* What the core has answered becomes the module's state. */
enum coll_loom_state coll_loom_state_after(struct coll_loom_module* self, int result);

/* An MPI error class for LOOM_TRUNCATED, or a negative result of the core. */
int coll_loom_error_class(int result);

/* The module fails from now on, because of a negative result of the core. */
void coll_loom_break(struct coll_loom_module* self, int result);
/* The MPI error of a call that has ended so. A negative result breaks the module, LOOM_TRUNCATED does not. */
int coll_loom_failed(struct coll_loom_module* self, int result);

/* allgatherv.c and entries.c: one function for each that the framework has. */
#define COLL_LOOM_DECLARE_BLOCKING(api, which) \
  int coll_loom_##api(PARAMS_##api struct ompi_communicator_t* communicator, mca_coll_base_module_t* module);
#define COLL_LOOM_DECLARE_NOT_WAITING(api, which)                                                       \
  int coll_loom_i##api(PARAMS_##api struct ompi_communicator_t* communicator, ompi_request_t** request, \
                       mca_coll_base_module_t* module);                                                 \
  int coll_loom_##api##_init(PARAMS_##api struct ompi_communicator_t* communicator,                     \
                             struct ompi_info_t* info, ompi_request_t** request,                        \
                             mca_coll_base_module_t* module);
COLL_LOOM_COLLECTIVES(COLL_LOOM_DECLARE_BLOCKING)
COLL_LOOM_COLLECTIVES(COLL_LOOM_DECLARE_NOT_WAITING)

/* Open MPI makes the ids of communicators by small collectives of these forms, on their parents and on the
 * local communicators of intercommunicators. Those of MPI_Comm_idup start from the progress loop, so that
 * their place among the program's calls differs from rank to rank. Below, where calls that wait and calls
 * that do not never meet, they are as safe as without loom. For calls that do not wait; the same on all
 * ranks. */
bool coll_loom_may_make_an_id(const struct coll_loom_args* args);
/* perform.c: who carries a call. COLL_LOOM_IN_ORDER: in_order.c has to, if anyone. */
enum coll_loom_form { COLL_LOOM_BLOCKING_FORM, COLL_LOOM_NONBLOCKING_FORM, COLL_LOOM_PERSISTENT_FORM };
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
/* No rank has a byte to move, which all of them know. Some may never get here: Open MPI itself ends calls
 * with a count of 0, but not those with elements of no size, which are the same to MPI. So nothing may be
 * exchanged for such a call. */
bool coll_loom_is_empty(struct coll_loom_module* self, const struct coll_loom_args* args);
/* False: the fallback component has to carry the call. Else it has ended, with *error. */
bool coll_loom_perform(struct coll_loom_module* self, const struct coll_loom_args* args, int* error);
/* The same answer, from what the core has returned. */
bool coll_loom_has_ended(struct coll_loom_module* self, int result, int* error);

/* request.c: the same for a call that does not wait. A persistent one is not started. */
bool coll_loom_make_request(struct coll_loom_module* self, const struct coll_loom_args* args, bool persistent,
                            ompi_request_t** request, int* error);

/* deferred.c: set-up for calls that may not wait. False: this communicator waits for a call that may. Else a
 * set-up is under way. */
bool coll_loom_start_connecting(struct coll_loom_module* self);
/* True: the call is deferred back until the set-up is over, with *request and *error. Not the exchanges of a
 * set-up, nor what is called from inside one, unless from_anywhere. */
bool coll_loom_defer(struct coll_loom_module* self, const struct coll_loom_args* args, bool from_anywhere,
                     ompi_request_t** request, int* error);
/* In this thread: calls are made again, from inside the progress loop. */
bool coll_loom_is_releasing(void);
/* Waits for that. For calls that may. */
void coll_loom_finish_connecting(struct coll_loom_module* self);
/* The module's state as calls in this thread have to see it. */
enum coll_loom_state coll_loom_state_of(const struct coll_loom_module* self);

/* check.c: whether all ranks make the same call; if not, that has been said, and *error is the same error
 * class on all of them. Collective. */
bool coll_loom_check(struct coll_loom_module* self, const struct coll_loom_args* args,
                     enum coll_loom_form form, int* error);

/* checked_start.c: with coll_loom_check, where the program has promised to start persistent requests in one
 * order, puts one around *request that compares the order. An MPI error class; then *request is freed.
 * Collective. */
int coll_loom_check_starts(struct coll_loom_module* self, enum loom_collective collective,
                           ompi_request_t** request);

/* alltoall_in_place.c: an all-to-all in place, of any of the three kinds, that does not wait. */
int coll_loom_hand_down_in_place(struct coll_loom_module* self, const struct coll_loom_args* call,
                                 bool persistent, struct ompi_info_t* info, ompi_request_t** request);

/* persistent.c: whether the program has promised that all ranks start the communicator's persistent requests
 * in one order. Where it has not, they go to the fallback component, which matches them as they were made.
 *
 * MPI 4.1 has an info key for it, mpi_assert_strict_persistent_collective_ordering, of which Open MPI up
 * to 6.0 takes the first 35 characters at the most: so that is one spelling, and loom's own the other. */
#define COLL_LOOM_ORDERED_STARTS_KEY "coll_loom_ordered_starts"
bool coll_loom_starts_are_ordered(const ompi_communicator_t* communicator);
/* The communicator lives as long as a request of the fallback component on it, which Open MPI's own do not
 * see to: a program may free it before they have ended or, if they are persistent, have started. Returns
 * `error`, that of their making. */
int coll_loom_keep_communicator(ompi_communicator_t* communicator, ompi_request_t* request, int error);

/* setup.c: gathers bytes of all ranks through the fallback component. An MPI error class. */
bool coll_loom_is_gathering(void); /* in this thread: a call of that component's own */
/* From now on; returns what was. */
bool coll_loom_set_gathering(bool yes);
int coll_loom_exchange(struct coll_loom_module* self, const void* in, void* out, size_t bytes_per_rank);

/* filter.c: coll_loom_include and coll_loom_exclude. */
void coll_loom_read_filter(void);
bool coll_loom_takes(enum loom_collective collective);
/* The first name in either list that is no collective of loom's, and which variable has it; NULL if all are
 * known. */
const char* coll_loom_bad_filter(const char** variable);

/* in_order.c: coll_loom_reproducible, where loom's own algorithms do not go in order of rank or carry the
 * call at all. */
bool coll_loom_wants_order(enum loom_type type);
/* Gathers the operands of a reduction from all ranks and reduces them in order of rank. Returns an MPI error
 * class. */
int coll_loom_in_order(struct coll_loom_module* self, const struct coll_loom_args* args, enum loom_op op,
                       enum loom_type type);
/* in_order_request.c: the same for a call that does not wait. A persistent one is not started. */
int coll_loom_make_in_order_request(struct coll_loom_module* self, const struct coll_loom_args* args,
                                    enum loom_op op, enum loom_type type, bool persistent,
                                    ompi_request_t** request);

/* help.c: shows a topic of help-coll-loom.txt; each has up to two %s, for where and cause. */
void coll_loom_find_help(void);
void coll_loom_help(const char* topic, const char* where, const char* cause);

#endif
