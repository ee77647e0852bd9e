/* The C face of loom's C++ core: all that the Open MPI glue (the C files of component) and the core know of
 * each other.
 *
 * Open MPI's internal headers do not compile as C++, so the glue is C and nothing of Open MPI passes this
 * line; nothing thrown in the core passes it either.
 *
 * Results: LOOM_SUCCESS; LOOM_DECLINED = "the fallback component is to do this", on every rank of the
 * communicator alike and before any byte has moved; LOOM_TRUNCATED; or a negative LOOM_ERR_*, with which the
 * communicator ends, after a message through loom_runtime.show. */
#ifndef LOOM_COMPONENT_CORE_H
#define LOOM_COMPONENT_CORE_H

#include "device/call.h"

#ifdef __cplusplus
extern "C" {
#endif

enum loom_result {
  LOOM_SUCCESS = 0,
  LOOM_DECLINED = 1,
  LOOM_UNCONNECTED = 2, /* of loom_request_create: the call needs links, which nobody has made yet */
  LOOM_TRUNCATED =
      3, /* the call has ended, without what this rank had no room for; the communicator goes on */
  LOOM_ERR_OUT_OF_MEMORY = -1,
  LOOM_ERR_SYSTEM = -2,      /* an operating system call failed */
  LOOM_ERR_UNREACHABLE = -3, /* no way to reach a peer */
  LOOM_ERR_PEER_FAILED = -4, /* a peer process died */
  LOOM_ERR_TIMEOUT = -5,     /* coll_loom_timeout passed */
  LOOM_ERR_INTERNAL = -6,
  LOOM_ERR_DEVICE = -7,    /* a GPU or its driver fails */
  LOOM_ERR_TRUNCATED = -8, /* as LOOM_TRUNCATED, where the call cannot be ended */
  LOOM_ERR_MISMATCH = -9   /* the ranks do not make the same call */
};

/* Whether the data of a message between hosts is fetched by its receiver. The order is that of
 * ucx_transport/transport.hpp. */
enum loom_rendezvous { LOOM_RENDEZVOUS_AUTO, LOOM_RENDEZVOUS_NEVER, LOOM_RENDEZVOUS_ALWAYS };

/* Values of the MCA variables that the core reads. They may differ between ranks. */
struct loom_parameters {
  int verbose;                     /* 0: silent; 1: one line per communicator; 2: and one per kind of call */
  bool avoid_single_copy;          /* not even where the kernel permits it */
  bool progress_thread;            /* advance nonblocking calls in a thread of their own, too */
  const char* net_devices;         /* network devices in UCX's words; NULL or "": as UCX_NET_DEVICES says */
  enum loom_rendezvous rendezvous; /* of what this rank sends */
  bool only_host_memory;           /* the program has no buffers on devices */
  uint64_t staging_bytes; /* the most host memory that is kept for copies of device buffers; and the most of a
                             GPU's that links take */
  bool reproducible; /* no algorithm whose order of operands depends on the size; if all ranks say the same */
  double timeout_s;  /* longest wait for a peer inside one call; 0: no limit */
  const char* tune;  /* see component/select/tune.hpp; alike on all ranks */
  const char* tune_file;       /* the same text in a file; `tune` counts before it */
  const char* topo_file;       /* describes the hosts, alike on all ranks; NULL or "": look at the hosts */
  const char* topo_dump_file;  /* rank 0 writes its host's description there; NULL or "": nothing */
  const char* graph_file;      /* has the ring of each host, alike on all ranks; NULL or "": search it */
  const char* graph_dump_file; /* rank 0 writes its host's ring there; NULL or "": nothing */
};

/* Messages with a topic in help-coll-loom.txt. */
enum loom_message {
  LOOM_MESSAGE_DECLINED,    /* set-up failed somewhere; all ranks use the fallback component */
  LOOM_MESSAGE_PEER_FAILED, /* a peer died, or its connection broke, inside a call */
  LOOM_MESSAGE_GIVEN_UP,    /* a peer cannot go on; it shows a message itself */
  LOOM_MESSAGE_TIMEOUT,     /* coll_loom_timeout passed inside a call */
  LOOM_MESSAGE_BOOTSTRAP,   /* the fallback component failed while the ranks met through it */
  LOOM_MESSAGE_RESOURCES,   /* memory or another resource ran out inside a call */
  LOOM_MESSAGE_DEVICE,      /* copying a device buffer failed */
  LOOM_MESSAGE_TRUNCATED,   /* a call has ended without what did not fit; the communicator goes on */
  LOOM_MESSAGE_MISMATCH,    /* the ranks do not make the same call */
  LOOM_MESSAGE_INTERNAL     /* a defect of loom */
};

/* What the core needs of the MPI library; one per process, given once to loom_initialize. */
struct loom_runtime {
  void (*progress)(void);        /* let the MPI library progress; called by whoever waits */
  bool (*yield_when_idle)(void); /* the launcher says that ranks outnumber cores */
  /* Calls callback from the library's progress loop at low priority until it is unregistered. */
  void (*register_progress)(int (*callback)(void));
  void (*unregister_progress)(int (*callback)(void));
  /* Shows a message to the user. where: the communicator and rank; cause: one or more whole sentences. */
  void (*show)(enum loom_message message, const char* where, const char* cause);
  void (*log)(const char* line); /* coll_loom_verbose output, without a newline */
  struct loom_parameters parameters;
};

/* How the ranks of one communicator find each other before loom has connected them: the previous component.
 * The context must outlive the loom_comm: links are made by the first call that needs them. */
struct loom_bootstrap {
  void* context;
  int rank, size;
  /* Gathers bytes_per_rank bytes of every rank, in rank order, into out (size * bytes_per_rank bytes; in and
   * out do not overlap). Returns 0, or another value when the communication itself failed. */
  int (*all_gather)(void* context, const void* in, void* out, size_t bytes_per_rank);
  /* Reduces n words of every rank by LOOM_MAX or LOOM_SUM into out, on every rank. Returns as all_gather. */
  int (*all_reduce)(void* context, const uint64_t* in, uint64_t* out, size_t n, enum loom_op op);
  const char* name;       /* of the communicator, for messages; copied by loom_comm_create */
  bool alone;             /* the job has no other rank: what is written and checked once per job is so here */
  bool looks_for_devices; /* this rank calls loom_perform_on_device where others may */
};

/* Why a call falls back to the fallback component; the order is that of component/select/algorithms.hpp. */
enum loom_fallback {
  LOOM_NO_KERNEL,     /* loom has no such operation on such a type */
  LOOM_NOT_CONNECTED, /* the ranks are not connected: that failed, or a call that may not wait came first */
  LOOM_NOT_BETTER,    /* the fallback component is at least as good at it */
  LOOM_NOT_ORDERED, /* it may be one of Open MPI's own, whose place among the program's calls is not the same
                       on all ranks */
  LOOM_ANY_START_ORDER, /* it is persistent, and its ranks may start such requests in different orders */
  LOOM_FALLBACK_COUNT
};
enum { LOOM_ALGORITHM_COUNT = 10 }; /* of component/select/algorithms.hpp, without the fallback component */

/* Names as in variables: "reduce_scatter_block", "single_copy", "no_kernel". */
const char* loom_collective_name(enum loom_collective collective);
const char* loom_algorithm_name(int algorithm);
const char* loom_fallback_name(enum loom_fallback reason);

/* Counters since start-up; each only grows. Users read them through MPI_T. */
struct loom_collective_counters {
  uint64_t calls;     /* that loom carried */
  uint64_t bytes;     /* of these on this rank: the message's, or a block's where the collective has blocks */
  uint64_t fallbacks; /* calls that the fallback component got */
  uint64_t by[LOOM_ALGORITHM_COUNT];
  uint64_t fallbacks_by[LOOM_FALLBACK_COUNT];
};
struct loom_counters {
  uint64_t communicators;  /* communicators that loom has connected */
  uint64_t declined;       /* communicators that loom stepped aside from */
  uint64_t net_bytes_sent; /* bytes that this process sent to other hosts */
  uint64_t staged_bytes;   /* bytes copied from devices to the host and back */
  struct loom_collective_counters of[LOOM_COLLECTIVE_COUNT];
};

struct loom_comm;

/* Copies *runtime. Allocates nothing. */
void loom_initialize(const struct loom_runtime* runtime);

/* Ends the process's network connections. No loom_comm may exist. */
void loom_finalize(void);

/* Lets the ranks of a communicator meet. Collective. LOOM_SUCCESS and *out on every rank, or LOOM_DECLINED
 * (after one message with the cause) on every rank; another result only if the bootstrap itself failed. */
int loom_comm_create(const struct loom_bootstrap* bootstrap, struct loom_comm** out);

/* The same for a caller that may not wait, which performs the exchanges of the set-up: all ranks the same
 * ones in the same order. comm NULL: lets the ranks meet; else makes the links of that communicator. The
 * functions of the bootstrap have to go together with those exchanges. */
struct loom_set_up;
enum loom_set_up_state {
  LOOM_SET_UP_WAITS,     /* for what other ranks do: come by again */
  LOOM_SET_UP_EXCHANGES, /* come by again after *next */
  LOOM_SET_UP_DONE
};
struct loom_exchange {
  const void* in;
  void* out;
  size_t bytes_per_rank; /* of loom_bootstrap.all_gather */
  size_t words;          /* not 0: of loom_bootstrap.all_reduce */
  enum loom_op op;
};
/* NULL: there is no memory or no thread for it; then loom_set_up_now does the same while it waits, and
 * returns the same. */
struct loom_set_up* loom_set_up_create(const struct loom_bootstrap* bootstrap, struct loom_comm* comm);
int loom_set_up_now(const struct loom_bootstrap* bootstrap, struct loom_comm* comm, struct loom_comm** out);
/* exchanged: what the exchange of the last call returned. */
enum loom_set_up_state loom_set_up_advance(struct loom_set_up* set_up, int exchanged,
                                           struct loom_exchange* next);
/* Frees it. The result is that of loom_comm_create, or where there was a comm LOOM_SUCCESS, with links or
 * without. */
int loom_set_up_finish(struct loom_set_up* set_up, struct loom_comm** out);

/* Frees what loom_comm_create made; not collective, never waits for a peer. */
void loom_comm_destroy(struct loom_comm* comm);

/* Collective; LOOM_DECLINED depends on (collective, count, type, op) and the communicator alone. The first
 * call that needs links makes them, through the bootstrap; if that fails, one message says why, and such
 * calls are declined. */
int loom_perform(struct loom_comm* comm, const struct loom_call* call);

/* The same for small calls, which consist of their instructions: those up to LOOM_BARRIER of contiguous
 * buffers, not empty, in which a rank offers fewer bytes than loom_small_below()[collective]: the message, or
 * n blocks of a reduce_scatter_block and an alltoall. It is 0 where no call is small, and changes when the
 * ranks are connected or fail; read it atomically. */
const uint64_t* loom_small_below(const struct loom_comm* comm);
struct loom_kind { /* of a size that fits a register */
  uint8_t collective, type, op;
  int32_t root;
};
/* Never LOOM_DECLINED. */
int loom_perform_small(struct loom_comm* comm, const void* in, void* out, uint64_t count,
                       struct loom_kind kind);

/* The same for buffers that may lie on GPUs, before anybody stages them: LOOM_DECLINED on all ranks unless
 * all have theirs there and an executor for them. */
int loom_perform_on_device(struct loom_comm* comm, const struct loom_call* call);

/* A call that does not wait: planned once, started any number of times, one after the other. The requests of
 * a communicator are performed in the order in which they were started, from the MPI library's progress loop
 * and whatever else waits. */
struct loom_request;
/* Called once for each start, when the result is in place or the call has failed; maybe before
 * loom_request_start returns, and maybe in another thread. It must not call loom, save loom_request_destroy.
 */
typedef void (*loom_request_done)(void* context, int result);
/* Not persistent: LOOM_UNCONNECTED where the links have to be made first. Persistent: makes them here, which
 * is collective. All ranks have to start the persistent requests of a communicator in one order, and the
 * others in another: the two do not meet. Copies *call, not what it points to. LOOM_DECLINED as loom_perform.
 */
int loom_request_create(struct loom_comm* comm, const struct loom_call* call, bool persistent,
                        loom_request_done done, void* context, struct loom_request** out);
void loom_request_start(struct loom_request* call);
/* The request is not started, or done. */
void loom_request_destroy(struct loom_request* call);

/* This rank cannot go on: its peers' calls fail soon, and so does every later one here. */
void loom_comm_abandon(struct loom_comm* comm);
/* The same, for a communicator whose failure the user has been told. Not from inside a call. */
void loom_comm_leave(struct loom_comm* comm);

/* coll_loom_tune keeps calls on GPUs by some algorithm. False also where it is wrong, which the set-up tells.
 */
bool loom_wants_devices(void);

/* Buffers on devices. The CPU cannot use them: host memory stands in for each while a call goes on
 * (device/cuda/staging.hpp). Whether a rank has any is its own affair. */

/* Whether there may be such buffers: CUDA's driver is there. Looked for by loom_initialize, and here again
 * among the libraries that the process has loaded since. */
bool loom_may_have_device_memory(void);

/* LOOM_SUCCESS and *yes, or LOOM_ERR_DEVICE. where: for messages, as in the following. */
int loom_is_on_device(const void* address, const char* where, bool* yes);

/* Rows of bytes that lie alike in the buffer and in its staging buffer. As device::cuda::StridedRegion. */
struct loom_strided_region {
  void *device, *host;
  uint64_t row_bytes, rows, pitch;
};
/* Host memory for the regions of the device buffer that `address` is in, all at one distance from where they
 * are. */
struct loom_staging_buffer;
int loom_staging_buffer_create(const void* address, struct loom_strided_region* load, uint64_t loads,
                               struct loom_strided_region* store, uint64_t stores, const char* where,
                               struct loom_staging_buffer** out, ptrdiff_t* distance);
void loom_staging_buffer_destroy(struct loom_staging_buffer* staging_buffer);

/* Copies after what the program has put into the default stream, and is done on return. */
int loom_copy_regions(struct loom_staging_buffer* staging_buffer, const struct loom_strided_region* regions,
                      uint64_t n, bool to_device, const char* where);

/* Copies that go on while loom_perform does, of contiguous buffers (device/cuda/streamed_copies.hpp). NULL:
 * that cannot be had, and nothing has been copied. load, store: a region of the staging buffer, which must
 * outlive the copies, or NULL. */
struct loom_streamed_copies;
struct loom_streamed_side {
  struct loom_staging_buffer* staging_buffer;
  const struct loom_strided_region *load, *store;
};
struct loom_streamed_copies* loom_streamed_copies_create(const struct loom_streamed_side* sides, size_t n);
/* All operands are there: for whoever else performs the call. */
int loom_streamed_copies_need_all(struct loom_streamed_copies* copies, const char* where);
/* All results are in the program's buffers. */
int loom_streamed_copies_finish(struct loom_streamed_copies* copies, const char* where);
/* Waits for copies on their way. */
void loom_streamed_copies_destroy(struct loom_streamed_copies* copies);

/* Whether the bits of such a result may depend on the order of the operands. */
bool loom_depends_on_order(enum loom_type type);
/* out = the op over n operands that lie one behind the other, in that order. They have a kernel; n >= 2. */
void loom_reduce_in_order(const void* operands, int n, uint64_t count, enum loom_type type, enum loom_op op,
                          void* out);

/* The counters of this process as they are now; from any thread. All zero before loom_initialize. */
void loom_read_counters(struct loom_counters* out);
/* For the glue's own share: calls that never reach the core. */
void loom_count_fallback(enum loom_collective collective, enum loom_fallback reason);

#ifdef __cplusplus
}
#endif

#endif
