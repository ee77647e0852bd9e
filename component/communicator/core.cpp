// core.cpp -- the C interface: one Process per process, and the only place where exceptions become results.
#include "component/core.h"

#include <unistd.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "component/communicator/communicator.hpp"
#include "component/communicator/failure.hpp"
#include "component/communicator/set_up.hpp"
#include "component/execute/local_calls.hpp"
#include "device/cuda/late_copies.hpp"
#include "device/cuda/polled_copies.hpp"
#include "device/cuda/streamed_copies.hpp"
#include "ucx_transport/memory_types.hpp"

using loom::Communicator;
using loom::LocalCalls;
using loom::Process;
using loom::ProgressEngine;

// A loom_comm is a Communicator that C cannot look into.

namespace {

using loom::device::Collective;
using loom::device::Op;
using loom::device::Type;
static_assert(LOOM_ALGORITHM_COUNT == loom::kAlgorithmCount && LOOM_FALLBACK_COUNT == loom::kFallbackCount &&
              LOOM_ANY_START_ORDER == static_cast<int>(loom::FallbackReason::kAnyStartOrder));
static_assert(sizeof(loom_strided_region) == sizeof(loom::device::cuda::StridedRegion) &&
              offsetof(loom_strided_region, row_bytes) ==
                  offsetof(loom::device::cuda::StridedRegion, row_bytes) &&
              offsetof(loom_strided_region, pitch) == offsetof(loom::device::cuda::StridedRegion, pitch));

// Not static objects: their destructors would run in a forked child that calls exit(), and end the parent's
// connections.
Process* the_process = nullptr;
ProgressEngine* the_engine = nullptr;
LocalCalls* the_local_calls = nullptr;
pid_t its_pid = 0;

int progress_callback() {
  if (loom::ucx_transport::Transport* transport = the_process->open_transport())
    return static_cast<int>(transport->progress());
  return 0;
}

int request_callback() {
  return the_engine->progress();
}

/// A rank, for messages, before it has a Communicator.
struct Place {
  explicit Place(const loom_bootstrap& of) {
    loom::format_into(text, "rank {} of {} of {}", of.rank, of.size, of.name);
  }
  char text[256] = {};
};

/// Wraps every function that Open MPI's glue calls and that can fail.
template <class Body>
int at_c_boundary(const char* where, Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return loom::result_of_exception(
        [&](loom_message message, const char* cause) { the_process->runtime().show(message, where, cause); });
  }
}

/// The same for copies of device buffers: the communicator may survive their failures.
template <class Body>
int at_device_boundary(const char* where, Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return loom::result_of_exception([&](loom_message, const char* cause) {
      the_process->runtime().show(LOOM_MESSAGE_DEVICE, where, cause);
    });
  }
}

loom::device::Call small_call(const void* in, void* out, std::uint64_t count, loom_kind kind) {
  return {.collective = static_cast<Collective>(kind.collective),
          .in = static_cast<const std::byte*>(in),
          .out = static_cast<std::byte*>(out),
          .count = count,
          .type = static_cast<Type>(kind.type),
          .op = static_cast<Op>(kind.op),
          .root = kind.root};
}

using loom::device::cuda::LateCopies;
using loom::device::cuda::LateSide;
using loom::device::cuda::PolledCopies;
using loom::device::cuda::StagingBuffer;
using loom::device::cuda::StreamedCopies;
using loom::device::cuda::StridedRegion;

std::span<const StridedRegion> strided(const loom_strided_region* regions, std::uint64_t n) {
  return {reinterpret_cast<const StridedRegion*>(regions), static_cast<std::size_t>(n)};
}

}  // namespace

void loom_initialize(const loom_runtime* runtime) {
  the_process = new Process(*runtime, {}, progress_callback);
  the_engine = new ProgressEngine(*the_process, request_callback);
  the_local_calls = new LocalCalls(*the_process);
  its_pid = ::getpid();
}

void loom_finalize() {
  // A forked child shares the parent's sockets: it must not send anything through them.
  if (its_pid == ::getpid()) {
    delete the_local_calls;
    delete the_engine;
    delete the_process;
  }
  the_local_calls = nullptr;
  the_engine = nullptr;
  the_process = nullptr;
}

int loom_comm_create(const loom_bootstrap* bootstrap, loom_comm** out) {
  return at_c_boundary(Place(*bootstrap).text, [&]() -> int {
    auto communicator = Communicator::create(loom::Bootstrap(*bootstrap), *the_process, *the_engine);
    if (!communicator) return LOOM_DECLINED;
    *out = reinterpret_cast<loom_comm*>(communicator.release());
    return LOOM_SUCCESS;
  });
}

// A loom_set_up is a ResumableSetUp that C cannot look into.
loom_set_up* loom_set_up_create(const loom_bootstrap* bootstrap, loom_comm* comm) {
  try {
    return reinterpret_cast<loom_set_up*>(new loom::ResumableSetUp(*bootstrap, *the_process, *the_engine,
                                                                   reinterpret_cast<Communicator*>(comm)));
  } catch (const std::exception&) {
    return nullptr;
  }
}

loom_set_up_state loom_set_up_advance(loom_set_up* set_up, loom_exchanged exchanged, loom_exchange* next) {
  return reinterpret_cast<loom::ResumableSetUp*>(set_up)->advance(exchanged, next);
}

int loom_set_up_finish(loom_set_up* set_up, loom_comm** out) {
  const std::unique_ptr<loom::ResumableSetUp> done(reinterpret_cast<loom::ResumableSetUp*>(set_up));
  return at_c_boundary(Place(done->bootstrap()).text, [&]() -> int {
    auto communicator = done->take();
    if (!done->makes_communicator()) return LOOM_SUCCESS;
    if (!communicator) return LOOM_DECLINED;
    *out = reinterpret_cast<loom_comm*>(communicator.release());
    return LOOM_SUCCESS;
  });
}

int loom_set_up_now(const loom_bootstrap* bootstrap, loom_comm* comm, loom_comm** out) {
  if (comm == nullptr) return loom_comm_create(bootstrap, out);
  return at_c_boundary(Place(*bootstrap).text, [&]() -> int {
    reinterpret_cast<Communicator*>(comm)->connect(loom::Bootstrap(*bootstrap), nullptr);
    return LOOM_SUCCESS;
  });
}

void loom_comm_destroy(loom_comm* comm) {
  // A communicator that outlives the component or a fork is not freed: what it refers to is gone, or belongs
  // to the parent.
  if (the_process == nullptr || its_pid != ::getpid()) return;
  delete reinterpret_cast<Communicator*>(comm);
  if (Process::may_wait_for_gpus) the_process->release_unused_memory();  // that calls could not
}

bool loom_set_may_wait_for_gpus(bool may) {
  return std::exchange(Process::may_wait_for_gpus, may);
}

const loom_fast_below* loom_fast_below_of(const loom_comm* comm) {
  return &reinterpret_cast<const Communicator*>(comm)->fast_below();
}

int loom_perform_small(loom_comm* comm, const void* in, void* out, uint64_t count, loom_kind kind) {
  Communicator& communicator = *reinterpret_cast<Communicator*>(comm);
  return at_c_boundary(communicator.where().c_str(), [&]() -> int {
    communicator.perform_small(small_call(in, out, count, kind));
    return LOOM_SUCCESS;
  });
}

int loom_perform_middle(loom_comm* comm, const void* in, void* out, uint64_t count, loom_kind kind) {
  Communicator& communicator = *reinterpret_cast<Communicator*>(comm);
  return at_c_boundary(communicator.where().c_str(), [&]() -> int {
    return communicator.perform_middle(small_call(in, out, count, kind)) ? LOOM_SUCCESS : LOOM_DECLINED;
  });
}

int loom_perform(loom_comm* comm, const loom_call* call) {
  Communicator& communicator = *reinterpret_cast<Communicator*>(comm);
  return at_c_boundary(communicator.where().c_str(),
                       [&]() -> int { return communicator.perform(*call) ? LOOM_SUCCESS : LOOM_DECLINED; });
}

int loom_perform_on_device(loom_comm* comm, const loom_call* call) {
  Communicator& communicator = *reinterpret_cast<Communicator*>(comm);
  return at_c_boundary(communicator.where().c_str(), [&]() -> int {
    const bool done = communicator.is_alone() ? communicator.copy_on_device(*call, *the_local_calls)
                                              : communicator.perform_on_device(*call);
    return done ? LOOM_SUCCESS : LOOM_DECLINED;
  });
}

void loom_staged_call_ended(loom_comm* comm) {
  reinterpret_cast<Communicator*>(comm)->staged_call_ended();
}

// A loom_request is a Request that C cannot look into.
int loom_request_create(loom_comm* comm, const loom_call* call, loom_request_kind kind,
                        loom_request_done done, void* context, loom_request** out) {
  Communicator& communicator = *reinterpret_cast<Communicator*>(comm);
  return at_c_boundary(communicator.where().c_str(), [&]() -> int {
    std::unique_ptr<loom::Request> request;
    if (kind == LOOM_PERSISTENT_ON_DEVICE) {
      request = communicator.make_request_on_gpus(*call, done, context);
      if (!request) return LOOM_DECLINED;
      *out = reinterpret_cast<loom_request*>(request.release());
      return LOOM_SUCCESS;
    }
    const bool persistent = kind == LOOM_PERSISTENT || kind == LOOM_PERSISTENT_ANY_ORDER;
    if (!persistent && communicator.needs_links(*call)) return LOOM_UNCONNECTED;
    if (persistent) request = communicator.make_request_with_lane(*call, done, context);
    if (!request) {
      const bool declines = kind == LOOM_PERSISTENT_ANY_ORDER && communicator.declines(*call);
      if (kind == LOOM_PERSISTENT_ANY_ORDER && !declines) return LOOM_NO_LANE;
      Communicator* const carrier =
          persistent && !declines ? communicator.for_persistent_calls() : &communicator;
      if (carrier == nullptr) return LOOM_DECLINED;
      request = carrier->make_request(*call, persistent ? LOOM_PERSISTENT : kind, done, context);
      if (!request) return LOOM_DECLINED;
    }
    *out = reinterpret_cast<loom_request*>(request.release());
    return LOOM_SUCCESS;
  });
}

bool loom_carries_beside_devices(loom_comm* comm, loom_collective collective) {
  return reinterpret_cast<Communicator*>(comm)->carries_beside_devices(static_cast<Collective>(collective));
}

bool loom_request_is_in_any_order(const loom_request* request) {
  return reinterpret_cast<const loom::Request*>(request)->lane != nullptr;
}

void loom_request_mark_start(loom_request* request) {
  auto* started = reinterpret_cast<loom::Request*>(request);
  started->communicator.mark_start(*started);
}

void loom_request_start(loom_request* request) {
  auto* started = reinterpret_cast<loom::Request*>(request);
  started->communicator.start(*started);
}

void loom_request_destroy(loom_request* request) {
  delete reinterpret_cast<loom::Request*>(request);
}

void loom_comm_leave(loom_comm* comm) {
  reinterpret_cast<Communicator*>(comm)->leave();
}

bool loom_comm_has_tried_links(loom_comm* comm) {
  return reinterpret_cast<Communicator*>(comm)->has_tried_links();
}

bool loom_comm_is_on_one_host(const loom_comm* comm) {
  return reinterpret_cast<const Communicator*>(comm)->is_on_one_host();
}

bool loom_may_make_an_id(loom_collective collective, std::uint64_t bytes, loom_op op, loom_type type) {
  return loom::may_make_an_id(static_cast<Collective>(collective), bytes, static_cast<loom::device::Op>(op),
                              static_cast<loom::device::Type>(type));
}

bool loom_may_carry(loom_collective collective, bool one_host) {
  return loom::may_carry(static_cast<Collective>(collective), one_host);
}
bool loom_may_carry_on_devices(loom_collective collective, bool one_host) {
  return loom::may_carry_on_devices(static_cast<Collective>(collective), one_host);
}
bool loom_may_stream(loom_collective collective, bool one_host) {
  return loom::may_stream(static_cast<Collective>(collective), one_host);
}

int loom_reduce_local_on_device(const void* in, void* inout, std::uint64_t count, loom_type type, loom_op op,
                                const char* where) {
  return at_device_boundary(where, [&]() -> int {
    const bool done =
        the_local_calls->reduce(static_cast<const std::byte*>(in), static_cast<std::byte*>(inout), count,
                                static_cast<Op>(op), static_cast<Type>(type));
    return done ? LOOM_SUCCESS : LOOM_DECLINED;
  });
}

bool loom_depends_on_order(loom_type type) {
  return loom::device::depends_on_order(static_cast<Type>(type));
}

void loom_reduce_in_order(const void* operands, int n, uint64_t count, loom_type type, loom_op op,
                          void* result) {
  const auto* from = static_cast<const std::byte*>(operands);
  auto* out = static_cast<std::byte*>(result);
  const std::size_t bytes = count * loom::device::size_of(static_cast<Type>(type));
  const loom::device::ReduceFn reduce =
      loom::device::find_reduce(static_cast<Op>(op), static_cast<Type>(type));
  for (int i = 1; i < n; ++i)
    reduce(out, i == 1 ? from : out, from + static_cast<std::size_t>(i) * bytes, count);
}

bool loom_wants_devices() {
  return the_process != nullptr && the_process->wants_devices();
}

bool loom_may_have_device_memory() {
  return the_process != nullptr && the_process->look_for_devices() != nullptr;
}

int loom_is_on_device(const void* address, const char* where, bool* yes) {
  return at_device_boundary(where, [&]() -> int {
    *yes = the_process->staging()->is_on_device(address);
    return LOOM_SUCCESS;
  });
}

int loom_is_in_a_context(const void* address, const char* where, bool* yes) {
  return at_device_boundary(where, [&]() -> int {
    *yes = the_process->staging()->driver().is_in_a_context(address);
    return LOOM_SUCCESS;
  });
}

int loom_wait_for_program(const void* address, const char* where) {
  return at_device_boundary(where, [&]() -> int {
    const loom::device::cuda::Driver& driver = the_process->staging()->driver();
    if (const auto owner = driver.owner_of(address)) driver.wait_for_program(*owner);
    return LOOM_SUCCESS;
  });
}

bool loom_ucx_moves_device_memory() {
  return loom::ucx_transport::open_mpi_moves_cuda_memory();
}

// A loom_staging_buffer is a StagingBuffer that C cannot look into.
int loom_staging_buffer_create(const void* address, loom_strided_region* load, uint64_t loads,
                               loom_strided_region* store, uint64_t stores, bool may_wait, const char* where,
                               loom_staging_buffer** out, ptrdiff_t* distance) {
  return at_device_boundary(where, [&]() -> int {
    auto staging_buffer = the_process->staging()->staging_buffer(
        address, {reinterpret_cast<StridedRegion*>(load), static_cast<std::size_t>(loads)},
        {reinterpret_cast<StridedRegion*>(store), static_cast<std::size_t>(stores)}, may_wait);
    *distance = staging_buffer->distance();
    *out = reinterpret_cast<loom_staging_buffer*>(staging_buffer.release());
    return LOOM_SUCCESS;
  });
}

void loom_staging_buffer_destroy(loom_staging_buffer* staging_buffer) {
  // As for communicators: a buffer that outlives the component is not freed.
  if (the_process != nullptr) delete reinterpret_cast<StagingBuffer*>(staging_buffer);
}

int loom_copy_regions(loom_staging_buffer* staging_buffer, const loom_strided_region* regions, uint64_t n,
                      bool to_device, const char* where) {
  using loom::device::cuda::Direction;
  return at_device_boundary(where, [&]() -> int {
    reinterpret_cast<StagingBuffer*>(staging_buffer)
        ->copy(strided(regions, n), to_device ? Direction::kToDevice : Direction::kToHost);
    return LOOM_SUCCESS;
  });
}

// A loom_streamed_copies is the Streaming base of a StreamedCopies or LateCopies, for a call points to one; C
// cannot look into it.
namespace {
loom_streamed_copies* for_c(loom::device::Streaming* copies) {
  return reinterpret_cast<loom_streamed_copies*>(copies);
}
loom::device::Streaming& streaming(loom_streamed_copies* copies) {
  return *reinterpret_cast<loom::device::Streaming*>(copies);
}
}  // namespace

loom_streamed_copies* loom_streamed_copies_create(const loom_streamed_side* sides, std::size_t n) {
  try {
    std::vector<loom::device::cuda::StreamedSide> all(n);
    for (std::size_t i = 0; i < n; ++i) {
      all[i].staging_buffer = reinterpret_cast<StagingBuffer*>(sides[i].staging_buffer);
      // From other memory the driver would copy while it is called.
      if (!all[i].staging_buffer->is_locked() && all[i].staging_buffer->locked_window().empty())
        return nullptr;
      if (sides[i].load != nullptr) all[i].load = *reinterpret_cast<const StridedRegion*>(sides[i].load);
      if (sides[i].store != nullptr) all[i].store = *reinterpret_cast<const StridedRegion*>(sides[i].store);
    }
    return for_c(new StreamedCopies(all));
  } catch (const std::exception&) {
    return nullptr;
  }
}

loom_streamed_copies* loom_late_copies_create(const loom_late_side* sides, std::size_t n) {
  try {
    std::vector<LateSide> all(n);
    for (std::size_t i = 0; i < n; ++i)
      all[i] = {reinterpret_cast<StagingBuffer*>(sides[i].staging_buffer),
                strided(sides[i].load, sides[i].loads)};
    return for_c(new LateCopies(std::move(all)));
  } catch (const std::exception&) {
    return nullptr;
  }
}

int loom_streamed_copies_need_all(loom_streamed_copies* copies, const char* where) {
  return at_device_boundary(where, [&]() -> int {
    streaming(copies).need_all();
    return LOOM_SUCCESS;
  });
}

int loom_streamed_copies_finish(loom_streamed_copies* copies, const char* where) {
  return at_device_boundary(where, [&]() -> int {
    static_cast<StreamedCopies&>(streaming(copies)).finish();
    return LOOM_SUCCESS;
  });
}

void loom_streamed_copies_destroy(loom_streamed_copies* copies) {
  if (copies != nullptr) delete &streaming(copies);
}

// A loom_polled_copies is a PolledCopies that C cannot look into.
int loom_polled_copies_create(const loom_polled_side* sides, std::size_t n, const char* where,
                              loom_polled_copies** out) {
  return at_device_boundary(where, [&]() -> int {
    std::vector<loom::device::cuda::PolledSide> all(n);
    for (std::size_t i = 0; i < n; ++i)
      all[i] = {reinterpret_cast<StagingBuffer*>(sides[i].staging_buffer),
                strided(sides[i].load, sides[i].loads), strided(sides[i].store, sides[i].stores)};
    *out = reinterpret_cast<loom_polled_copies*>(new PolledCopies(all));
    return LOOM_SUCCESS;
  });
}

int loom_polled_copies_load(loom_polled_copies* copies, const char* where, bool* done) {
  return at_device_boundary(where, [&]() -> int {
    *done = reinterpret_cast<PolledCopies*>(copies)->load();
    return LOOM_SUCCESS;
  });
}

int loom_polled_copies_store(loom_polled_copies* copies, const char* where, bool* done) {
  return at_device_boundary(where, [&]() -> int {
    *done = reinterpret_cast<PolledCopies*>(copies)->store();
    return LOOM_SUCCESS;
  });
}

void loom_polled_copies_destroy(loom_polled_copies* copies) {
  if (the_process != nullptr) delete reinterpret_cast<PolledCopies*>(copies);
}

void loom_read_counters(loom_counters* out) {
  *out = the_process ? the_process->counters() : loom_counters{};
}

void loom_count_fallback(loom_collective collective, loom_fallback reason) {
  the_process->count_fallback(static_cast<Collective>(collective), static_cast<loom::FallbackReason>(reason));
}
