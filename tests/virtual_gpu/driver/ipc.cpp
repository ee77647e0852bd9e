// ipc.cpp -- memory of one process in another, by CUDA's legacy handles.
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "base/format.hpp"
#include "tests/virtual_gpu/driver/memory.hpp"

using namespace virtual_gpu;

namespace {

/// What a CUipcMemHandle says here; it passes by value.
struct IpcHandle {
  std::int64_t process;
  std::int32_t file, device;
  std::uint64_t cookie;  ///< of that memory: file descriptors are used again
  Address begin;
  std::byte rest[64 - 32];
};
static_assert(sizeof(IpcHandle) == 64);

bool fails(const char* where) {
  return variable("VIRTUAL_GPU_NO_IPC") == where;
}

/// Whether this context has memory of the process open that lay there before. Drivers refuse to open what
/// lies there now (seen by others; NVIDIA does not document it).
bool is_in_the_way(const Allocation& other, const Call& call, const IpcHandle& handle, std::size_t bytes) {
  return other.kind == Kind::kPeer && other.context == call.context && other.peer == handle.process &&
         other.file->shared().cookie != handle.cookie && other.begin_there < handle.begin + bytes &&
         handle.begin < other.begin_there + other.bytes;
}

/// Whether this context reaches as many other GPUs as hardware without NVSwitch lets it, and not this one.
bool has_too_many_peers(const Driver& driver, const Call& call, const Uuid& gpu) {
  const Uuid& own = (*driver.gpus)[call.context->device].uuid;
  std::set<Uuid> peers;
  for (const AllocationPtr& other : driver.memory.all())
    if (other->kind == Kind::kPeer && other->context == call.context && other->file->shared().gpu != own)
      peers.insert(other->file->shared().gpu);
  return gpu != own && !peers.contains(gpu) &&
         peers.size() >= number("VIRTUAL_GPU_PEERS", std::numeric_limits<std::uint64_t>::max());
}

}  // namespace

/// The documentation asks for the address where an allocation begins; nothing else is taken here.
EXPORT int cuIpcGetMemHandle(IpcHandle* out, Address address) {
  return enter("cuIpcGetMemHandle", kInContext, [&](Call& call) -> Result {
    if (fails("get")) return kNotSupported;
    const AllocationPtr in = find_begin(call.driver, address, Kind::kDevice);
    if (out == nullptr || in == nullptr) return say(kInvalidValue, "no handle: not where memory begins");
    if (!std::exchange(in->exported, true)) call.driver.memory.touch();
    *out = {::getpid(), in->file->file(), in->device, in->file->shared().cookie, in->begin, {}};
    return kSuccess;
  });
}

EXPORT int cuIpcOpenMemHandle_v2(Address* out, IpcHandle handle, unsigned flags) {
  return enter("cuIpcOpenMemHandle", kInContext | kUnsafe, [&](Call& call) -> Result {
    Driver& d = call.driver;
    if (fails("open")) return kNotSupported;
    if (out == nullptr || flags != kLazyPeerAccess) return kInvalidValue;
    if (handle.process == ::getpid()) return say(kInvalidContext, "a process opens its own memory");
    for (const AllocationPtr& other : d.memory.all()) {
      if (other->kind != Kind::kPeer || other->file->shared().cookie != handle.cookie) continue;
      if (other->context != call.context) continue;
      ++other->opened;
      *out = other->begin;
      return kSuccess;
    }
    const std::string path = loom::format("/proc/{}/fd/{}", handle.process, handle.file);
    const std::shared_ptr<MemoryFile> file = MemoryFile::open(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (file == nullptr || file->shared().cookie != handle.cookie || file->shared().freed != 0)
      return say(kInvalidValue, "the memory of a handle is not there any more");
    // The GPU of the memory; if this process does not see it, the one whose context maps it.
    const Ordinal device = d.gpus->ordinal_of(file->shared().gpu).value_or(call.context->device);
    if (device != call.context->device && !d.gpus->can_access(call.context->device, device))
      return kPeerAccessUnsupported;
    if (has_too_many_peers(d, call, file->shared().gpu)) return kTooManyPeers;
    for (const AllocationPtr& other : d.memory.all())
      if (is_in_the_way(*other, call, handle, file->bytes()))
        return say(kAlreadyMapped, "what lay there before is open still");
    AllocationPtr allocation;
    const Result result = add_allocation(d, file, Kind::kPeer, call.context, device, allocation);
    if (result != kSuccess) return result;
    allocation->opened = 1;
    allocation->peer = handle.process;
    allocation->begin_there = handle.begin;
    *out = allocation->begin;
    return kSuccess;
  });
}

/// Waits as cuMemFree does (inferred).
EXPORT int cuIpcCloseMemHandle(Address address) {
  return enter("cuIpcCloseMemHandle", kInContext | kUnsafe, [&](Call& call) -> Result {
    const AllocationPtr in = find_begin(call.driver, address, Kind::kPeer);
    if (in == nullptr) return kInvalidValue;
    const Result result = call.wait_for_all(*call.context);
    if (in->opened > 0 && --in->opened == 0) call.driver.release(in);
    return result;
  });
}
