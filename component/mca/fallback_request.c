#include "component/mca/fallback_request.h"

#include <pthread.h>

#include "opal/class/opal_hash_table.h"

/* A request of the fallback component, by its address. */
struct kept {
  ompi_communicator_t* communicator;
  struct coll_loom_handles handles;
  ompi_request_free_fn_t free;
};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static opal_hash_table_t all_kept;
static bool is_made; /* all_kept */

static struct kept* take(ompi_request_t* request) {
  void* kept = NULL;
  pthread_mutex_lock(&mutex);
  opal_hash_table_get_value_uint64(&all_kept, (uint64_t)(uintptr_t)request, &kept);
  opal_hash_table_remove_value_uint64(&all_kept, (uint64_t)(uintptr_t)request);
  pthread_mutex_unlock(&mutex);
  return kept;
}

static bool put(ompi_request_t* request, struct kept* kept) {
  pthread_mutex_lock(&mutex);
  if (!is_made) {
    OBJ_CONSTRUCT(&all_kept, opal_hash_table_t);
    is_made = opal_hash_table_init(&all_kept, 64) == OPAL_SUCCESS;
  }
  const bool is_put = is_made && opal_hash_table_set_value_uint64(&all_kept, (uint64_t)(uintptr_t)request,
                                                                  kept) == OPAL_SUCCESS;
  pthread_mutex_unlock(&mutex);
  return is_put;
}

/* Once freed, the object may become another request in another thread. So it leaves the table before. */
static int free_kept(ompi_request_t** request) {
  ompi_request_t* const object = *request;
  struct kept* const kept = take(object);
  object->req_free = kept->free;
  const int error = kept->free(request);
  if (error != OMPI_SUCCESS && put(object, kept)) { /* it is active */
    object->req_free = free_kept;
    return error;
  }
  coll_loom_handles_let_go(&kept->handles);
  coll_loom_communicator_let_go(kept->communicator);
  free(kept);
  return error;
}

int coll_loom_keep_for_request(ompi_communicator_t* communicator, const struct coll_loom_args* args,
                               ompi_request_t* request, int error) {
  if (error != OMPI_SUCCESS || request == NULL || request == MPI_REQUEST_NULL ||
      request == &ompi_request_empty)
    return error;
  if (!request->req_persistent && (OMPI_COMM_IS_INTRINSIC(communicator) || coll_loom_is_complete(request)))
    return error; /* nobody can free the communicator, or need it */
  struct kept* const kept = malloc(sizeof *kept);
  if (kept == NULL) return error; /* the communicator may then go, as without loom */
  *kept = (struct kept){.communicator = communicator, .free = request->req_free};
  if (request->req_persistent) kept->handles = coll_loom_handles_keep(communicator, args);
  if (!put(request, kept)) {
    coll_loom_handles_let_go(&kept->handles);
    free(kept);
    return error;
  }
  OBJ_RETAIN(communicator);
  request->req_free = free_kept;
  return error;
}
