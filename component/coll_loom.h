/* What the files of the Open MPI glue know of each other. */
#ifndef LOOM_COMPONENT_COLL_LOOM_H
#define LOOM_COMPONENT_COLL_LOOM_H

#include "component/core.h"
#include "component/ompi_compat.h"

extern mca_coll_base_component_t mca_coll_loom_component;

/* The component's MCA variables; coll_loom_component.c. */
struct coll_loom_variables {
  bool enable;
  int priority;
  int verbose;
  double timeout_s;
  char* topo_file;
  char* topo_dump_file;
  char* graph_file;
  char* graph_dump_file;
  bool reproducible;
  bool single_copy;
};
extern struct coll_loom_variables coll_loom_variables;

/* Says, once, which values made no sense and were replaced. One rank shows it for all. */
void coll_loom_complain(bool show);

/* One per communicator.
 *
 *   cold -- first call that loom has a kernel for --> ready | declined | broken
 *   ready -- a call fails --> broken
 *
 * A declined communicator goes to the component below for good; a broken one fails for good. A ready one whose links
 * cannot be made stays ready: the core declines its calls, save those that need none. */
enum coll_loom_state { COLL_LOOM_COLD, COLL_LOOM_READY, COLL_LOOM_DECLINED, COLL_LOOM_BROKEN };

/* The collectives that loom takes over. */
#define COLL_LOOM_APIS(X) \
  X(allreduce) X(reduce) X(reduce_scatter_block) X(bcast) X(allgather) X(alltoall) X(barrier)

struct coll_loom_module {
  mca_coll_base_module_t super;
  enum coll_loom_state state;
  bool explained;         /* that some calls have no kernel */
  int error;              /* what calls return while broken */
  struct loom_comm* comm; /* while ready or broken */
  ompi_communicator_t* communicator;
  bool one_host; /* all ranks are on this host: loom carries more than allreduce */
  /* The component below, one function and module for each collective: loom holds a reference to the modules from
   * enable to disable. */
#define COLL_LOOM_PREVIOUS(api)                         \
  mca_coll_base_module_##api##_fn_t previous_##api;     \
  mca_coll_base_module_t* previous_##api##_module;
  COLL_LOOM_APIS(COLL_LOOM_PREVIOUS)
#undef COLL_LOOM_PREVIOUS
};
typedef struct coll_loom_module coll_loom_module_t;
OBJ_CLASS_DECLARATION(coll_loom_module_t);

/* coll_loom_module.c */
mca_coll_base_module_t* coll_loom_comm_query(ompi_communicator_t* communicator, int* priority);

/* coll_loom_setup.c: takes a cold module to its next state. Collective. Leaves it cold when this thread is in an
 * exchange of another set-up: the call comes from inside the component below and belongs to it. */
void coll_loom_set_up(struct coll_loom_module* self);

/* The module fails from now on, because of a negative result of the core. */
void coll_loom_break(struct coll_loom_module* self, int result);

/* coll_loom_allreduce.c */
int coll_loom_allreduce(const void* sendbuf, void* recvbuf, coll_loom_count_t count,
                        struct ompi_datatype_t* datatype, struct ompi_op_t* op,
                        struct ompi_communicator_t* communicator, mca_coll_base_module_t* module);

/* coll_loom_collectives.c */
int coll_loom_reduce(const void* sendbuf, void* recvbuf, coll_loom_count_t count,
                     struct ompi_datatype_t* datatype, struct ompi_op_t* op, int root,
                     struct ompi_communicator_t* communicator, mca_coll_base_module_t* module);
int coll_loom_reduce_scatter_block(const void* sendbuf, void* recvbuf, coll_loom_count_t count,
                                   struct ompi_datatype_t* datatype, struct ompi_op_t* op,
                                   struct ompi_communicator_t* communicator, mca_coll_base_module_t* module);
int coll_loom_bcast(void* buffer, coll_loom_count_t count, struct ompi_datatype_t* datatype, int root,
                    struct ompi_communicator_t* communicator, mca_coll_base_module_t* module);
int coll_loom_allgather(const void* sendbuf, coll_loom_count_t sendcount, struct ompi_datatype_t* sendtype,
                        void* recvbuf, coll_loom_count_t recvcount, struct ompi_datatype_t* recvtype,
                        struct ompi_communicator_t* communicator, mca_coll_base_module_t* module);
int coll_loom_alltoall(const void* sendbuf, coll_loom_count_t sendcount, struct ompi_datatype_t* sendtype,
                       void* recvbuf, coll_loom_count_t recvcount, struct ompi_datatype_t* recvtype,
                       struct ompi_communicator_t* communicator, mca_coll_base_module_t* module);
int coll_loom_barrier(struct ompi_communicator_t* communicator, mca_coll_base_module_t* module);

/* coll_loom_in_order.c: coll_loom_reproducible on several hosts. */
bool coll_loom_wants_order(const struct coll_loom_module* self, enum loom_op op, enum loom_type type);
/* Gathers the operands of `total` elements from all ranks and reduces them in order of rank; [first, first + count)
 * of the result goes to out. Returns an MPI error class. */
int coll_loom_in_order(struct coll_loom_module* self, const void* in, void* out, size_t total, size_t first,
                       size_t count, struct ompi_datatype_t* datatype, enum loom_op op, enum loom_type type);

/* coll_loom_pack.c: a buffer of any datatype as the bytes that loom moves. */
struct coll_loom_bytes {
  char* data;   /* contiguous: the buffer itself, or a copy */
  size_t bytes; /* packed */
  void* copy;   /* NULL where data is the buffer itself */
  void* buffer;
  size_t count;
  struct ompi_datatype_t* datatype;
};
/* load: the buffer has contents that matter. MPI_SUCCESS or MPI_ERR_NO_MEM. */
int coll_loom_bytes_of(struct coll_loom_bytes* bytes, const void* buffer, size_t count,
                       struct ompi_datatype_t* datatype, bool load);
/* store: what lies in data now is to be the buffer's contents. */
void coll_loom_bytes_end(struct coll_loom_bytes* bytes, bool store);

/* coll_loom_help.c: shows a topic of help-coll-loom.txt; each has two %s, for where and cause. */
void coll_loom_find_help(void);
void coll_loom_help(const char* topic, const char* where, const char* cause);

#endif
