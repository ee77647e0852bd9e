#include "component/mca/check.h"

#include "component/mca/check_exchange.h"
#include "component/mca/persistent.h"
#include "component/mca/setup.h"

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

static void say_value(struct coll_loom_text* text, enum field field, const uint64_t fields[FIELDS]) {
  static const char* const operations[] = {"",         "MPI_MAX",    "MPI_MIN",   "MPI_SUM", "MPI_PROD",
                                           "MPI_LAND", "MPI_BAND",   "MPI_LOR",   "MPI_BOR", "MPI_LXOR",
                                           "MPI_BXOR", "MPI_MAXLOC", "MPI_MINLOC"};
  const uint64_t value = fields[field];
  static const char* const forms[] = {[COLL_LOOM_BLOCKING_FORM] = "blocking",
                                      [COLL_LOOM_NONBLOCKING_FORM] = "nonblocking",
                                      [COLL_LOOM_PERSISTENT_FORM] = "persistent"};
  switch (field) {
    case COLLECTIVE:
      coll_loom_say(text, "%s", loom_collective_name((enum loom_collective)value));
      return;
    case FORM:
      coll_loom_say(text, "%s", forms[value]);
      return;
    case START_ORDER:
      coll_loom_say(text, "%s", value ? "true" : "false");
      return;
    case OPERATION:
      if (value > 0 && value <= sizeof operations / sizeof *operations)
        coll_loom_say(text, "%s", operations[value - 1]);
      else
        coll_loom_say(text, "%s", value == UINT64_MAX ? "an operation of its own" : "another operation");
      return;
    case IN_PLACE:
      coll_loom_say(text, "%s", value ? "given" : "not given");
      return;
    case BYTES:
      if (fields[COLLECTIVE] == LOOM_REDUCE_SCATTER)
        return coll_loom_say(text, "counts with the hash %016" PRIx64, value);
      /* fall through */
    default:
      coll_loom_say(text, "%" PRIu64, value);
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

static void describe(struct coll_loom_text* text, const struct signature* all, int ranks, enum field field,
                     int usual) {
  enum { MOST_NAMED = 6 };
  int named = 0;
  coll_loom_say(text, "%s: %s differs.",
                loom_collective_name((enum loom_collective)all[usual].fields[COLLECTIVE]),
                of_field[field].what);
  if (field != TYPES) {
    coll_loom_say(text, " Usual (rank %d): ", usual);
    say_value(text, field, all[usual].fields);
    coll_loom_say(text, ".");
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (all[rank].fields[field] == all[usual].fields[field]) continue;
    if (++named > MOST_NAMED) continue;
    coll_loom_say(text, " Rank %d: ", rank);
    if (field == TYPES)
      coll_loom_say(text, "other basic types than rank %d", usual);
    else
      say_value(text, field, all[rank].fields);
    coll_loom_say(text, ".");
  }
  if (named > MOST_NAMED) coll_loom_say(text, " And %d more.", named - MOST_NAMED);
}

/* Whether all have the same signature: the error class. */
static int judge_signatures(const void* signatures, int ranks, struct coll_loom_text* text) {
  const struct signature* const all = signatures;
  int usual = 0;
  const enum field field = first_difference(all, ranks, &usual);
  if (field == FIELDS) return MPI_SUCCESS;
  describe(text, all, ranks, field, usual);
  return of_field[field].error;
}

/* Whether each rank sends what its peers expect: the error class. */
static int judge_lists(const void* of_all, int ranks, struct coll_loom_text* text) {
  const uint64_t* const lists = of_all;
  const size_t n = (size_t)ranks;
  for (size_t from = 0; from < n; ++from)
    for (size_t to = 0; to < n; ++to) {
      const uint64_t sent = lists[from * 2 * n + to], expected = lists[to * 2 * n + n + from];
      if (sent == expected) continue;
      coll_loom_say(text, "rank %zu sends %" PRIu64 " bytes to rank %zu, which expects %" PRIu64 ".", from,
                    sent, to, expected);
      return MPI_ERR_COUNT;
    }
  return MPI_SUCCESS;
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
  struct coll_loom_text text = {.length = 0}, named;
  const size_t bytes = 2 * (size_t)ranks * sizeof(uint64_t);
  uint64_t* const list = mine.lists ? malloc(bytes) : NULL;
  if (mine.lists && list == NULL) {
    *error = MPI_ERR_NO_MEM;
    coll_loom_no_memory(self);
    coll_loom_end_checks(self, error);
    return false;
  }
  bool goes_on = coll_loom_tell_first(self, &mine, sizeof mine, judge_signatures, &text, error);
  bool is_named = goes_on;
  if (goes_on && *error == MPI_SUCCESS && mine.lists) {
    is_named = false;
    list_exchanges(args, rank, ranks, list);
    goes_on = coll_loom_tell_first(self, list, bytes, judge_lists, &text, error);
  }
  free(list);
  if (text.length > 0) {
    named.length = 0;
    if (!is_named) coll_loom_say(&named, "%s: ", loom_collective_name(args->collective));
    coll_loom_say(&named, "%s", text.of);
    /* mpirun shows each topic once, and rank 0, which knows more, may say it last. */
    coll_loom_help(goes_on     ? "mismatch"
                   : rank == 0 ? "missing-ranks"
                               : "timeout",
                   coll_loom_name(self->communicator), named.of);
  }
  return goes_on && *error == MPI_SUCCESS;
}
