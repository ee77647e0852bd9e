/* The data that the files of the glue share: the module of a communicator, and what exists once per process.
 * The functions of each file are in a header of its own.
 *
 * Includes go downwards; a file of one line includes only headers of the lines below it:
 *
 *   module.c, component.c
 *   staged.h                     what Open MPI calls, if a buffer may be on a device
 *   entries.h (allgatherv.c too) what Open MPI calls
 *   device.h, staged_request.h   calls with buffers on devices
 *   perform.h, make_request.h    a call that waits, and one that does not
 *   staging.h                    copies of buffers on devices
 *   way.h, cuda_aware.h          who carries a call, and whether the fallback component takes such buffers
 *   connecting.h                 set-up that goes on while the program does
 *   core_request.h, in_order_request.c, alltoall_in_place.h, checked_start.h, deferred.h    kinds of requests
 *   check.h, in_order.h
 *   held.h                       calls that cannot start yet, and those after them
 *   setup.h                      set-up that waits; failures
 *   exchange.h                   exchanges of a set-up
 *   fallback.h                   blocking calls of the fallback component
 *   coll_loom.h
 *   wrapper_request.h            a request around another one
 *   request_base.h               what all of loom's requests share
 *   regions.h                    which bytes a call reads and writes
 *   fallback_request.h
 *   handles.h                    types and operations that persistent requests keep
 *   persistent.h, arrays.h, operands.h, calls.h, kernels.h, ompi_compat.h */
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
/* Gives variables that are out of range their defaults, once. */
void coll_loom_correct_variables(void);
/* Reports these variables, once. show: this rank does it for all. */
void coll_loom_complain(bool show);

/* One per communicator.
 *
 *   cold -- first call that loom has a kernel for --> ready | declined | broken
 *   cold | ready -- a call that may not wait but needs more set-up --> connecting
 *   connecting -- the set-up is over --> ready | declined | broken
 *   ready -- a call fails --> broken
 *   cold | connecting -- this rank cannot take part in a call --> broken
 *
 * All later calls of a declined communicator fall back; those of a broken one fail. A ready communicator
 * whose links cannot be made stays ready: the core declines the calls that need links. */
enum coll_loom_state {
  COLL_LOOM_COLD,
  COLL_LOOM_READY,
  COLL_LOOM_DECLINED,
  COLL_LOOM_BROKEN,
  COLL_LOOM_CONNECTING /* calls are deferred: connecting.h */
};

/* Of deferred.h: calls in their order. */
struct coll_loom_deferred_queue {
  struct coll_loom_deferred *first, **last;
};

/* Of exchange.h. */
struct coll_loom_exchanging {
  struct loom_exchange wanted;
  int step;     /* that is under way */
  int receives; /* so many of the requests are; the others send */
  int under_way;
  bool is_pending, is_left; /* is_left: the others have been told */
  unsigned tests;           /* of an exchange with peers */
  ompi_request_t **requests, *few_requests[4];
  uint64_t mine[LOOM_MOST_EXCHANGED_WORDS], heard[LOOM_MOST_EXCHANGED_WORDS];
};

/* Of connecting.h. */
struct coll_loom_connection {
  struct loom_set_up* set_up;
  bool exchanges;               /* an exchange of the set-up is under way */
  double looked;                /* when the set-up last looked after its ranks: PMPI_Wtime */
  double left;                  /* when another rank was found to have left, or 0; until the set-up knows */
  enum coll_loom_state outcome; /* for the calls that are made again */
  struct coll_loom_deferred_queue deferred;
  struct coll_loom_module* next; /* in the list of connecting modules */
};

/* Of checked_start.h. */
struct coll_loom_starts {
  enum { COLL_LOOM_STARTS_UNDECIDED, COLL_LOOM_STARTS_COMPARED, COLL_LOOM_STARTS_TRUSTED } state;
  uint64_t made, started;                        /* requests */
  struct coll_loom_checked_start *first, **last; /* being compared, in the order of their starts */
};

/* Of held.h: calls in their order. */
struct coll_loom_held_queue {
  struct coll_loom_held *first, *last;
  struct coll_loom_module* next_module; /* in the list of modules that hold calls */
};

/* A blocking call with staging buffers. */
struct coll_loom_staged_call {
  struct loom_streamed_copies* copies; /* for loom_call.streaming; or NULL: its operands are there */
  /* The call with its staging buffers; if loom declines it, the fallback component gets the program's buffers
   * as they are, and `fell_back` is set. NULL: coll_loom_perform gets the staging buffers itself. */
  const struct coll_loom_args* args;
  bool fell_back;
};

struct coll_loom_module {
  mca_coll_base_module_t super;
  enum coll_loom_state state;
  uint32_t
      explained[LOOM_FALLBACK_COUNT]; /* bit 1 << collective: that such calls fall back for this reason */
  uint32_t explained_staging[2]; /* bit 1 << collective: that a buffer was on a device; [1]: and was copied
                                    during the call */
  int error;                     /* what calls return while broken */
  bool has_settled;              /* coll_loom_settled_error has waited */
  bool checks_have_ended;        /* of check.h: calls fail */
  bool orders_differ;            /* the ranks have found that coll_loom_reproducible does */
  struct loom_comm* comm;        /* while ready or broken; NULL: broken before there was one */
  const struct loom_fast_below* fast_below; /* while ready: loom_fast_below_of, or zeros */
  ompi_communicator_t* communicator;
  bool carries[LOOM_COLLECTIVE_COUNT]; /* else the fallback component does */
  bool carries_all;
  struct coll_loom_exchanging exchanging;
  bool has_left;                          /* this rank takes part in no exchange any more */
  struct coll_loom_connection connection; /* while connecting */
  struct coll_loom_starts starts;
  struct coll_loom_held_queue held;
  bool one_host; /* all ranks are on this host, as each of them knows: loom performs everything */
  bool of_jobs;  /* the ranks are of several jobs: Open MPI tells these different things of who is where */
  bool found_one_host; /* of_jobs: ranks have connected, and found that all are on one host */
  struct coll_loom_staged_call* staged; /* the blocking call that coll_loom_perform gets next, or NULL */
  bool stages;        /* there may be buffers on devices, and the entry points look for them */
  bool wants_devices; /* and algorithms on GPUs may carry calls */
  struct coll_loom_operands operands; /* of the blocking call */
  bool operands_in_use;
  /* The fallback component: a function and a module for each collective. loom holds a reference to the
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

/* Of ranks of several jobs only once they are connected; the same on all ranks. */
static inline bool coll_loom_is_on_one_host(const struct coll_loom_module* self) {
  return self->one_host || __atomic_load_n(&self->found_one_host, __ATOMIC_RELAXED);
}
OBJ_CLASS_DECLARATION(coll_loom_module_t);

/* module.c */
mca_coll_base_module_t* coll_loom_comm_query(ompi_communicator_t* communicator, int* priority);

/* filter.c: coll_loom_include and coll_loom_exclude. */
void coll_loom_read_filter(void);
bool coll_loom_takes(enum loom_collective collective);
/* The first name in either list that is no collective of loom's, and the variable that contains it; NULL if
 * all names are known. */
const char* coll_loom_bad_filter(const char** variable);

/* help.c: shows a topic of help-coll-loom.txt, which has up to two %s, for where and cause. */
void coll_loom_find_help(void);
void coll_loom_help(const char* topic, const char* where, const char* cause);

#endif
