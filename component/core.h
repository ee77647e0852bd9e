/* The C interface of loom's C++ core: all that the Open MPI glue (the C files of component) and the core know
 * of each other.
 *
 * Open MPI's internal headers do not compile as C++, so the glue is C. Nothing of Open MPI crosses this
 * interface, and no exception of the core does.
 *
 * Results: LOOM_SUCCESS; LOOM_DECLINED = the fallback component has to perform the call, on every rank of the
 * communicator alike and before any byte has moved; LOOM_TRUNCATED; or a negative LOOM_ERR_*, which ends the
 * communicator, after a message through loom_runtime.show. */
#ifndef LOOM_COMPONENT_CORE_H
#define LOOM_COMPONENT_CORE_H

#include "device/call.h"

#ifdef __cplusplus
extern "C" {
#endif

enum loom_result {
  LOOM_SUCCESS = 0,
  LOOM_DECLINED = 1,
  LOOM_UNCONNECTED = 2, /* of loom_request_create: the call needs links, which have not been made yet */
  LOOM_TRUNCATED = 3,   /* the call has ended without the data that did not fit; the communicator goes on */
  LOOM_NOT_COPIED = 4,  /* the call has ended, but its results could not be copied to the device; likewise */
  LOOM_NO_LANE = 5,     /* of loom_request_create: LOOM_DECLINED, for want of memory of the request's own */
  LOOM_ERR_OUT_OF_MEMORY = -1,
  LOOM_ERR_SYSTEM = -2,      /* an operating system call failed */
  LOOM_ERR_UNREACHABLE = -3, /* no way to reach a peer */
  LOOM_ERR_PEER_FAILED = -4, /* a peer process died */
  LOOM_ERR_TIMEOUT = -5,     /* coll_loom_timeout passed */
  LOOM_ERR_INTERNAL = -6,
  LOOM_ERR_DEVICE = -7,    /* a GPU or its driver fails */
  LOOM_ERR_TRUNCATED = -8, /* as LOOM_TRUNCATED, but the call cannot be completed */
  LOOM_ERR_MISMATCH = -9,  /* the ranks do not make the same call */
  LOOM_ERR_REVOKED = -10   /* the program has revoked the communicator */
};

/* Whether the receiver of a message between hosts fetches its data. The order is that of
 * ucx_transport/transport.hpp. */
enum loom_rendezvous { LOOM_RENDEZVOUS_AUTO, LOOM_RENDEZVOUS_NEVER, LOOM_RENDEZVOUS_ALWAYS };

/* loom_parameters.staging_bytes where the user says nothing. */
enum { LOOM_STAGING_BYTES = 256 << 20 };

/* Values of the MCA variables that the core reads. They may differ between ranks. */
struct loom_parameters {
  int verbose;                     /* 0: silent; 1: one line per communicator; 2: and one per kind of call */
  bool avoid_single_copy;          /* even where the kernel permits it */
  bool progress_thread;            /* a thread of its own advances nonblocking calls, too */
  const char* net_devices;         /* as in UCX_NET_DEVICES; NULL or "": what that says */
  enum loom_rendezvous rendezvous; /* for the messages that this rank sends */
  bool only_host_memory;           /* the program has no buffers on devices */
  uint64_t lane_bytes;    /* most memory for the lanes of one communicator; the least of all ranks counts */
  uint64_t staging_bytes; /* most host memory kept for copies of device buffers, and most memory of a GPU that
                             links take */
  bool reproducible; /* no algorithm whose order of operands depends on the size; if all ranks say the same */
  double timeout_s;  /* longest wait for a peer inside one call; 0: no limit */
  const char* tune;  /* see component/select/tune.hpp; alike on all ranks */
  const char* tune_file;       /* the same text in a file; the rules of `tune` override it */
  const char* topo_file;       /* describes the hosts, alike on all ranks; NULL or "": look at the hosts */
  const char* topo_dump_file;  /* rank 0 writes its host's description there; NULL or "": nothing */
  const char* graph_file;      /* has the channels of GPUs, alike on all ranks; NULL or "": search them */
  const char* graph_dump_file; /* rank 0 writes the channels there; NULL or "": nothing */
};

/* Messages with a topic in help-coll-loom.txt. */
enum loom_message {
  LOOM_MESSAGE_DECLINED,    /* set-up failed somewhere; all ranks use the fallback component */
  LOOM_MESSAGE_PEER_FAILED, /* a peer died, or its connection broke, inside a call */
  LOOM_MESSAGE_GIVEN_UP,    /* a peer cannot go on, and shows the message itself */
  LOOM_MESSAGE_TIMEOUT,     /* coll_loom_timeout passed inside a call */
  LOOM_MESSAGE_BOOTSTRAP,   /* the fallback component failed in an exchange of the set-up */
  LOOM_MESSAGE_RESOURCES,   /* memory or another resource ran out inside a call */
  LOOM_MESSAGE_DEVICE,      /* copying a device buffer failed */
  LOOM_MESSAGE_TRUNCATED,   /* a call has ended without the data that did not fit */
  LOOM_MESSAGE_MISMATCH,    /* the ranks do not make the same call */
  LOOM_MESSAGE_REVOKED,     /* the program has revoked the communicator while a call waited */
  LOOM_MESSAGE_UNFIT_GRAPH, /* a communicator's GPUs do not run the channels of coll_loom_graph_file */
  LOOM_MESSAGE_INTERNAL     /* a defect of loom */
};

/* What the core needs of the MPI library; one per process, given once to loom_initialize. */
struct loom_runtime {
  void (*progress)(void);        /* lets the MPI library progress; called while loom waits */
  bool (*yield_when_idle)(void); /* the launcher says that ranks outnumber cores */
  /* Calls callback from the library's progress loop until it is unregistered; where it is not urgent, not in
   * every turn. */
  void (*register_progress)(int (*callback)(void), bool urgent);
  void (*unregister_progress)(int (*callback)(void));
  /* Whether its own messages move device memory, which they may share with other processes. NULL: they do
   * not. Not before it is initialised. */
  bool (*moves_device_memory)(void);
  /* Shows a message to the user. where: the communicator and rank; cause: one or more whole sentences. */
  void (*show)(enum loom_message message, const char* where, const char* cause);
  void (*log)(const char* line); /* coll_loom_verbose output, without a newline */
  /* Seconds of a clock that never goes back, by which calls are timed. NULL: the system's, or that of a
   * driver which keeps time of its own (device/cuda/driver.hpp). */
  double (*now)(void);
  struct loom_parameters parameters;
};

/* An exchange between all ranks of a communicator. in and out do not overlap. */
struct loom_exchange {
  const void* in;
  void* out;
  size_t bytes_per_rank; /* gathers so many bytes of every rank, in rank order, into out */
  size_t words;          /* not 0: instead, of each of so many uint64_t the largest over all ranks into out */
  /* Not NULL: gathers from these ranks alone, in this order. Each of them gathers from this rank, too. Ranks
   * without any take part. */
  const int* peers;
  int peer_count;
  void** requests; /* then: memory for two pointers of each peer */
};
enum { LOOM_MOST_EXCHANGED_WORDS = 72 };
/* What has become of it. */
enum loom_exchanged {
  LOOM_EXCHANGED,
  LOOM_EXCHANGE_FAILED,   /* the communication itself */
  LOOM_EXCHANGE_GIVEN_UP, /* by this rank, as its watch says, */
  LOOM_EXCHANGE_LEFT,     /* or by another one, here or before */
  LOOM_EXCHANGE_PENDING
};
/* How an exchange stands that is pending. */
struct loom_standing {
  int steps;   /* that are over */
  int awaited; /* this rank, which after the first step may itself wait for another one */
};
/* What the MPI library knows of a communicator. */
struct loom_health {
  int result; /* LOOM_SUCCESS, LOOM_ERR_REVOKED, or LOOM_ERR_PEER_FAILED: */
  int failed; /* this rank has, maybe among others; -1: it does not say which one */
};
/* To be asked now and then while an exchange waits; false: this rank gives it up. */
struct loom_watch {
  bool (*goes_on)(void* context);
  void* context;
};

/* The exchanges of one communicator's ranks before loom has connected them. The context must outlive the
 * loom_comm: the first call that needs links makes them. */
struct loom_bootstrap {
  void* context;
  int rank, size;
  /* Waits: never pending. Memory that is gathered from and into must stay if it fails or is given up, for its
   * messages may come late. */
  enum loom_exchanged (*exchange)(void* context, const struct loom_exchange* exchange,
                                  const struct loom_watch* watch);
  struct loom_standing (*standing)(void* context);
  /* Asked now and then while a rank waits. NULL: the library learns nothing of failed ranks. */
  struct loom_health (*health)(void* context);
  const char* name;       /* of the communicator, for messages; copied by loom_comm_create */
  bool alone;             /* the job has no other rank: this one writes and checks what is per job */
  bool looks_for_devices; /* this rank calls loom_perform_on_device where other ranks may */
  bool* orders_differ;    /* set on all ranks if they differ in coll_loom_reproducible; may be NULL */
};

/* Why a call falls back to the fallback component; the order is that of component/select/algorithms.hpp. */
enum loom_fallback {
  LOOM_NO_KERNEL,     /* loom has no such operation on such a type */
  LOOM_NOT_CONNECTED, /* the ranks are not connected: that failed, or a call that may not wait came first */
  LOOM_NOT_BETTER,    /* the fallback component is at least as good at it */
  LOOM_NOT_ORDERED, /* it may be one of Open MPI's own, whose place among the program's calls differs between
                       ranks */
  LOOM_ANY_START_ORDER, /* it is persistent, its ranks may start such requests in different orders, and there
                           is no lane for it */
  LOOM_FALLBACK_COUNT
};
enum { LOOM_ALGORITHM_COUNT = 15 }; /* of component/select/algorithms.hpp, without the fallback component */

/* Names as in variables: "reduce_scatter_block", "single_copy", "no_kernel". */
const char* loom_collective_name(enum loom_collective collective);
const char* loom_algorithm_name(int algorithm);
const char* loom_fallback_name(enum loom_fallback reason);

/* Whether some algorithm carries such calls on host memory, for ranks of one host or of several; and whether
 * some such algorithm takes copies (loom_call.streaming). Which one it is turns out after the set-up. */
bool loom_may_carry(enum loom_collective collective, bool one_host);
bool loom_may_stream(enum loom_collective collective, bool one_host);
/* The same on buffers that lie on GPUs on all ranks. */
bool loom_may_carry_on_devices(enum loom_collective collective, bool one_host);
/* Whether a call that does not wait may be one of Open MPI's own, which come in no fixed order with the
 * program's. op: of a reduction. */
bool loom_may_make_an_id(enum loom_collective collective, uint64_t bytes, enum loom_op op,
                         enum loom_type type);

/* Counters since start-up; each only grows. Users read them through MPI_T. */
struct loom_collective_counters {
  /* Of the calls that loom performed, on this rank: the message's, or a block's where there are blocks. */
  uint64_t bytes;
  uint64_t by[LOOM_ALGORITHM_COUNT];          /* calls that loom performed */
  uint64_t fallbacks_by[LOOM_FALLBACK_COUNT]; /* calls that fell back */
};
struct loom_counters {
  uint64_t communicators;  /* communicators that loom has connected */
  uint64_t declined;       /* communicators whose set-up failed: they fall back */
  uint64_t net_bytes_sent; /* bytes that this process sent to other hosts */
  uint64_t staged_bytes;   /* bytes copied from devices to the host and back */
  struct loom_collective_counters of[LOOM_COLLECTIVE_COUNT];
};

struct loom_comm;

/* Copies *runtime. Allocates nothing. */
void loom_initialize(const struct loom_runtime* runtime);

/* Ends the process's network connections. No loom_comm may exist. */
void loom_finalize(void);

/* Sets a communicator up. Collective. LOOM_SUCCESS and *out on every rank, or LOOM_DECLINED (after one
 * message with the cause) on every rank; another result only if the bootstrap itself failed. */
int loom_comm_create(const struct loom_bootstrap* bootstrap, struct loom_comm** out);

/* The same for a caller that may not wait. The caller performs the exchanges of the set-up: all ranks the
 * same ones in the same order. comm NULL: sets a communicator up; else makes that communicator's links. */
struct loom_set_up;
enum loom_set_up_state {
  LOOM_SET_UP_WAITS,     /* for other ranks: advance again */
  LOOM_SET_UP_EXCHANGES, /* advance again after the exchange *next */
  LOOM_SET_UP_DONE
};
/* NULL: there is no memory or no thread for it. Then loom_set_up_now does the same, but waits; its result is
 * that of loom_set_up_finish. */
struct loom_set_up* loom_set_up_create(const struct loom_bootstrap* bootstrap, struct loom_comm* comm);
int loom_set_up_now(const struct loom_bootstrap* bootstrap, struct loom_comm* comm, struct loom_comm** out);
/* exchanged: what has become of the exchange that the last call asked for. While it is pending this has the
 * set-up look after its ranks: LOOM_SET_UP_DONE gives the exchange up. LOOM_EXCHANGE_LEFT, if the set-up
 * waits for something else: this rank leaves. */
enum loom_set_up_state loom_set_up_advance(struct loom_set_up* set_up, enum loom_exchanged exchanged,
                                           struct loom_exchange* next);
/* Frees it. The result is that of loom_comm_create; if comm was given, LOOM_SUCCESS, with or without links.
 */
int loom_set_up_finish(struct loom_set_up* set_up, struct loom_comm** out);

/* Frees what loom_comm_create made. Not collective; never waits for a peer. */
void loom_comm_destroy(struct loom_comm* comm);
/* Whether what this thread destroys may wait for all work of a GPU, as CUDA does before it frees memory: true
 * at first, and false where a request ends. Returns what it was. */
bool loom_set_may_wait_for_gpus(bool may);

/* Collective; LOOM_DECLINED depends on (collective, count, type, op) and the communicator alone. The first
 * call that needs links makes them, through the bootstrap; if that fails, one message says why, and such
 * calls are declined. */
int loom_perform(struct loom_comm* comm, const struct loom_call* call);

/* The fast paths of small calls, in whose time every instruction shows: collectives up to LOOM_BARRIER on
 * contiguous buffers, not empty, where a rank offers fewer bytes than these, by collective. A rank
 * offers the message; of a reduce_scatter_block and an alltoall n blocks. A limit is 0 where no call is
 * small, and changes when the ranks are connected or fail; read it atomically. */
struct loom_fast_below {
  uint64_t small[LOOM_BARRIER + 1];  /* loom_perform_small */
  uint64_t middle[LOOM_BARRIER + 1]; /* above that: loom_perform_middle, whose calls may be probed */
};
const struct loom_fast_below* loom_fast_below_of(const struct loom_comm* comm);
struct loom_kind { /* fits a register */
  uint8_t collective, type, op;
  int32_t root;
};
/* Never LOOM_DECLINED. */
int loom_perform_small(struct loom_comm* comm, const void* in, void* out, uint64_t count,
                       struct loom_kind kind);
/* LOOM_DECLINED: the call needs loom_perform. */
int loom_perform_middle(struct loom_comm* comm, const void* in, void* out, uint64_t count,
                        struct loom_kind kind);

/* The same for buffers that may lie on GPUs and have no staging buffers: LOOM_DECLINED on all ranks unless
 * all of them have their buffers there and an executor for them. */
int loom_perform_on_device(struct loom_comm* comm, const struct loom_call* call);
/* After a blocking call that loom_perform_on_device has declined: the results are in the program's buffers.
 */
void loom_staged_call_ended(struct loom_comm* comm);

/* A call that does not wait: planned once, started any number of times, one start after the other. The
 * requests of a communicator are performed in the order of their starts, from the MPI library's progress loop
 * and from calls of loom that wait. */
struct loom_request;
/* Called once for each start, when the result is in place or the call has failed; maybe before
 * loom_request_start returns, and maybe in another thread. It must not call loom, except
 * loom_request_destroy. */
typedef void (*loom_request_done)(void* context, int result);
enum loom_request_kind {
  LOOM_NONBLOCKING, /* buffers on host memory, maybe in place of some on a device */
  LOOM_ON_DEVICE,   /* the same call with buffers that may lie on GPUs, and have no staging buffers */
  LOOM_PERSISTENT,  /* all ranks start it in one order among those of this kind */
  LOOM_PERSISTENT_ANY_ORDER,
  LOOM_PERSISTENT_ON_DEVICE /* the same call, before buffers on GPUs have staging buffers: inside a host in
                             * any order, between hosts in one */
};
/* LOOM_PERSISTENT_ANY_ORDER: LOOM_NO_LANE also between hosts.
 * Not persistent: LOOM_UNCONNECTED where the links have to be made first. Persistent: makes them here, which
 * is collective. LOOM_ON_DEVICE: LOOM_DECLINED, on this rank alone, also if a buffer is not contiguous on the
 * GPU of the links; then the same call is made again as LOOM_NONBLOCKING. LOOM_PERSISTENT_ON_DEVICE:
 * LOOM_DECLINED on all ranks unless all have their buffers there; then made again as another kind. All ranks
 * have to make the persistent requests of a communicator in one order, and start the other requests in one
 * order. Copies *call, not what it points to. LOOM_DECLINED as loom_perform. */
int loom_request_create(struct loom_comm* comm, const struct loom_call* call, enum loom_request_kind kind,
                        loom_request_done done, void* context, struct loom_request** out);
/* Whether loom carries nonblocking calls of a collective that it leaves to the fallback component elsewhere:
 * ranks with their buffers on GPUs make them as LOOM_ON_DEVICE, the others as LOOM_NONBLOCKING. The same on
 * all ranks at the same call. */
bool loom_carries_beside_devices(struct loom_comm* comm, enum loom_collective collective);
/* It matches by a place of its own, and not by the order of starts. */
bool loom_request_is_in_any_order(const struct loom_request* call);
/* Of a persistent one, where MPI_Start is called: on GPUs it comes after what the program has enqueued by
 * then. loom_request_start follows, maybe later. */
void loom_request_mark_start(struct loom_request* call);
void loom_request_start(struct loom_request* call);
/* For a request that has not been started, or is done. */
void loom_request_destroy(struct loom_request* call);

/* This rank cannot go on, and has told the user: its peers' calls fail soon, if they are linked, and so does
 * every later one here. Not from inside a call. */
void loom_comm_leave(struct loom_comm* comm);
/* The ranks have made their first links, or failed to. The same on all ranks between calls. */
bool loom_comm_has_tried_links(struct loom_comm* comm);
/* As the ranks have found when they connected; the same on all. */
bool loom_comm_is_on_one_host(const struct loom_comm* comm);

/* coll_loom_tune leaves some calls to algorithms on GPUs. Also false if the rules are wrong; the set-up
 * reports that. */
bool loom_wants_devices(void);

/* Buffers on devices. The CPU cannot use them: each has a staging buffer in host memory during a call
 * (device/cuda/staging.hpp). Ranks may differ in whether they have any. */

/* Whether there may be such buffers: CUDA's driver is loaded. loom_initialize looks for it, and this looks
 * again among the libraries that the process has loaded since. */
bool loom_may_have_device_memory(void);

/* Whether UCX, as this process's environment has Open MPI open it, moves memory of CUDA's devices. */
bool loom_ucx_moves_device_memory(void);

/* LOOM_SUCCESS and *yes, or LOOM_ERR_DEVICE. where: for messages, as in the following. */
int loom_is_on_device(const void* address, const char* where, bool* yes);

/* Whether the device memory at the address is a context's, as other libraries take it for granted: that of
 * pools and of virtual mappings is not, and CUDA's IPC does not share it. LOOM_SUCCESS or LOOM_ERR_DEVICE. */
int loom_is_in_a_context(const void* address, const char* where, bool* yes);
/* Waits for what the program has put into the legacy default stream there. LOOM_SUCCESS or LOOM_ERR_DEVICE.
 */
int loom_wait_for_program(const void* address, const char* where);

/* Rows of bytes with the same layout in the buffer and in its staging buffer. As device::cuda::StridedRegion.
 */
struct loom_strided_region {
  void *device, *host;
  uint64_t row_bytes, rows, pitch;
};
/* Host memory for the regions of the device buffer that contains `address`, each at the same distance from
 * its region. */
struct loom_staging_buffer;
int loom_staging_buffer_create(const void* address, struct loom_strided_region* load, uint64_t loads,
                               struct loom_strided_region* store, uint64_t stores, bool may_wait,
                               const char* where, struct loom_staging_buffer** out, ptrdiff_t* distance);
void loom_staging_buffer_destroy(struct loom_staging_buffer* staging_buffer);

/* Copies after the work that the program has put into the default stream, and is done on return. */
int loom_copy_regions(struct loom_staging_buffer* staging_buffer, const struct loom_strided_region* regions,
                      uint64_t n, bool to_device, const char* where);

/* Copies of contiguous buffers that overlap with loom_perform (device/cuda/streamed_copies.hpp). NULL: this
 * is not possible, and nothing has been copied. load, store: a region of the staging buffer, which must
 * outlive the copies, or NULL. */
struct loom_streamed_copies;
struct loom_streamed_side {
  struct loom_staging_buffer* staging_buffer;
  const struct loom_strided_region *load, *store;
};
struct loom_streamed_copies* loom_streamed_copies_create(const struct loom_streamed_side* sides, size_t n);
/* For a call that may be declined: copies its operands all at once when they are needed. Has no results, so
 * it is never finished. NULL: there is no memory. */
struct loom_late_side {
  struct loom_staging_buffer* staging_buffer;
  const struct loom_strided_region* load;
  uint64_t loads;
};
struct loom_streamed_copies* loom_late_copies_create(const struct loom_late_side* sides, size_t n);
/* Waits until all operands are in host memory, where another component performs the call. */
int loom_streamed_copies_need_all(struct loom_streamed_copies* copies, const char* where);
/* Waits until all results are in the program's buffers. */
int loom_streamed_copies_finish(struct loom_streamed_copies* copies, const char* where);
/* Waits for copies that are under way. */
void loom_streamed_copies_destroy(struct loom_streamed_copies* copies);

/* Copies for a call that does not wait (device/cuda/polled_copies.hpp). Nothing of them waits for the device.
 * The staging buffers and regions must outlive them. The order of calls is load, until *done, then store. */
struct loom_polled_copies;
struct loom_polled_side {
  struct loom_staging_buffer* staging_buffer;
  const struct loom_strided_region *load, *store;
  uint64_t loads, stores;
};
int loom_polled_copies_create(const struct loom_polled_side* sides, size_t n, const char* where,
                              struct loom_polled_copies** out);
int loom_polled_copies_load(struct loom_polled_copies* copies, const char* where, bool* done);
int loom_polled_copies_store(struct loom_polled_copies* copies, const char* where, bool* done);
void loom_polled_copies_destroy(struct loom_polled_copies* copies);

/* inout = in op inout, of contiguous elements on a GPU; done on return. LOOM_DECLINED: not both buffers are
 * on one, or it has no such kernel. */
int loom_reduce_local_on_device(const void* in, void* inout, uint64_t count, enum loom_type type,
                                enum loom_op op, const char* where);

/* Whether the bits of a result of this type may depend on the order of the operands. */
bool loom_depends_on_order(enum loom_type type);
/* out = the op over n operands that lie one behind the other, in that order. type and op must have a kernel;
 * n >= 2. */
void loom_reduce_in_order(const void* operands, int n, uint64_t count, enum loom_type type, enum loom_op op,
                          void* out);

/* The counters of this process as they are now; from any thread. All zero before loom_initialize. */
void loom_read_counters(struct loom_counters* out);
/* For the glue: counts a call that never reaches the core. */
void loom_count_fallback(enum loom_collective collective, enum loom_fallback reason);

#ifdef __cplusplus
}
#endif

#endif
