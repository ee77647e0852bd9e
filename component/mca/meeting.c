/* A dissemination barrier (Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988), twice.
 * In step k a rank tells the one 2^k further that it has come, and hears the same from the one 2^k before.
 * After one such barrier each rank knows that all others have come, but not that they know it too: a rank
 * that comes very late finds the words of ranks that have given up since. After the second one all have
 * passed the first.
 *
 * The words have the tag of Open MPI's barriers, which takes their place in the order of blocking
 * collectives: between two ranks, words of one tag arrive in the order in which they were sent. */
#include "component/mca/meeting.h"

#include "ompi/mca/coll/base/coll_tags.h"
#include "ompi/mca/pml/pml.h"

enum { CAME, LEFT };
static const char words[] = {CAME, LEFT}; /* static: no send needs to be waited for */

static int rounds_of(const struct coll_loom_module* self) {
  int rounds = 0;
  while ((int64_t)1 << rounds < ompi_comm_size(self->communicator)) ++rounds;
  return rounds;
}

static int send_word(struct coll_loom_module* self, int step, int word) {
  const int ranks = ompi_comm_size(self->communicator), round = step % rounds_of(self);
  const int to = (int)((ompi_comm_rank(self->communicator) + ((int64_t)1 << round)) % ranks);
  ompi_request_t* request;
  const int error = MCA_PML_CALL(isend(&words[word], 1, &ompi_mpi_byte.dt, to, MCA_COLL_BASE_TAG_BARRIER,
                                       MCA_PML_BASE_SEND_STANDARD, self->communicator, &request));
  if (error == OMPI_SUCCESS) ompi_request_free(&request); /* once it is complete */
  return error;
}

static int begin_step(struct coll_loom_module* self) {
  struct coll_loom_meeting* const meeting = &self->meeting;
  const int ranks = ompi_comm_size(self->communicator), round = meeting->step % rounds_of(self);
  const int from = (int)((ompi_comm_rank(self->communicator) + ranks - ((int64_t)1 << round)) % ranks);
  const int error = MCA_PML_CALL(irecv(&meeting->word, 1, &ompi_mpi_byte.dt, from, MCA_COLL_BASE_TAG_BARRIER,
                                       self->communicator, &meeting->receive));
  if (error != OMPI_SUCCESS) {
    meeting->receive = NULL;
    return error;
  }
  return send_word(self, meeting->step, CAME);
}

static enum loom_exchanged ended_with(struct coll_loom_module* self, int error) {
  if (error == OMPI_SUCCESS) return LOOM_EXCHANGE_PENDING;
  self->error = error;
  coll_loom_leave_meetings(self);
  return LOOM_EXCHANGE_FAILED;
}

enum loom_exchanged coll_loom_start_meeting(struct coll_loom_module* self) {
  struct coll_loom_meeting* const meeting = &self->meeting;
  meeting->step = 0;
  meeting->is_under_way = true;
  return ended_with(self, rounds_of(self) > 0 ? begin_step(self) : OMPI_SUCCESS);
}

enum loom_exchanged coll_loom_test_meeting(struct coll_loom_module* self) {
  struct coll_loom_meeting* const meeting = &self->meeting;
  const int steps = 2 * rounds_of(self);
  while (meeting->step < steps) {
    if (!REQUEST_COMPLETE(meeting->receive)) return LOOM_EXCHANGE_PENDING;
    int error = meeting->receive->req_status.MPI_ERROR;
    ompi_request_free(&meeting->receive);
    meeting->receive = NULL;
    if (error == OMPI_SUCCESS && meeting->word == LEFT) {
      coll_loom_leave_meetings(self);
      return LOOM_EXCHANGE_LEFT;
    }
    if (error == OMPI_SUCCESS && ++meeting->step < steps) error = begin_step(self);
    if (error != OMPI_SUCCESS) return ended_with(self, error);
  }
  meeting->is_under_way = false;
  return LOOM_EXCHANGED;
}

/* A receive that nobody waits for any more. One that cannot be cancelled has met its message, or will: then
 * its communicator, and this module with it, stay for the rest of the program. */
static void cancel_receive(struct coll_loom_module* self) {
  struct coll_loom_meeting* const meeting = &self->meeting;
  if (meeting->receive == NULL) return;
  ompi_request_cancel(meeting->receive);
  if (!REQUEST_COMPLETE(meeting->receive)) opal_progress();
  if (!REQUEST_COMPLETE(meeting->receive)) OBJ_RETAIN(self->communicator);
  ompi_request_free(&meeting->receive);
  meeting->receive = NULL;
}

/* Ranks that have this rank's word of a step already hear from it in the next. Errors do not matter: who does
 * not hear from this rank has a time limit of its own. */
void coll_loom_leave_meetings(struct coll_loom_module* self) {
  struct coll_loom_meeting* const meeting = &self->meeting;
  if (meeting->is_left) return;
  meeting->is_left = true;
  const int first = meeting->is_under_way ? meeting->step + 1 : 0;
  for (int step = first; step < 2 * rounds_of(self); ++step) send_word(self, step, LEFT);
  if (meeting->is_under_way) cancel_receive(self);
  meeting->is_under_way = false;
}
