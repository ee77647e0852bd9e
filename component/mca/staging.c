#include "component/mca/staging.h"

#include "component/mca/cuda_aware.h"
#include "component/mca/regions.h"
#include "component/mca/setup.h"
#include "component/mca/way.h"
#include "component/mca/wrapper_request.h"

struct coll_loom_staging {
  struct coll_loom_module* self;
  int which;                           /* the collective */
  struct loom_streamed_copies* copies; /* NULL: all is copied before and after the call */
  struct loom_polled_copies* polled;   /* of a call that does not wait, as long as it goes on */
  bool for_loom;                       /* coll_loom_staging_is_for_loom */
  bool is_late;                        /* the copies bring the operands alone, if loom carries the call */
  struct coll_loom_staged_call call;   /* for coll_loom_perform */
  struct {
    struct loom_staging_buffer* staging_buffer; /* NULL: the buffer is on the host, or not of this rank */
    struct coll_loom_regions load, store;
  } sides[LOOM_SIDE_COUNT];
};

/* ---- Staging buffers */

/* Tells the other ranks, if the call has any. */
static int fail(struct coll_loom_module* self, int which, int result) {
  return which == LOOM_REDUCE_LOCAL ? coll_loom_error_class(result) : coll_loom_fail_alone(self, result);
}

/* Finds an address on a device, from MPI_BOTTOM. This reaches all memory, so each region is looked at; any
 * other buffer lies in one kind of memory. */
static int find_on_device(const struct coll_loom_module* self, const struct coll_loom_regions* load,
                          const struct coll_loom_regions* store, const char** address) {
  *address = NULL;
  for (int which = 0; which < 2; ++which) {
    const struct coll_loom_regions* const regions = which == 0 ? load : store;
    for (size_t i = 0; i < regions->number; ++i) {
      bool yes = false;
      const int result = loom_is_on_device(regions->list[i].device, coll_loom_name(self->communicator), &yes);
      if (result != LOOM_SUCCESS) return result;
      if (yes) {
        *address = regions->list[i].device;
        return LOOM_SUCCESS;
      }
    }
  }
  return LOOM_SUCCESS;
}

/* Leaves *staging as it was if the side's buffer is not on a device. */
static int stage_side(struct coll_loom_module* self, const struct coll_loom_significant* significant,
                      int side, bool may_wait, void** buffer, struct coll_loom_staging** staging) {
  const char* const where = coll_loom_name(self->communicator);
  const struct coll_loom_blocks *load = &significant->load[side], *store = &significant->store[side];
  const char* address = coll_loom_first_byte(load);
  if (address == NULL) address = coll_loom_first_byte(store);
  if (address == NULL) return LOOM_SUCCESS; /* this rank uses nothing of it */
  if (OPAL_LIKELY(*buffer != MPI_BOTTOM)) {
    bool yes = false;
    const int result = loom_is_on_device(address, where, &yes);
    if (OPAL_LIKELY(result != LOOM_SUCCESS || !yes)) return result;
  }
  struct coll_loom_regions loaded = {.list = NULL}, stored = {.list = NULL};
  coll_loom_add_blocks(&loaded, load);
  coll_loom_add_blocks(&stored, store);
  int result = loaded.failed || stored.failed ? coll_loom_no_memory(self) : LOOM_SUCCESS;
  if (result == LOOM_SUCCESS && *buffer == MPI_BOTTOM)
    result = find_on_device(self, &loaded, &stored, &address);
  if (result == LOOM_SUCCESS && address != NULL && *staging == NULL) {
    *staging = calloc(1, sizeof **staging);
    if (*staging == NULL) result = coll_loom_no_memory(self);
  }
  if (result == LOOM_SUCCESS && address != NULL) {
    ptrdiff_t distance;
    result = loom_staging_buffer_create(address, loaded.list, loaded.number, stored.list, stored.number,
                                        may_wait, where, &(*staging)->sides[side].staging_buffer, &distance);
    if (result == LOOM_SUCCESS) {
      *buffer = (void*)((uintptr_t)*buffer + (uintptr_t)distance); /* maybe outside the memory */
      (*staging)->sides[side].load = loaded;
      (*staging)->sides[side].store = stored;
      return LOOM_SUCCESS;
    }
  }
  free(loaded.list);
  free(stored.list);
  return result;
}

/* Once for each collective, communicator and value of overlaps. */
static void explain(struct coll_loom_module* self, int which, bool overlaps) {
  uint32_t* const explained = &self->explained_staging[overlaps];
  if (coll_loom_variables.verbose < 2 || *explained >> which & 1) return;
  *explained |= 1u << which;
  opal_output(0, "coll:loom: %s: rank %d has a buffer of %s on a device: copied through the host%s",
              coll_loom_name(self->communicator), ompi_comm_rank(self->communicator),
              which < LOOM_COLLECTIVE_COUNT ? loom_collective_name((enum loom_collective)which)
                                            : "a neighbourhood collective or reduce_local",
              overlaps ? ", part by part if the call goes that way" : "");
}

/* Whether the fallback component finds this rank's bytes on a device by the addresses of their buffers: not
 * from MPI_BOTTOM, and not by displacements that lead there from host memory; and whether that memory is of a
 * kind that its transports share. waits: what the program has put into the default stream has ended by then,
 * as with a copy: Open MPI orders nothing by streams. */
static bool are_found_by_address(const struct coll_loom_module* self,
                                 const struct coll_loom_significant* significant,
                                 const struct coll_loom_args* args, bool waits) {
  const char* const where = coll_loom_name(self->communicator);
  for (int side = 0; side < LOOM_SIDE_COUNT; ++side) {
    const char* address = coll_loom_first_byte(&significant->load[side]);
    if (address == NULL) address = coll_loom_first_byte(&significant->store[side]);
    if (address == NULL) continue;
    const void* const buffer = coll_loom_side_of(args, (enum loom_side)side)->buffer;
    bool is_there = false;
    if (buffer == MPI_BOTTOM || loom_is_on_device(address, where, &is_there) != LOOM_SUCCESS) return false;
    bool begins_there = is_there;
    if (address != buffer && loom_is_on_device(buffer, where, &begins_there) != LOOM_SUCCESS) return false;
    if (begins_there != is_there) return false;
    if (!is_there) continue;
    bool has_context = false;
    if (loom_is_in_a_context(address, where, &has_context) != LOOM_SUCCESS || !has_context) return false;
    if (waits && loom_wait_for_program(address, where) != LOOM_SUCCESS) return false;
    coll_loom_tell_cuda_aware(self);
  }
  return true;
}

int coll_loom_stage(struct coll_loom_module* self, int which, enum coll_loom_form form,
                    const mca_coll_base_module_t* fallback, struct coll_loom_args* args,
                    struct coll_loom_staging** staging) {
  const struct coll_loom_args given = *args;
  struct coll_loom_significant significant;
  const bool may_wait = form != COLL_LOOM_NONBLOCKING_FORM;
  *staging = NULL;
  coll_loom_find_significant(self->communicator, which, &given, &significant);
  const bool blocks = form == COLL_LOOM_BLOCKING_FORM;
  /* The fallback component has no such calls: coll_loom_fall_back_in_place makes them of a copy, at once. */
  const bool of_a_copy =
      !blocks && given.in.buffer == MPI_IN_PLACE && (which == LOOM_ALLTOALLV || which == LOOM_ALLTOALLW);
  const bool takes_devices = !of_a_copy && coll_loom_falls_back_on_devices(self, which, form, fallback);
  if (OPAL_UNLIKELY(takes_devices) && coll_loom_always_falls_back(self, args, form) &&
      are_found_by_address(self, &significant, &given, blocks))
    return OMPI_SUCCESS;
  int result = stage_side(self, &significant, LOOM_IN, may_wait, &args->in.buffer, staging);
  if (OPAL_LIKELY(result == LOOM_SUCCESS))
    result = stage_side(self, &significant, LOOM_OUT, may_wait, &args->out.buffer, staging);
  if (OPAL_LIKELY(result == LOOM_SUCCESS)) {
    if (*staging == NULL) return OMPI_SUCCESS;
    if (loom_significance_of(which)->traits & LOOM_SHARES_BUFFER) args->in.buffer = args->out.buffer;
    (*staging)->self = self;
    (*staging)->which = which;
    (*staging)->for_loom = takes_devices && blocks && are_found_by_address(self, &significant, &given, true);
    coll_loom_tell_cuda_aware(self);
    return OMPI_SUCCESS;
  }
  if (*staging != NULL) coll_loom_staging_free(*staging);
  *staging = NULL;
  return fail(self, which, result);
}

bool coll_loom_staging_is_for_loom(const struct coll_loom_staging* staging) {
  return staging->for_loom;
}

int coll_loom_staging_begin(struct coll_loom_staging* staging) {
  explain(staging->self, staging->which, false);
  for (int side = 0; side < LOOM_SIDE_COUNT; ++side) {
    const struct coll_loom_regions* const load = &staging->sides[side].load;
    if (load->number == 0) continue;
    const int result = loom_copy_regions(staging->sides[side].staging_buffer, load->list, load->number, false,
                                         coll_loom_name(staging->self->communicator));
    if (result != LOOM_SUCCESS) return fail(staging->self, staging->which, result);
  }
  return OMPI_SUCCESS;
}

/* Whether an algorithm that streams may run the call, its buffers are contiguous, and one of them is long. */
static bool may_stream(const struct coll_loom_staging* staging) {
  const struct coll_loom_module* const self = staging->self;
  const int which = staging->which;
  if (coll_loom_variables.overlap_bytes == 0) return false;
  if (which >= LOOM_COLLECTIVE_COUNT || !self->carries[which]) return false;
  if (!loom_may_stream((enum loom_collective)which, self->one_host)) return false;
  if (ompi_comm_size(self->communicator) == 1) return false;
  uint64_t longest = 0;
  for (int side = 0; side < LOOM_SIDE_COUNT; ++side) {
    const struct coll_loom_regions* const both[] = {&staging->sides[side].load, &staging->sides[side].store};
    for (int i = 0; i < 2; ++i) {
      if (both[i]->number == 0) continue;
      if (both[i]->number > 1 || both[i]->list[0].rows > 1) return false;
      if (both[i]->list[0].row_bytes > longest) longest = both[i]->list[0].row_bytes;
    }
  }
  return longest >= coll_loom_variables.overlap_bytes;
}

static struct loom_streamed_copies* stream(const struct coll_loom_staging* staging) {
  struct loom_streamed_side sides[LOOM_SIDE_COUNT];
  size_t n = 0;
  for (int side = 0; side < LOOM_SIDE_COUNT; ++side) {
    const struct coll_loom_regions *const load = &staging->sides[side].load, *const store =
                                                                                 &staging->sides[side].store;
    if (staging->sides[side].staging_buffer == NULL) continue;
    sides[n++] = (struct loom_streamed_side){.staging_buffer = staging->sides[side].staging_buffer,
                                             .load = load->number > 0 ? load->list : NULL,
                                             .store = store->number > 0 ? store->list : NULL};
  }
  return loom_streamed_copies_create(sides, n);
}

static struct loom_streamed_copies* copy_late(const struct coll_loom_staging* staging) {
  struct loom_late_side sides[LOOM_SIDE_COUNT];
  size_t n = 0;
  for (int side = 0; side < LOOM_SIDE_COUNT; ++side) {
    const struct coll_loom_regions* const load = &staging->sides[side].load;
    if (load->number == 0) continue;
    sides[n++] = (struct loom_late_side){staging->sides[side].staging_buffer, load->list, load->number};
  }
  return loom_late_copies_create(sides, n);
}

int coll_loom_staging_begin_blocking(struct coll_loom_staging* staging, const struct coll_loom_args* args) {
  if (may_stream(staging)) staging->copies = stream(staging);
  if (staging->copies != NULL) {
    explain(staging->self, staging->which, true);
  } else if (staging->for_loom) {
    staging->copies = copy_late(staging);
    staging->is_late = staging->copies != NULL;
  }
  if (staging->copies == NULL) {
    const int error = coll_loom_staging_begin(staging);
    if (error != OMPI_SUCCESS) return error;
  }
  staging->call =
      (struct coll_loom_staged_call){.copies = staging->copies, .args = staging->for_loom ? args : NULL};
  if (staging->copies != NULL || staging->for_loom) staging->self->staged = &staging->call;
  return OMPI_SUCCESS;
}

int coll_loom_staging_end(struct coll_loom_staging* staging, int error) {
  if (staging->call.fell_back) return error; /* the results are in the program's buffers */
  if (staging->is_late) explain(staging->self, staging->which, false);
  if (staging->copies != NULL && !staging->is_late && error == OMPI_SUCCESS) {
    const int result =
        loom_streamed_copies_finish(staging->copies, coll_loom_name(staging->self->communicator));
    return result == LOOM_SUCCESS ? OMPI_SUCCESS : coll_loom_error_class(result);
  }
  for (int side = 0; side < LOOM_SIDE_COUNT && error == OMPI_SUCCESS; ++side) {
    const struct coll_loom_regions* const store = &staging->sides[side].store;
    if (store->number == 0) continue;
    /* The other ranks have their results, so the communicator goes on. */
    const int result = loom_copy_regions(staging->sides[side].staging_buffer, store->list, store->number,
                                         true, coll_loom_name(staging->self->communicator));
    if (result != LOOM_SUCCESS) error = coll_loom_error_class(result);
  }
  return error;
}

static void end_polling(struct coll_loom_staging* staging) {
  if (staging->polled != NULL) loom_polled_copies_destroy(staging->polled);
  staging->polled = NULL;
}

int coll_loom_staging_start(struct coll_loom_staging* staging) {
  end_polling(staging); /* of the start before, if its call has failed */
  explain(staging->self, staging->which, false);
  struct loom_polled_side sides[LOOM_SIDE_COUNT];
  size_t n = 0;
  for (int side = 0; side < LOOM_SIDE_COUNT; ++side) {
    const struct coll_loom_regions *const load = &staging->sides[side].load, *const store =
                                                                                 &staging->sides[side].store;
    if (staging->sides[side].staging_buffer == NULL) continue;
    sides[n++] = (struct loom_polled_side){.staging_buffer = staging->sides[side].staging_buffer,
                                           .load = load->list,
                                           .store = store->list,
                                           .loads = load->number,
                                           .stores = store->number};
  }
  const int result =
      loom_polled_copies_create(sides, n, coll_loom_name(staging->self->communicator), &staging->polled);
  return result == LOOM_SUCCESS ? OMPI_SUCCESS : fail(staging->self, staging->which, result);
}

int coll_loom_staging_load(struct coll_loom_staging* staging) {
  bool done = false;
  const int result =
      loom_polled_copies_load(staging->polled, coll_loom_name(staging->self->communicator), &done);
  if (result == LOOM_SUCCESS) return done ? OMPI_SUCCESS : COLL_LOOM_GOES_ON;
  end_polling(staging);
  return fail(staging->self, staging->which, result);
}

int coll_loom_staging_store(struct coll_loom_staging* staging) {
  bool done = false;
  const int result =
      loom_polled_copies_store(staging->polled, coll_loom_name(staging->self->communicator), &done);
  if (result == LOOM_SUCCESS && !done) return COLL_LOOM_GOES_ON;
  end_polling(staging);
  return result == LOOM_SUCCESS ? OMPI_SUCCESS : coll_loom_error_class(result);
}

void coll_loom_staging_free(struct coll_loom_staging* staging) {
  end_polling(staging);
  if (staging->copies != NULL) loom_streamed_copies_destroy(staging->copies);
  for (int side = 0; side < LOOM_SIDE_COUNT; ++side) {
    if (staging->sides[side].staging_buffer != NULL)
      loom_staging_buffer_destroy(staging->sides[side].staging_buffer);
    free(staging->sides[side].load.list);
    free(staging->sides[side].store.list);
  }
  free(staging);
}

int coll_loom_staging_give_up(struct coll_loom_staging* staging) {
  const int error = fail(staging->self, staging->which, coll_loom_no_memory(staging->self));
  coll_loom_staging_free(staging);
  return error;
}
