#include "component/mca/check.h"

#include <stdarg.h>

#include "component/mca/exchange.h"
#include "component/mca/persistent.h"
#include "component/mca/setup.h"
#include "ompi/mca/pml/pml.h"

/* What all ranks must give alike. The collective decides which fields mean something; the others are 0. */
enum field { COLLECTIVE, FORM, START_ORDER, ROOT, OPERATION, IN_PLACE, BYTES, RECEIVED, TYPES, FIELDS };
struct signature {
  uint64_t fields[FIELDS];
  uint64_t lists; /* the rank will also tell how many bytes it exchanges with each other rank */
};
static const struct {
  const char* what;
  int error;
} of_field[FIELDS] = {{"the collective operation", MPI_ERR_OTHER},
                      {"the form", MPI_ERR_OTHER},
                      {"the info key \"" COLL_LOOM_ORDERED_STARTS_KEY "\"", MPI_ERR_INFO},
                      {"the root", MPI_ERR_ROOT},
                      {"the reduction operation", MPI_ERR_OP},
                      {"MPI_IN_PLACE", MPI_ERR_BUFFER},
                      {"the number of bytes", MPI_ERR_COUNT},
                      {"the number of bytes to be received", MPI_ERR_COUNT},
                      {"the datatype", MPI_ERR_TYPE}};

enum { NO_TYPES = 0, ANY_TYPES = 1 };

/* Which basic types a datatype is made of: equal for all datatypes of one signature. MPI_PACKED matches any
 * type. */
static uint64_t types_of(const struct ompi_datatype_t* type) {
  if (type == &ompi_mpi_packed.dt) return ANY_TYPES;
  return (uint64_t)type->super.bdt_used << 1;
}

static uint64_t bytes_of(const struct ompi_datatype_t* type, size_t count) {
  return (uint64_t)type->super.size * count;
}

static uint64_t mix(uint64_t hash, uint64_t value) {
  return (hash ^ value) * UINT64_C(0x100000001b3);
}

static uint64_t hash_of_counts(const struct coll_loom_side* side, int ranks) {
  uint64_t hash = 0;
  for (int part = 0; part < ranks; ++part)
    hash = mix(hash, bytes_of(side->type, coll_loom_count_at(side->counts, (size_t)part)));
  return hash;
}

/* A move whose counts are by rank: the bytes between two ranks are compared, pair by pair. */
static bool has_lists(const struct loom_significance* row) {
  return (row->traits & LOOM_REDUCES) == 0 && (row->sides[LOOM_IN].arrays | row->sides[LOOM_OUT].arrays) != 0;
}

static struct signature signature_of(const struct coll_loom_args* args, int rank, int ranks) {
  struct signature self = {.fields = {[COLLECTIVE] = (uint64_t)args->collective}};
  uint64_t* const fields = self.fields;
  const struct loom_significance* const row = loom_significance_of(args->collective);
  const bool in_place = args->in.buffer == MPI_IN_PLACE;
  if (row->traits & LOOM_HAS_ROOT) fields[ROOT] = (uint64_t)args->root;
  /* One user-defined operation cannot be told from another. */
  if (args->op != NULL)
    fields[OPERATION] = ompi_op_is_intrinsic(args->op) ? (uint64_t)args->op->o_f_to_c_index + 1 : UINT64_MAX;
  if (row->in_place.alike) fields[IN_PLACE] = in_place;
  self.lists = has_lists(row);
  if (self.lists || row->size != LOOM_SIZE_OF_ALL) return self;
  const enum loom_side side = loom_side_of_size(row, loom_role_of(rank, args->root));
  const struct coll_loom_side* const sized = coll_loom_side_of(args, side);
  fields[TYPES] = types_of(sized->type);
  fields[BYTES] =
      row->sides[side].arrays == 0 ? bytes_of(sized->type, sized->count) : hash_of_counts(sized, ranks);
  /* Where all ranks give a size for both sides, both are compared. */
  if (!loom_reduces(args->collective) && row->sides[LOOM_IN].ranks == LOOM_ALL_RANKS &&
      row->sides[LOOM_OUT].ranks == LOOM_ALL_RANKS) {
    fields[RECEIVED] = fields[BYTES];
    if (!in_place) fields[BYTES] = bytes_of(args->in.type, args->in.count);
  }
  return self;
}

static uint64_t block_bytes(const struct coll_loom_side* side, int rank) {
  const size_t count =
      side->counts != COLL_LOOM_NO_COUNTS ? coll_loom_count_at(side->counts, (size_t)rank) : side->count;
  return count == 0 ? 0 : bytes_of(side->types != NULL ? side->types[rank] : side->type, count);
}

/* First the bytes that this rank sends to each other rank, then the bytes that it expects from each. */
static void list_exchanges(const struct coll_loom_args* args, int rank, int ranks, uint64_t* list) {
  const struct loom_significance* const row = loom_significance_of(args->collective);
  const loom_role self = loom_role_of(rank, args->root);
  const bool in_place = args->in.buffer == MPI_IN_PLACE;
  const struct coll_loom_side* const from = in_place ? &args->out : &args->in;
  const bool one_block = row->sides[LOOM_IN].blocks == LOOM_ONE_BLOCK;
  for (int peer = 0; peer < ranks; ++peer) {
    const loom_role other = loom_role_of(peer, args->root);
    list[peer] = 0;
    list[ranks + peer] = 0;
    /* In place, what a rank sends to itself concerns no other rank. */
    if (peer == rank && (in_place || args->out.buffer == MPI_IN_PLACE)) continue;
    if (loom_passes(row, self, other)) list[peer] = block_bytes(from, in_place && one_block ? rank : peer);
    if (loom_passes(row, other, self)) list[ranks + peer] = block_bytes(&args->out, peer);
  }
}

struct text {
  char of[1024];
  size_t length;
};
__attribute__((format(printf, 2, 3))) static void say(struct text* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int written = vsnprintf(text->of + text->length, sizeof text->of - text->length, format, arguments);
  va_end(arguments);
  if (written > 0) text->length += (size_t)written;
  if (text->length >= sizeof text->of) text->length = sizeof text->of - 1;
}

static void say_value(struct text* text, enum field field, const uint64_t fields[FIELDS]) {
  static const char* const operations[] = {"",         "MPI_MAX",    "MPI_MIN",   "MPI_SUM", "MPI_PROD",
                                           "MPI_LAND", "MPI_BAND",   "MPI_LOR",   "MPI_BOR", "MPI_LXOR",
                                           "MPI_BXOR", "MPI_MAXLOC", "MPI_MINLOC"};
  const uint64_t value = fields[field];
  static const char* const forms[] = {[COLL_LOOM_BLOCKING_FORM] = "blocking",
                                      [COLL_LOOM_NONBLOCKING_FORM] = "nonblocking",
                                      [COLL_LOOM_PERSISTENT_FORM] = "persistent"};
  switch (field) {
    case COLLECTIVE:
      say(text, "%s", loom_collective_name((enum loom_collective)value));
      return;
    case FORM:
      say(text, "%s", forms[value]);
      return;
    case START_ORDER:
      say(text, "%s", value ? "true" : "false");
      return;
    case OPERATION:
      if (value > 0 && value <= sizeof operations / sizeof *operations)
        say(text, "%s", operations[value - 1]);
      else
        say(text, "%s", value == UINT64_MAX ? "an operation of its own" : "another operation");
      return;
    case IN_PLACE:
      say(text, "%s", value ? "given" : "not given");
      return;
    case BYTES:
      if (fields[COLLECTIVE] == LOOM_REDUCE_SCATTER)
        return say(text, "counts with the hash %016" PRIx64, value);
      /* fall through */
    default:
      say(text, "%" PRIu64, value);
  }
}

/* The first field that differs, or FIELDS. *usual: a rank that has the most frequent value. */
static enum field first_difference(const struct signature* all, int ranks, int* usual) {
  for (enum field field = 0; field < FIELDS; ++field) {
    int most = 0;
    bool differs = false;
    for (int rank = 0; rank < ranks; ++rank) {
      int like = 0;
      for (int other = 0; other < ranks; ++other) like += all[other].fields[field] == all[rank].fields[field];
      if (field == TYPES && all[rank].fields[field] == ANY_TYPES) continue;
      if (like > most) {
        most = like;
        *usual = rank;
      }
    }
    for (int rank = 0; rank < ranks && most > 0; ++rank)
      differs |= all[rank].fields[field] != all[*usual].fields[field] &&
                 !(field == TYPES && all[rank].fields[field] == ANY_TYPES);
    if (differs) return field;
  }
  return FIELDS;
}

static void describe(struct text* text, const struct signature* all, int ranks, enum field field, int usual) {
  enum { MOST_NAMED = 6 };
  int named = 0;
  say(text, "%s: %s differs.", loom_collective_name((enum loom_collective)all[usual].fields[COLLECTIVE]),
      of_field[field].what);
  if (field != TYPES) {
    say(text, " Usual (rank %d): ", usual);
    say_value(text, field, all[usual].fields);
    say(text, ".");
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (all[rank].fields[field] == all[usual].fields[field]) continue;
    if (++named > MOST_NAMED) continue;
    say(text, " Rank %d: ", rank);
    if (field == TYPES)
      say(text, "other basic types than rank %d", usual);
    else
      say_value(text, field, all[rank].fields);
    say(text, ".");
  }
  if (named > MOST_NAMED) say(text, " And %d more.", named - MOST_NAMED);
}

/* Whether all have the same signature: the error class. */
static int judge_signatures(const void* signatures, int ranks, struct text* text) {
  const struct signature* const all = signatures;
  int usual = 0;
  const enum field field = first_difference(all, ranks, &usual);
  if (field == FIELDS) return MPI_SUCCESS;
  describe(text, all, ranks, field, usual);
  return of_field[field].error;
}

/* Whether each rank sends what its peers expect: the error class. */
static int judge_lists(const void* of_all, int ranks, struct text* text) {
  const uint64_t* const lists = of_all;
  const size_t n = (size_t)ranks;
  for (size_t from = 0; from < n; ++from)
    for (size_t to = 0; to < n; ++to) {
      const uint64_t sent = lists[from * 2 * n + to], expected = lists[to * 2 * n + n + from];
      if (sent == expected) continue;
      say(text, "rank %zu sends %" PRIu64 " bytes to rank %zu, which expects %" PRIu64 ".", from, sent, to,
          expected);
      return MPI_ERR_COUNT;
    }
  return MPI_SUCCESS;
}

/* Each rank tells the first one what it calls, and that one judges and answers. So one rank knows who has not
 * come; memory for the lists of all is needed there alone; and whoever comes too late finds an answer. A rank
 * that gives up says so by an empty message: no other is empty. The first rank looks for one before it
 * answers. (If the two cross, the first rank makes the call in vain.) */
enum { TO_FIRST = COLL_LOOM_TAG - 2, ANSWER = TO_FIRST - 1, MOST_ANSWERS = 128 };
/* In an answer, beside the error class: the ranks compare no more calls of this communicator. */
static const uint64_t ENDED = UINT64_C(1) << 32;

enum outcome { DONE, LATE, FAILED };

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
 * `is_open` then says which are not complete; they are given up. What cannot be cancelled goes on, and its
 * memory stays. */
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
  bool all = true;
  for (int i = 0; i < number; ++i) {
    if (requests[i] == NULL) continue;
    const bool has_ended = is_complete(requests[i], error);
    is_open[i] = !has_ended || (bytes > 0 && requests[i]->req_status._ucount != bytes);
    all &= !is_open[i];
    if (!has_ended) ompi_request_cancel(requests[i]);
    ompi_request_free(&requests[i]);
  }
  return *error != OMPI_SUCCESS ? FAILED : all ? DONE : LATE;
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
    if (is_open[rank]) outcome = LATE;
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

/* Later calls fail, too: messages of this one may still come. They must not reach another communicator with
 * the same id, so this one stays for the rest of the program. */
static void end_checks(struct coll_loom_module* self, enum outcome outcome, int* error) {
  self->checks_have_ended = true;
  OBJ_RETAIN(self->communicator);
  if (*error < 0) *error = MPI_ERR_OTHER; /* not a class */
  if (outcome == FAILED) self->error = *error;
  const int class = coll_loom_fail_alone(self, outcome == LATE ? LOOM_ERR_TIMEOUT : LOOM_ERR_PEER_FAILED);
  if (outcome == LATE) *error = class;
}

typedef int (*judge_t)(const void* all, int ranks, struct text* text);

static void name_missing(struct text* text, const bool* is_open, int ranks) {
  enum { MOST_NAMED = 16 };
  int named = 0;
  say(text, "no word within %.1f s from rank", coll_loom_variables.timeout_s);
  for (int rank = 1; rank < ranks; ++rank)
    if (is_open[rank] && ++named <= MOST_NAMED) say(text, "%s %d", named > 1 ? "," : "", rank);
  if (named > MOST_NAMED) say(text, ", and %d more", named - MOST_NAMED);
  say(text, " of %d, or it has given up waiting. The others make this call.", ranks);
}

/* On the first rank. False: the checks have ended. */
static bool hear_and_judge(struct coll_loom_module* self, const void* mine, size_t bytes, judge_t judge,
                           struct text* text, int* error) {
  const int ranks = ompi_comm_size(self->communicator);
  char* const all = calloc((size_t)ranks, bytes + sizeof(bool));
  enum outcome outcome = FAILED;
  *error = MPI_ERR_NO_MEM;
  if (all != NULL) {
    bool* const is_open = (bool*)(all + (size_t)ranks * bytes);
    memcpy(all, mine, bytes);
    outcome = hear(self, all, bytes, is_open, error);
    if (outcome == DONE) *error = judge(all, ranks, text);
    if (outcome == LATE) name_missing(text, is_open, ranks);
  }
  if (outcome == DONE) {
    answer(self, *error, false);
    free(all);
    return true;
  }
  end_checks(self, outcome, error);
  answer(self, *error, true);
  return false;
}

/* On the others. */
static bool tell_and_obey(struct coll_loom_module* self, const void* mine, size_t bytes, struct text* text,
                          int* error) {
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
    end_checks(self, FAILED, error);
    return false;
  }
  if (outcome == DONE) outcome = wait_for(self, &sent, 0, &is_open, 1, until_the_first_is_late, error);
  if (outcome == DONE) {
    *error = (int)told->answer;
    free(told);
    return true;
  }
  if (outcome == LATE)
    say(text,
        "no answer within %.1f s from rank 0, which compares what the ranks call: it has not come to this "
        "call, or waits for others.",
        coll_loom_variables.timeout_s + until_the_first_is_late);
  say_left(self);
  end_checks(self, outcome, error);
  return false;
}

static bool compare(struct coll_loom_module* self, const void* mine, size_t bytes, judge_t judge,
                    struct text* text, int* error) {
  return ompi_comm_rank(self->communicator) == 0 ? hear_and_judge(self, mine, bytes, judge, text, error)
                                                 : tell_and_obey(self, mine, bytes, text, error);
}

bool coll_loom_check(struct coll_loom_module* self, const struct coll_loom_args* args,
                     enum coll_loom_form form, int* error) {
  const int rank = ompi_comm_rank(self->communicator), ranks = ompi_comm_size(self->communicator);
  if (ranks == 1 || self->state == COLL_LOOM_BROKEN) return true;
  *error = MPI_ERR_OTHER;
  if (self->checks_have_ended) return false;
  struct signature mine = signature_of(args, rank, ranks);
  mine.fields[FORM] = form;
  mine.fields[START_ORDER] =
      form == COLL_LOOM_PERSISTENT_FORM && coll_loom_starts_are_ordered(self->communicator);
  struct text text = {.length = 0}, named;
  const size_t bytes = 2 * (size_t)ranks * sizeof(uint64_t);
  uint64_t* const list = mine.lists ? malloc(bytes) : NULL;
  if (mine.lists && list == NULL) {
    *error = MPI_ERR_NO_MEM;
    coll_loom_no_memory(self);
    if (rank != 0) say_left(self);
    end_checks(self, FAILED, error);
    if (rank == 0) answer(self, *error, true);
    return false;
  }
  bool goes_on = compare(self, &mine, sizeof mine, judge_signatures, &text, error);
  bool is_named = goes_on;
  if (goes_on && *error == MPI_SUCCESS && mine.lists) {
    is_named = false;
    list_exchanges(args, rank, ranks, list);
    goes_on = compare(self, list, bytes, judge_lists, &text, error);
  }
  free(list);
  if (text.length > 0) {
    named.length = 0;
    if (!is_named) say(&named, "%s: ", loom_collective_name(args->collective));
    say(&named, "%s", text.of);
    coll_loom_help(goes_on ? "mismatch" : "timeout", coll_loom_name(self->communicator), named.of);
  }
  return goes_on && *error == MPI_SUCCESS;
}
