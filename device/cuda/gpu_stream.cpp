// The declarations follow the documented interface of CUDA's driver.
#include "device/cuda/gpu_stream.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "device/cuda/driver_interface.hpp"
#include "device/reduce/reduce.hpp"
#include "device/schedule/divide_up.hpp"

namespace loom::device::cuda {
namespace {

using Result = int;
using Address = std::uint64_t;
constexpr Result kSuccess = 0;
constexpr unsigned kWithoutTiming = 2;  // CU_EVENT_DISABLE_TIMING
// Several for each multiprocessor of any GPU; a loop strides over the rest.
constexpr std::size_t kMostBlocks = 1024;

}  // namespace

struct GpuStream::Functions {
  Result (*create_stream)(void**, unsigned);
  Result (*destroy_stream)(void*);
  Result (*create_event)(void**, unsigned);
  Result (*destroy_event)(void*);
  Result (*record)(void*, void*);
  Result (*wait)(void*, void*, unsigned);
  Result (*query_event)(void*);
  Result (*query)(void*);
  Result (*synchronize)(void*);
  Result (*copy)(Address, Address, std::size_t, void*);
  Result (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                   void**);

  explicit Functions(const Driver& driver) {
    driver.find(create_stream, "cuStreamCreate");
    driver.find(destroy_stream, "cuStreamDestroy_v2");
    driver.find(create_event, "cuEventCreate");
    driver.find(destroy_event, "cuEventDestroy_v2");
    driver.find(record, "cuEventRecord");
    driver.find(wait, "cuStreamWaitEvent");
    driver.find(query_event, "cuEventQuery");
    driver.find(query, "cuStreamQuery");
    driver.find(synchronize, "cuStreamSynchronize");
    driver.find(copy, "cuMemcpyAsync");
    driver.find(launch, "cuLaunchKernel");
  }
};

GpuStream::GpuStream(Gpu& gpu) : gpu_(gpu), functions_(std::make_unique<Functions>(gpu.driver())) {
  const Driver::CurrentContext context(gpu.driver(), gpu.owner());
  check(context.result(), "a context is made current");
  check(functions_->create_stream(&stream_, kNonBlocking), "a stream is made");
  if (const Result result = functions_->create_event(&event_, kWithoutTiming); result != kSuccess) {
    functions_->destroy_stream(stream_);
    check(result, "an event is made");
  }
}

/// Work that is still in it goes on.
GpuStream::~GpuStream() {
  if (!gpu_.is_alive()) return;  // they have gone with the context
  const Driver::CurrentContext context(gpu_.driver(), gpu_.owner());
  if (context.result() != kSuccess) return;
  functions_->destroy_event(event_);
  functions_->destroy_stream(stream_);
}

void GpuStream::check(int result, const char* doing) const {
  if (result != kSuccess) throw gpu_.driver().error(doing, result);
}

void GpuStream::follow_program() {
  const Driver::CurrentContext context(gpu_.driver(), gpu_.owner());
  check(context.result(), "a context is made current");
  const Driver::ProgramStream program(gpu_.driver());
  check(functions_->record(event_, program.stream()), "an event is put into the default stream");
  check(functions_->wait(stream_, event_, 0), "a stream waits for the default stream");
}

void GpuStream::follow(const ProgramMark& mark) {
  const Driver::CurrentContext context(gpu_.driver(), gpu_.owner());
  check(context.result(), "a context is made current");
  check(functions_->wait(stream_, mark.event(), 0), "a stream waits for the default stream");
}

void GpuStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const Driver::CurrentContext context(gpu_.driver(), gpu_.owner());
  check(context.result(), "a context is made current");
  check(functions_->copy(reinterpret_cast<std::uintptr_t>(to), reinterpret_cast<std::uintptr_t>(from), bytes,
                         stream_),
        "a GPU copies");
}

void GpuStream::launch(void* kernel, std::size_t blocks, unsigned threads, void* args) {
  const Driver::CurrentContext context(gpu_.driver(), gpu_.owner());
  check(context.result(), "a context is made current");
  void* parameters[] = {args};
  check(functions_->launch(kernel, static_cast<unsigned>(blocks), 1, 1, threads, 1, 1, 0, stream_, parameters,
                           nullptr),
        "a kernel is launched");
}

void GpuStream::combine(std::optional<Op> op, Type type, const CombineArgs& args) {
  constexpr std::size_t kVector = sizeof(steps::Vector);
  const std::size_t most = args.how == CombineArgs::How::kCopies
                               ? *std::max_element(args.counts, args.counts + args.operands)
                               : args.count,
                    vectors = divide_up(most * size_of(type), kVector),
                    blocks = divide_up(vectors, std::size_t{kCombineThreads});
  CombineArgs copied = args;
  launch(gpu_.combine_kernel(op, type), std::clamp<std::size_t>(blocks, 1, kMostBlocks), kCombineThreads,
         &copied);
}

void GpuStream::move_rows(bool packs, const PackArgs& args, std::size_t bytes) {
  static_assert(kCombineThreads == 512, "move_units() has at most 2^9 columns");
  const std::size_t wanted =
      std::clamp<std::size_t>(divide_up(bytes / args.unit, std::size_t{kCombineThreads}), 1, kMostBlocks);
  // Each row of the table by a power of two of them.
  const auto entries = static_cast<std::size_t>(args.entries);
  const int log2_blocks = wanted > entries ? static_cast<int>(std::bit_width(wanted / entries)) - 1 : 0;
  CombineArgs copied{.how = packs ? CombineArgs::How::kPack : CombineArgs::How::kUnpack,
                     .operands = args.entries,
                     .results = log2_blocks,
                     .count = args.unit,
                     .in = {args.table},
                     .out = {args.packed}};
  launch(gpu_.combine_kernel({}, Type::kUint8), std::min(entries << log2_blocks, kMostBlocks),
         kCombineThreads, &copied);
}

void GpuStream::prepare_combine(std::optional<Op> op, Type type) {
  combine(op, type, {});
  synchronize();
}

void GpuStream::perform(std::optional<Op> op, Type type, const CollectiveArgs& args, unsigned channels) {
  CollectiveArgs copied = args;
  launch(gpu_.collective_kernel(op, type), channels, kCollectiveThreads, &copied);
}

bool GpuStream::has_ended(int (*query)(void*), void* what) const {
  const Driver::CurrentContext context(gpu_.driver(), gpu_.owner());
  check(context.result(), "a context is made current");
  const Result result = query(what);
  if (result == kNotReady) return false;
  check(result, "a GPU works");
  return true;
}

bool GpuStream::program_has_ended() const {
  return has_ended(functions_->query_event, event_);
}

bool GpuStream::is_idle() const {
  return has_ended(functions_->query, stream_);
}

void GpuStream::synchronize() {
  const Driver::CurrentContext context(gpu_.driver(), gpu_.owner());
  check(context.result(), "a context is made current");
  check(functions_->synchronize(stream_), "a GPU works");
}

}  // namespace loom::device::cuda
