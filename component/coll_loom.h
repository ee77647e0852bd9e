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
};
extern struct coll_loom_variables coll_loom_variables;

/* Says, once, which values made no sense and were replaced. One rank shows it for all. */
void coll_loom_complain(bool show);

/* One per communicator.
 *
 *   cold -- first allreduce that loom has a kernel for --> ready | declined | broken
 *   ready -- a call fails --> broken
 *
 * A declined communicator goes to the component below for good; a broken one fails for good. */
enum coll_loom_state { COLL_LOOM_COLD, COLL_LOOM_READY, COLL_LOOM_DECLINED, COLL_LOOM_BROKEN };

struct coll_loom_module {
  mca_coll_base_module_t super;
  enum coll_loom_state state;
  int error;              /* what calls return while broken */
  struct loom_comm* comm; /* while ready or broken */
  ompi_communicator_t* communicator;
  /* The component below: loom holds a reference to both modules from enable to disable. */
  mca_coll_base_module_allreduce_fn_t previous_allreduce;
  mca_coll_base_module_t* previous_allreduce_module;
  mca_coll_base_module_allgather_fn_t previous_allgather;
  mca_coll_base_module_t* previous_allgather_module;
};
typedef struct coll_loom_module coll_loom_module_t;
OBJ_CLASS_DECLARATION(coll_loom_module_t);

/* coll_loom_module.c */
mca_coll_base_module_t* coll_loom_comm_query(ompi_communicator_t* communicator, int* priority);

/* coll_loom_setup.c: takes a cold module to its next state. Collective. Leaves it cold when this thread is in an
 * exchange of another set-up: the call comes from inside the component below and belongs to it. */
void coll_loom_set_up(struct coll_loom_module* self);

/* An MPI error class for a negative result of the core. */
int coll_loom_error_class(int result);

/* coll_loom_allreduce.c */
int coll_loom_allreduce(const void* sendbuf, void* recvbuf, coll_loom_count_t count,
                        struct ompi_datatype_t* datatype, struct ompi_op_t* op,
                        struct ompi_communicator_t* communicator, mca_coll_base_module_t* module);

/* coll_loom_help.c: shows a topic of help-coll-loom.txt; each has two %s, for where and cause. */
void coll_loom_find_help(void);
void coll_loom_help(const char* topic, const char* where, const char* cause);

#endif
