// core.cpp -- the C face: one Process per process, and the only place where exceptions become results.
#include "component/core.h"

#include <unistd.h>

#include <memory>
#include <new>

#include "component/communicator.hpp"

using loom::Communicator;
using loom::ErrorCode;
using loom::Process;

// A loom_comm is a Communicator that C cannot look into.

namespace {

using loom::device::Collective;
using loom::device::Op;
using loom::device::Type;
static_assert(LOOM_OP_COUNT == loom::device::kOpCount && LOOM_TYPE_COUNT == loom::device::kTypeCount);
static_assert(LOOM_ALLREDUCE == static_cast<int>(Collective::kAllreduce) &&
              LOOM_BCAST == static_cast<int>(Collective::kBroadcast) &&
              LOOM_BARRIER == static_cast<int>(Collective::kBarrier));
static_assert(LOOM_SUM == static_cast<int>(Op::kSum) && LOOM_MAX == static_cast<int>(Op::kMax) &&
              LOOM_LXOR == static_cast<int>(Op::kLxor) && LOOM_BXOR == static_cast<int>(Op::kBxor) &&
              LOOM_MAXLOC == static_cast<int>(Op::kMaxloc));
static_assert(LOOM_INT8 == static_cast<int>(Type::kInt8) && LOOM_UINT8 == static_cast<int>(Type::kUint8) &&
              LOOM_UINT64 == static_cast<int>(Type::kUint64) &&
              LOOM_DOUBLE == static_cast<int>(Type::kDouble) && LOOM_HALF == static_cast<int>(Type::kHalf) &&
              LOOM_COMPLEX_FLOAT == static_cast<int>(Type::kComplexFloat) &&
              LOOM_FLOAT_INT == static_cast<int>(Type::kFloatInt) &&
              LOOM_DOUBLE_DOUBLE == static_cast<int>(Type::kDoubleDouble));

// Not a static object: its destructor would run in a forked child that calls exit(), and end the parent's
// connections.
Process* the_process = nullptr;
pid_t its_pid = 0;

int progress_callback() {
  if (loom::ucx_transport::Transport* transport = the_process->open_transport())
    return static_cast<int>(transport->progress());
  return 0;
}

int to_result(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kOutOfMemory:
      return LOOM_ERR_OUT_OF_MEMORY;
    case ErrorCode::kSystem:
      return LOOM_ERR_SYSTEM;
    case ErrorCode::kUnreachable:
      return LOOM_ERR_UNREACHABLE;
    case ErrorCode::kPeerFailed:
      return LOOM_ERR_PEER_FAILED;
    case ErrorCode::kTimeout:
      return LOOM_ERR_TIMEOUT;
    case ErrorCode::kBadInput:
      return LOOM_ERR_SYSTEM;
    case ErrorCode::kInternal:
      return LOOM_ERR_INTERNAL;
  }
  return LOOM_ERR_INTERNAL;
}

loom_message message_for(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kPeerFailed:
      return LOOM_MESSAGE_PEER_FAILED;
    case ErrorCode::kTimeout:
      return LOOM_MESSAGE_TIMEOUT;
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kSystem:
      return LOOM_MESSAGE_RESOURCES;
    case ErrorCode::kUnreachable:  // this and the next: a matter of the set-up, where it is agreed on
    case ErrorCode::kBadInput:
    case ErrorCode::kInternal:
      return LOOM_MESSAGE_INTERNAL;
  }
  return LOOM_MESSAGE_INTERNAL;
}

/// Every function that Open MPI's glue calls and that can fail is one call to this.
template <class Body>
int at_c_boundary(const char* where, Body&& body) noexcept {
  const auto show = [&](loom_message message, const char* cause) {
    the_process->runtime().show(message, where, cause);
  };
  try {
    return body();
  } catch (const loom::Error& error) {
    show(message_for(error.code()), error.what());
    return to_result(error.code());
  } catch (const loom::BootstrapFailed& error) {
    show(LOOM_MESSAGE_BOOTSTRAP, error.what());
    return LOOM_ERR_SYSTEM;
  } catch (const std::bad_alloc&) {
    show(LOOM_MESSAGE_RESOURCES, "There is no memory left.");
    return LOOM_ERR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    show(LOOM_MESSAGE_INTERNAL, error.what());
    return LOOM_ERR_INTERNAL;
  } catch (...) {
    show(LOOM_MESSAGE_INTERNAL, "An unknown exception.");
    return LOOM_ERR_INTERNAL;
  }
}

}  // namespace

void loom_initialize(const loom_runtime* runtime) {
  the_process = new Process(*runtime, {}, progress_callback);
  its_pid = ::getpid();
}

void loom_finalize() {
  // A forked child shares the parent's sockets: it must not say anything through them.
  if (its_pid == ::getpid()) delete the_process;
  the_process = nullptr;
}

int loom_comm_create(const loom_bootstrap* bootstrap, loom_comm** out) {
  return at_c_boundary(bootstrap->name, [&]() -> int {
    auto communicator = Communicator::create(loom::Bootstrap(*bootstrap), *the_process);
    if (!communicator) return LOOM_DECLINED;
    *out = reinterpret_cast<loom_comm*>(communicator.release());
    return LOOM_SUCCESS;
  });
}

void loom_comm_destroy(loom_comm* comm) {
  // A communicator that outlives the component, or a fork, is left alone: what it refers to is gone or not
  // ours.
  if (the_process != nullptr && its_pid == ::getpid()) delete reinterpret_cast<Communicator*>(comm);
}

int loom_allreduce(loom_comm* comm, const void* sendbuf, void* recvbuf, uint64_t count, loom_type type,
                   loom_op op) {
  Communicator& communicator = *reinterpret_cast<Communicator*>(comm);
  return at_c_boundary(communicator.where().c_str(), [&]() -> int {
    auto* out = static_cast<std::byte*>(recvbuf);
    const auto* in = sendbuf != nullptr ? static_cast<const std::byte*>(sendbuf) : out;
    const bool carried = communicator.allreduce(in, out, count, static_cast<Type>(type), static_cast<Op>(op));
    return carried ? LOOM_SUCCESS : LOOM_DECLINED;
  });
}

int loom_perform(loom_comm* comm, const loom_call* call) {
  Communicator& communicator = *reinterpret_cast<Communicator*>(comm);
  return at_c_boundary(communicator.where().c_str(), [&]() -> int {
    const auto type = static_cast<Type>(call->type);
    const bool carried = communicator.perform(
        {static_cast<Collective>(call->collective), static_cast<const std::byte*>(call->in),
         static_cast<std::byte*>(call->out), call->count, loom::device::size_of(type),
         loom::device::find_reduce(static_cast<Op>(call->op), type), call->root});
    return carried ? LOOM_SUCCESS : LOOM_DECLINED;
  });
}

bool loom_depends_on_order(loom_op op, loom_type type) {
  return loom::device::depends_on_order(static_cast<Op>(op), static_cast<Type>(type));
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

void loom_read_counters(loom_counters* out) {
  *out = the_process ? the_process->counters() : loom_counters{};
}

void loom_count_fallback() {
  the_process->count_fallback();
}
