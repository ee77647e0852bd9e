#include "component/mca/persistent.h"

#include "opal/util/info.h"

#define STANDARD_KEY "mpi_assert_strict_persistent_collective_ordering"
/* MPI_Comm_set_info of Open MPI 4.1 keeps a key that nobody in the library has subscribed to under another
 * name. */
#define SAVED "_OMPI_IN_"

/* Whether the communicator has the key, with *value. The latest value is the saved one. */
static bool read_key(const ompi_communicator_t* communicator, const char* key, bool* value) {
  char saved[sizeof SAVED + sizeof STANDARD_KEY];
  snprintf(saved, sizeof saved, SAVED "%s", key);
  opal_info_t* const info = communicator->super.s_info;
  int found = 0;
  if (opal_info_get_bool(info, saved, value, &found) == OPAL_SUCCESS && found) return true;
  return opal_info_get_bool(info, (char*)key, value, &found) == OPAL_SUCCESS && found;
}

bool coll_loom_starts_are_ordered(const ompi_communicator_t* communicator) {
  if (ompi_comm_size((ompi_communicator_t*)communicator) == 1) return true;
  if (communicator->super.s_info == NULL) return false;
  char standard[MPI_MAX_INFO_KEY];
  snprintf(standard, sizeof standard, "%.*s", MPI_MAX_INFO_KEY - 1, STANDARD_KEY);
  bool ordered;
  if (read_key(communicator, COLL_LOOM_ORDERED_STARTS_KEY, &ordered)) return ordered;
  return read_key(communicator, standard, &ordered) && ordered;
}
