#include "component/mca/check_exchange.h"

#include <stdarg.h>

#include "component/mca/exchange.h"
#include "component/mca/setup.h"
#include "ompi/mca/pml/pml.h"

void coll_loom_say(struct coll_loom_text* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int written = vsnprintf(text->of + text->length, sizeof text->of - text->length, format, arguments);
  va_end(arguments);
  if (written > 0) text->length += (size_t)written;
  if (text->length >= sizeof text->of) text->length = sizeof text->of - 1;
}

/* A rank that gives up says so by an empty message: no other is empty. The first rank looks for one before it
 * answers. (If the two cross, the first rank makes the call in vain.) */
enum { TO_FIRST = COLL_LOOM_TAG - 2, ANSWER = TO_FIRST - 1, MOST_ANSWERS = 128 };
/* In an answer, beside the error class: the ranks compare no more calls of this communicator. */
static const uint64_t ENDED = UINT64_C(1) << 32;

enum outcome { DONE, LATE, LEFT, FAILED };

/* Of Open MPI (ULFM), which fails a pending message only when its own functions wait. */
static bool hears_of_failure(const struct coll_loom_module* self, int* error) {
  if (!coll_loom_hears_of_failures()) return false;
  if (coll_loom_is_revoked(self->communicator))
    *error = COLL_LOOM_REVOKED;
  else if (coll_loom_has_failed_rank(self->communicator))
    *error = COLL_LOOM_PROC_FAILED;
  else
    return false;
  return true;
}

/* Whether the message is complete. */
static bool is_complete(const ompi_request_t* request, int* error) {
  if (!coll_loom_is_complete(request)) return false;
  if (request->req_status.MPI_ERROR != OMPI_SUCCESS) *error = request->req_status.MPI_ERROR;
  return true;
}

/* Waits until all messages are complete, one has failed, or coll_loom_timeout has passed, and more_s.
 * `is_open` then says which are not complete, and are given up, or have fewer than so many bytes (0: any).
 * What cannot be cancelled goes on, and its memory stays. */
static enum outcome wait_for(struct coll_loom_module* self, ompi_request_t** requests, size_t bytes,
                             bool* is_open, int number, double more_s, int* error) {
  enum { TURNS_PER_LOOK = 64 };
  const double since = PMPI_Wtime(), limit = coll_loom_variables.timeout_s;
  bool is_late = false;
  *error = OMPI_SUCCESS;
  for (int next = 0, turns = 1; next < number && *error == OMPI_SUCCESS; ++turns) {
    if (requests[next] == NULL || is_complete(requests[next], error)) {
      ++next;
      continue;
    }
    if (is_late) break;
    opal_progress();
    if (turns % TURNS_PER_LOOK == 0 && hears_of_failure(self, error)) break;
    is_late =
        limit > 0 && PMPI_Wtime() - since > limit + more_s; /* one more look: this rank may have slept */
  }
  bool all_have_ended = true, has_left = false;
  for (int i = 0; i < number; ++i) {
    if (requests[i] == NULL) continue;
    const bool has_ended = is_complete(requests[i], error);
    const bool is_short = has_ended && bytes > 0 && requests[i]->req_status._ucount != bytes;
    is_open[i] = !has_ended || is_short;
    all_have_ended &= has_ended;
    has_left |= is_short;
    if (!has_ended) ompi_request_cancel(requests[i]);
    ompi_request_free(&requests[i]);
  }
  if (*error != OMPI_SUCCESS) return FAILED;
  return !all_have_ended ? LATE : has_left ? LEFT : DONE;
}

/* For the first rank: hears `bytes` of each other rank. `is_open`: of those that have not come, or left. */
static enum outcome hear(struct coll_loom_module* self, char* all, size_t bytes, bool* is_open, int* error) {
  const int ranks = ompi_comm_size(self->communicator);
  ompi_request_t** const requests = calloc((size_t)ranks, sizeof(ompi_request_t*));
  *error = requests == NULL ? MPI_ERR_NO_MEM : OMPI_SUCCESS;
  for (int rank = 1; rank < ranks && *error == OMPI_SUCCESS; ++rank)
    *error = MCA_PML_CALL(irecv(all + (size_t)rank * bytes, bytes, &ompi_mpi_byte.dt, rank, TO_FIRST,
                                self->communicator, &requests[rank]));
  enum outcome outcome =
      *error == OMPI_SUCCESS ? wait_for(self, requests, bytes, is_open, ranks, 0, error) : FAILED;
  for (int rank = 1; rank < ranks && outcome == DONE; ++rank) {
    int has_left = 0;
    ompi_status_public_t status;
    *error = MCA_PML_CALL(iprobe(rank, TO_FIRST, self->communicator, &has_left, &status));
    if (*error != OMPI_SUCCESS) outcome = FAILED;
    is_open[rank] = has_left;
  }
  for (int rank = 1; rank < ranks && outcome == DONE; ++rank)
    if (is_open[rank]) outcome = LEFT;
  free(requests);
  return outcome;
}

/* For the others. The module stays, so that the communicator's id is in use as long as the message may come.
 */
static void say_left(struct coll_loom_module* self) {
  ompi_request_t* request = NULL;
  if (MCA_PML_CALL(isend(&self->checks_have_ended, 0, &ompi_mpi_byte.dt, 0, TO_FIRST,
                         MCA_PML_BASE_SEND_STANDARD, self->communicator, &request)) == OMPI_SUCCESS)
    ompi_request_free(&request);
}

/* For the first rank. The words live as long as the program: a rank that comes late may read one then. */
static void answer(struct coll_loom_module* self, int error, bool ended) {
  static uint64_t words[2][MOST_ANSWERS];
  const int known = error >= 0 && error < MOST_ANSWERS ? error : MPI_ERR_OTHER;
  uint64_t* const word = &words[ended][known];
  __atomic_store_n(word, (uint64_t)known | (ended ? ENDED : 0), __ATOMIC_RELAXED);
  for (int rank = 1; rank < ompi_comm_size(self->communicator); ++rank) {
    ompi_request_t* request = NULL;
    if (MCA_PML_CALL(isend(word, sizeof *word, &ompi_mpi_byte.dt, rank, ANSWER, MCA_PML_BASE_SEND_STANDARD,
                           self->communicator, &request)) == OMPI_SUCCESS)
      ompi_request_free(&request);
  }
}

/* As the core does where it finds that in a call. */
static void tell_of_failed_rank(struct coll_loom_module* self) {
  ompi_communicator_t* const communicator = self->communicator;
  if (!coll_loom_hears_of_failures() || coll_loom_is_revoked(communicator)) return;
  if (!coll_loom_has_failed_rank(communicator)) return;
  struct coll_loom_text cause = {.length = 0};
  const int rank = coll_loom_failed_rank(communicator);
  if (rank < 0)
    coll_loom_say(&cause, "Open MPI has heard that a rank has failed.");
  else
    coll_loom_say(&cause, "Open MPI has heard that rank %d has failed.", rank);
  coll_loom_help("peer-failed", coll_loom_name(communicator), cause.of);
}

/* Later calls fail, too: messages of this one may still come. They must not reach another communicator with
 * the same id, so this one stays for the rest of the program. */
static void end(struct coll_loom_module* self, enum outcome outcome, int* error) {
  self->checks_have_ended = true;
  OBJ_RETAIN(self->communicator);
  if (*error < 0) *error = MPI_ERR_OTHER; /* not a class */
  if (outcome == FAILED) {
    self->error = *error;
    tell_of_failed_rank(self);
  }
  const int class = coll_loom_fail_alone(self, outcome != FAILED ? LOOM_ERR_TIMEOUT : LOOM_ERR_PEER_FAILED);
  if (outcome != FAILED) *error = class;
}

static void name_ranks(struct coll_loom_text* text, const bool* is_open, int ranks, enum outcome outcome) {
  enum { MOST_NAMED = 16 };
  int named = 0;
  if (outcome == LATE) coll_loom_say(text, "no word within %.1f s from", coll_loom_variables.timeout_s);
  for (int rank = 1; rank < ranks; ++rank)
    if (is_open[rank] && ++named <= MOST_NAMED)
      coll_loom_say(text, "%s %d", named > 1 ? "," : outcome == LATE ? " rank" : "rank", rank);
  if (named > MOST_NAMED) coll_loom_say(text, ", and %d more", named - MOST_NAMED);
  coll_loom_say(text,
                outcome == LATE ? " of %d. The others make this call."
                                : " of %d gave up waiting before rank 0 came to this call.",
                ranks);
}

/* On the first rank. False: the checks have ended. */
static bool hear_and_judge(struct coll_loom_module* self, const void* mine, size_t bytes,
                           coll_loom_judge_t judge, struct coll_loom_text* text, int* error) {
  const int ranks = ompi_comm_size(self->communicator);
  char* const all = calloc((size_t)ranks, bytes + sizeof(bool));
  enum outcome outcome = FAILED;
  *error = MPI_ERR_NO_MEM;
  if (all != NULL) {
    bool* const is_open = (bool*)(all + (size_t)ranks * bytes);
    memcpy(all, mine, bytes);
    outcome = hear(self, all, bytes, is_open, error);
    if (outcome == DONE) *error = judge(all, ranks, text);
    if (outcome == LATE || outcome == LEFT) name_ranks(text, is_open, ranks, outcome);
  }
  if (outcome == DONE) {
    answer(self, *error, false);
    free(all);
    return true;
  }
  end(self, outcome, error);
  answer(self, *error, true);
  return false;
}

/* On the others. */
static bool tell_and_obey(struct coll_loom_module* self, const void* mine, size_t bytes,
                          struct coll_loom_text* text, int* error) {
  static const double until_the_first_is_late = 1;
  struct told {
    uint64_t answer;
    char mine[];
  }* const told = malloc(sizeof *told + bytes);
  ompi_request_t *answered = NULL, *sent = NULL;
  bool is_open = false;
  enum outcome outcome = FAILED;
  *error = MPI_ERR_NO_MEM;
  if (told != NULL) {
    memcpy(told->mine, mine, bytes);
    *error = MCA_PML_CALL(irecv(&told->answer, sizeof told->answer, &ompi_mpi_byte.dt, 0, ANSWER,
                                self->communicator, &answered));
    if (*error == OMPI_SUCCESS)
      *error = MCA_PML_CALL(isend(told->mine, bytes, &ompi_mpi_byte.dt, 0, TO_FIRST,
                                  MCA_PML_BASE_SEND_STANDARD, self->communicator, &sent));
    if (*error == OMPI_SUCCESS)
      outcome = wait_for(self, &answered, sizeof told->answer, &is_open, 1, until_the_first_is_late, error);
  }
  if (outcome == DONE && (told->answer & ENDED) != 0) { /* the first rank may not take what was sent */
    *error = (int)(told->answer & (ENDED - 1));
    end(self, FAILED, error);
    return false;
  }
  if (outcome == DONE) outcome = wait_for(self, &sent, 0, &is_open, 1, until_the_first_is_late, error);
  if (outcome == DONE) {
    *error = (int)told->answer;
    free(told);
    return true;
  }
  if (outcome == LATE)
    coll_loom_say(
        text,
        "no answer within %.1f s from rank 0, which compares what the ranks call: it has not come to this "
        "call, or waits for others.",
        coll_loom_variables.timeout_s + until_the_first_is_late);
  say_left(self);
  end(self, outcome, error);
  return false;
}

bool coll_loom_tell_first(struct coll_loom_module* self, const void* mine, size_t bytes,
                          coll_loom_judge_t judge, struct coll_loom_text* text, int* error) {
  return ompi_comm_rank(self->communicator) == 0 ? hear_and_judge(self, mine, bytes, judge, text, error)
                                                 : tell_and_obey(self, mine, bytes, text, error);
}

void coll_loom_end_checks(struct coll_loom_module* self, int* error) {
  const bool is_first = ompi_comm_rank(self->communicator) == 0;
  if (!is_first) say_left(self);
  end(self, FAILED, error);
  if (is_first) answer(self, *error, true);
}
