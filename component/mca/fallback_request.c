#include "component/mca/fallback_request.h"

#include <pthread.h>

#include "opal/class/opal_hash_table.h"

/* A request of the fallback component, by its address. */
struct kept {
  ompi_communicator_t* communicator;
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
  OBJ_RELEASE(kept->communicator); /* the last reference, if the program has freed it already */
  free(kept);
  return error;
}

int coll_loom_keep_communicator(ompi_communicator_t* communicator, ompi_request_t* request, int error) {
  if (error != OMPI_SUCCESS || request == NULL || request == MPI_REQUEST_NULL ||
      request == &ompi_request_empty)
    return error;
  if (OMPI_COMM_IS_INTRINSIC(communicator)) return error; /* nobody can free it */
  if (!request->req_persistent && REQUEST_COMPLETE(request)) return error;
  struct kept* const kept = malloc(sizeof *kept);
  if (kept == NULL) return error; /* the communicator may then go, as without loom */
  *kept = (struct kept){.communicator = communicator, .free = request->req_free};
  if (!put(request, kept)) {
    free(kept);
    return error;
  }
  OBJ_RETAIN(communicator);
  request->req_free = free_kept;
  return error;
}
