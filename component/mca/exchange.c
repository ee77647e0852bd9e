/* What all are to know goes by dissemination (Bruck and others: Efficient algorithms for all-to-all
 * communications, 1997): in step k a rank hears from the one 2^k further on what that one knows of 2^k ranks,
 * and tells the one 2^k before. After ceil(log2 n) steps all know of all. A maximum may count a rank twice.
 * The blocks of a gather lie at their places from the start; a range of them that goes beyond the last rank
 * is two messages.
 *
 * What a rank's peers alone are to know goes straight to each of them, in one step.
 *
 * A rank that leaves, in an exchange or before it, says so to all ranks to which it sends in any step, by an
 * empty message: no other is empty. Messages of one tag arrive in the order in which they were sent, so
 * whoever hears from it finds this sooner or later, in this exchange or a later one, and leaves as well. Who
 * waits for peers may never hear from it: so there is a second such message, of a tag of its own, for those
 * who look for it. */
#include "component/mca/exchange.h"

#include "ompi/mca/coll/base/coll_tags.h"
#include "ompi/mca/pml/pml.h"

enum { TAG = COLL_LOOM_TAG, LEFT_TAG = TAG - 1 };
_Static_assert(TAG<MCA_COLL_BASE_TAG_NONBLOCKING_BASE && TAG> MCA_COLL_BASE_TAG_NONBLOCKING_END,
               "the tags of collectives are others");

static int rank_at(const struct coll_loom_module* self, int64_t distance) {
  const int64_t ranks = ompi_comm_size(self->communicator);
  return (int)((ompi_comm_rank(self->communicator) + distance % ranks + ranks) % ranks);
}

static int64_t distance_of(const struct coll_loom_exchanging* exchanging) {
  return (int64_t)1 << exchanging->step;
}

static bool is_with_peers(const struct coll_loom_exchanging* exchanging) {
  return exchanging->wanted.peers != NULL;
}

static bool has_steps_left(const struct coll_loom_module* self) {
  if (is_with_peers(&self->exchanging)) return self->exchanging.step == 0;
  return distance_of(&self->exchanging) < ompi_comm_size(self->communicator);
}

/* All receives of a step come before its sends. */
static int receive(struct coll_loom_module* self, void* to, size_t bytes, int from) {
  struct coll_loom_exchanging* const exchanging = &self->exchanging;
  ompi_request_t** const request = &exchanging->requests[exchanging->under_way++];
  *request = NULL;
  exchanging->receives = exchanging->under_way;
  return MCA_PML_CALL(irecv(to, bytes, &ompi_mpi_byte.dt, from, TAG, self->communicator, request));
}

static int send_to(struct coll_loom_module* self, void* from, size_t bytes, int to) {
  struct coll_loom_exchanging* const exchanging = &self->exchanging;
  ompi_request_t** const request = &exchanging->requests[exchanging->under_way++];
  *request = NULL;
  return MCA_PML_CALL(isend(from, bytes, &ompi_mpi_byte.dt, to, TAG, MCA_PML_BASE_SEND_STANDARD,
                            self->communicator, request));
}

typedef int (*mover_t)(struct coll_loom_module* self, void* at, size_t bytes, int peer);

/* The blocks of so many ranks from `first` on, in one message or, beyond the last rank, in two. */
static int move_blocks(struct coll_loom_module* self, mover_t move, int first, int64_t blocks, int peer) {
  const struct loom_exchange* const wanted = &self->exchanging.wanted;
  const int64_t to_end = ompi_comm_size(self->communicator) - first;
  const size_t before = (size_t)(blocks < to_end ? blocks : to_end) * wanted->bytes_per_rank;
  const size_t all = (size_t)blocks * wanted->bytes_per_rank;
  char* const out = wanted->out;
  const int error = move(self, out + (size_t)first * wanted->bytes_per_rank, before, peer);
  return error != OMPI_SUCCESS || before == all ? error : move(self, out, all - before, peer);
}

static int meet_peers(struct coll_loom_module* self) {
  const struct loom_exchange* const wanted = &self->exchanging.wanted;
  int error = OMPI_SUCCESS;
  for (int i = 0; i < wanted->peer_count && error == OMPI_SUCCESS; ++i)
    error = receive(self, (char*)wanted->out + (size_t)i * wanted->bytes_per_rank, wanted->bytes_per_rank,
                    wanted->peers[i]);
  for (int i = 0; i < wanted->peer_count && error == OMPI_SUCCESS; ++i)
    error = send_to(self, (void*)(uintptr_t)wanted->in, wanted->bytes_per_rank, wanted->peers[i]);
  return error;
}

static int begin_step(struct coll_loom_module* self) {
  struct coll_loom_exchanging* const exchanging = &self->exchanging;
  if (is_with_peers(exchanging)) return meet_peers(self);
  const int64_t distance = distance_of(exchanging), ranks = ompi_comm_size(self->communicator);
  const int from = rank_at(self, distance), to = rank_at(self, -distance);
  if (exchanging->wanted.words > 0) {
    const size_t bytes = exchanging->wanted.words * sizeof exchanging->mine[0];
    const int error = receive(self, exchanging->heard, bytes, from);
    return error == OMPI_SUCCESS ? send_to(self, exchanging->mine, bytes, to) : error;
  }
  const int64_t blocks = distance < ranks - distance ? distance : ranks - distance;
  const int error = move_blocks(self, receive, from, blocks, from);
  return error == OMPI_SUCCESS ? move_blocks(self, send_to, ompi_comm_rank(self->communicator), blocks, to)
                               : error;
}

static void end_step(struct coll_loom_exchanging* exchanging) {
  for (size_t i = 0; i < exchanging->wanted.words; ++i)
    if (exchanging->heard[i] > exchanging->mine[i]) exchanging->mine[i] = exchanging->heard[i];
  ++exchanging->step;
}

static void tell(struct coll_loom_module* self, int rank, int tag) {
  ompi_request_t* request = NULL;
  const int error = MCA_PML_CALL(isend(&self->has_left, 0, &ompi_mpi_byte.dt, rank, tag,
                                       MCA_PML_BASE_SEND_STANDARD, self->communicator, &request));
  if (error == OMPI_SUCCESS) ompi_request_free(&request); /* when it is complete */
}

static void tell_others(struct coll_loom_module* self) {
  for (int64_t distance = 1; distance < ompi_comm_size(self->communicator); distance *= 2) {
    tell(self, rank_at(self, -distance), TAG);
    tell(self, rank_at(self, -distance), LEFT_TAG);
  }
}

static void forsake(struct coll_loom_exchanging* exchanging) {
  for (int i = 0; i < exchanging->under_way; ++i) {
    ompi_request_t** const request = &exchanging->requests[i];
    if (*request == NULL || *request == MPI_REQUEST_NULL) continue;
    if (i < exchanging->receives && !coll_loom_is_complete(*request)) ompi_request_cancel(*request);
    ompi_request_free(request);
  }
  exchanging->under_way = 0;
}

/* Once. The empty messages may come when a peer has freed this communicator. They must not reach another one
 * with its id, so this rank keeps that in use, and the communicator with its module, for the rest of the
 * program. (A later communicator without this rank may have the id: then they must have come before.) */
static void leave(struct coll_loom_module* self) {
  if (OMPI_COMM_IS_INTER(self->communicator) || ompi_comm_size(self->communicator) == 1) return;
  if (__atomic_exchange_n(&self->exchanging.is_left, true, __ATOMIC_ACQ_REL)) return;
  OBJ_RETAIN(self->communicator);
  tell_others(self);
}

void coll_loom_leave_exchanges(struct coll_loom_module* self, bool tell) {
  /* In one order with those of test_exchange: the one or the other leaves. */
  __atomic_store_n(&self->has_left, true, __ATOMIC_SEQ_CST);
  if (tell && !__atomic_load_n(&self->exchanging.is_pending, __ATOMIC_SEQ_CST)) leave(self);
}

bool coll_loom_has_left_exchanges(const struct coll_loom_module* self) {
  return __atomic_load_n(&self->has_left, __ATOMIC_SEQ_CST);
}

static void note_pending(struct coll_loom_module* self, bool is_pending) {
  __atomic_store_n(&self->exchanging.is_pending, is_pending, __ATOMIC_SEQ_CST);
}

/* Leaves in an exchange. What cannot be cancelled, sends and receives that have met their messages, goes on
 * if the others do: its memory stays. */
static enum loom_exchanged end_by(struct coll_loom_module* self, enum loom_exchanged end) {
  __atomic_store_n(&self->has_left, true, __ATOMIC_RELEASE);
  leave(self);
  forsake(&self->exchanging);
  note_pending(self, false);
  return end;
}

static enum loom_exchanged fail(struct coll_loom_module* self, int error) {
  self->error = error;
  return end_by(self, LOOM_EXCHANGE_FAILED);
}

enum loom_exchanged coll_loom_start_exchange(struct coll_loom_module* self,
                                             const struct loom_exchange* exchange) {
  struct coll_loom_exchanging* const exchanging = &self->exchanging;
  if (coll_loom_has_left_exchanges(self)) return end_by(self, LOOM_EXCHANGE_LEFT);
  exchanging->wanted = *exchange;
  exchanging->step = exchanging->under_way = exchanging->receives = 0;
  exchanging->tests = 0;
  exchanging->requests =
      is_with_peers(exchanging) ? (ompi_request_t**)exchange->requests : exchanging->few_requests;
  if (exchange->words > 0)
    memcpy(exchanging->mine, exchange->in, exchange->words * sizeof exchanging->mine[0]);
  else if (!is_with_peers(exchanging))
    memcpy((char*)exchange->out + (size_t)ompi_comm_rank(self->communicator) * exchange->bytes_per_rank,
           exchange->in, exchange->bytes_per_rank);
  note_pending(self, true);
  const int error = has_steps_left(self) ? begin_step(self) : OMPI_SUCCESS;
  return error == OMPI_SUCCESS ? LOOM_EXCHANGE_PENDING : fail(self, error);
}

/* iprobe may run the progress loop, which does not come back to a module that is being advanced. Receives in
 * its place would have to be cancelled after each exchange, and one that has met its message meanwhile would
 * take the news with it. */
static bool finds_left(struct coll_loom_module* self) {
  for (int64_t distance = 1; distance < ompi_comm_size(self->communicator); distance *= 2) {
    int found = 0;
    ompi_status_public_t status;
    const int error =
        MCA_PML_CALL(iprobe(rank_at(self, distance), LEFT_TAG, self->communicator, &found, &status));
    if (error == OMPI_SUCCESS && found) return true;
  }
  return false;
}

/* LOOM_EXCHANGED: the step is over. */
static enum loom_exchanged test_step(struct coll_loom_module* self) {
  struct coll_loom_exchanging* const exchanging = &self->exchanging;
  int ended = 0, error = OMPI_SUCCESS;
  for (int i = 0; i < exchanging->under_way; ++i) {
    ompi_request_t* const request = exchanging->requests[i];
    if (!coll_loom_is_complete(request)) continue;
    ++ended;
    if (request->req_status.MPI_ERROR != OMPI_SUCCESS)
      error = request->req_status.MPI_ERROR;
    else if (i < exchanging->receives && request->req_status._ucount == 0)
      return end_by(self, LOOM_EXCHANGE_LEFT);
    else if (i < exchanging->receives && is_with_peers(exchanging) &&
             request->req_status._ucount != exchanging->wanted.bytes_per_rank)
      error = MPI_ERR_TRUNCATE;
  }
  if (error != OMPI_SUCCESS) return fail(self, error);
  if (ended < exchanging->under_way) {
    enum { TESTS_PER_LOOK = 64 };
    const bool looks = is_with_peers(exchanging) && ++exchanging->tests % TESTS_PER_LOOK == 0;
    return looks && finds_left(self) ? end_by(self, LOOM_EXCHANGE_LEFT) : LOOM_EXCHANGE_PENDING;
  }
  for (int i = 0; i < exchanging->under_way; ++i) ompi_request_free(&exchanging->requests[i]);
  exchanging->under_way = 0;
  return LOOM_EXCHANGED;
}

enum loom_exchanged coll_loom_test_exchange(struct coll_loom_module* self) {
  struct coll_loom_exchanging* const exchanging = &self->exchanging;
  while (has_steps_left(self)) {
    if (coll_loom_has_left_exchanges(self)) return end_by(self, LOOM_EXCHANGE_LEFT);
    const enum loom_exchanged step = test_step(self);
    if (step != LOOM_EXCHANGED) return step;
    end_step(exchanging);
    const int error = has_steps_left(self) ? begin_step(self) : OMPI_SUCCESS;
    if (error != OMPI_SUCCESS) return fail(self, error);
  }
  const struct loom_exchange* const wanted = &exchanging->wanted;
  if (wanted->words > 0) memcpy(wanted->out, exchanging->mine, wanted->words * sizeof exchanging->mine[0]);
  note_pending(self, false);
  return coll_loom_has_left_exchanges(self) ? end_by(self, LOOM_EXCHANGE_LEFT) : LOOM_EXCHANGED;
}

struct loom_standing coll_loom_exchange_standing(void* context) {
  const struct coll_loom_module* const self = context;
  const struct coll_loom_exchanging* const exchanging = &self->exchanging;
  if (is_with_peers(exchanging)) {
    int i = 0;
    while (i + 1 < exchanging->under_way && coll_loom_is_complete(exchanging->requests[i])) ++i;
    return (struct loom_standing){.steps = 0,
                                  .awaited = exchanging->wanted.peers[i % exchanging->wanted.peer_count]};
  }
  bool has_received = true;
  for (int i = 0; i < exchanging->receives; ++i)
    has_received &= coll_loom_is_complete(exchanging->requests[i]);
  const int64_t distance = distance_of(exchanging);
  if (has_received) /* a long message has not been taken */
    return (struct loom_standing){.steps = exchanging->step + 1, .awaited = rank_at(self, -distance)};
  return (struct loom_standing){.steps = exchanging->step, .awaited = rank_at(self, distance)};
}

enum loom_exchanged coll_loom_give_exchange_up(struct coll_loom_module* self) {
  return end_by(self, LOOM_EXCHANGE_GIVEN_UP);
}

enum loom_exchanged coll_loom_exchange(void* context, const struct loom_exchange* exchange,
                                       const struct loom_watch* watch) {
  enum { TURNS_PER_LOOK = 64 };
  struct coll_loom_module* const self = context;
  enum loom_exchanged exchanged = coll_loom_start_exchange(self, exchange);
  for (unsigned turns = 1; exchanged == LOOM_EXCHANGE_PENDING; ++turns) {
    exchanged = coll_loom_test_exchange(self);
    if (exchanged != LOOM_EXCHANGE_PENDING) break;
    opal_progress();
    if (turns % TURNS_PER_LOOK == 0 && !watch->goes_on(watch->context))
      return coll_loom_give_exchange_up(self);
  }
  return exchanged;
}
