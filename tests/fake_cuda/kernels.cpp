// kernels.cpp -- loom's kernels on the fake: known by their names, and done by the host.
#include <cstdio>
#include <cstring>

#include "device/cuda/kernel_args.hpp"
#include "device/reduce/reduce.hpp"
#include "tests/fake_cuda/fake_driver.hpp"

using namespace fake_cuda;

namespace {

/// A reduction, done by the host's own table.
int enqueue_reduce(Driver& d, Stream& stream, const Kernel& kernel, loom::device::cuda::ReduceArgs args) {
  using loom::device::Type;
  const auto type = static_cast<Type>(kernel.type);
  const loom::device::ReduceFn reduce =
      loom::device::find_reduce(static_cast<loom::device::Op>(kernel.operation), type);
  if (reduce == nullptr || args.operands < 2) return kInvalidValue;
  const std::size_t bytes = args.count * loom::device::size_of(type);
  std::byte* const out = d.reach(args.out, bytes);
  std::vector<const std::byte*> in;
  for (int i = 0; i < args.operands; ++i) in.push_back(d.reach(const_cast<void*>(args.in[i]), bytes));
  in.push_back(out);
  for (const std::byte* each : in)
    if (each == nullptr) return kInvalidValue;
  stream.push_back([=] {
    // `out` may be any of the operands: a GPU has read all of an element before it writes it.
    std::vector<std::byte> result(in[0], in[0] + bytes);
    for (int i = 1; i < args.operands; ++i)
      reduce(result.data(), result.data(), in[static_cast<std::size_t>(i)], args.count);
    std::memcpy(out, result.data(), bytes);
  });
  ++d.counts.kernels;
  return 0;
}

/// The step code of collectives, by a thread of the host and with the host's table of reductions: so five
/// types stand for all.
template <std::size_t kBytes>
struct alignas(kBytes) Element {
  std::byte bytes[kBytes];
};
thread_local loom::device::ReduceFn the_reduction;
struct Reduction {
  template <class T>
  T operator()(T a, T b) const {
    T result;
    the_reduction(result.bytes, a.bytes, b.bytes, 1);
    return result;
  }
};
struct OneThread {
  static constexpr int kLanes = 1;
  int index() const { return 0; }
  int size() const { return 1; }
  bool any(bool condition) { return condition; }
  bool all_lanes(bool condition) { return condition; }
  void pause() { std::this_thread::yield(); }
};

namespace steps = loom::device::steps;
using loom::device::Word;

/// Where the CPU may reach what the ends of a channel point to.
struct Reach {
  Driver& driver;
  template <class T>
  void translate(T*& at) const {
    if (at != nullptr)
      at = reinterpret_cast<T*>(driver.reach(const_cast<void*>(static_cast<const void*>(at)), 1));
  }
  void translate(steps::Channel& channel) const {
    const auto both = [this](steps::RecvEnd& from, steps::SendEnd& to) {
      translate(from.slots), translate(from.filled), translate(from.consumed);
      translate(to.slots), translate(to.filled), translate(to.consumed);
    };
    for (steps::RingEnds& ring : channel.ring) both(ring.from, ring.to);
    for (steps::PairwiseEnds& pairwise : channel.pairwise)
      for (int peer = 0; peer < steps::kMostRanks - 1; ++peer) both(pairwise.from[peer], pairwise.to[peer]);
  }
};

template <class Operation>
bool perform(std::size_t bytes, const steps::Task& task, steps::Channel& channel,
             const steps::ChannelForm& form, const steps::WayOut& way_out) {
  OneThread group;
  switch (bytes) {
    case 1:
      return steps::perform<Operation, Element<1>>(group, task, channel, form, way_out);
    case 2:
      return steps::perform<Operation, Element<2>>(group, task, channel, form, way_out);
    case 4:
      return steps::perform<Operation, Element<4>>(group, task, channel, form, way_out);
    case 8:
      return steps::perform<Operation, Element<8>>(group, task, channel, form, way_out);
    default:
      return steps::perform<Operation, Element<16>>(group, task, channel, form, way_out);
  }
}

/// Blocks one after the other: channels have nothing to do with each other, and all ranks go in this order.
int start_collective(Driver& d, const Kernel& kernel, loom::device::cuda::CollectiveArgs args,
                     unsigned blocks) {
  d.run();  // what comes before it in the stream
  const auto type = static_cast<loom::device::Type>(kernel.type);
  const bool moves = kernel.operation == loom::device::cuda::kMoveImage;
  const loom::device::ReduceFn reduce =
      moves ? nullptr : loom::device::find_reduce(static_cast<loom::device::Op>(kernel.operation), type);
  if (!moves && reduce == nullptr) return kInvalidValue;
  const Reach reach{d};
  reach.translate(args.channels);
  reach.translate(args.task.in);
  reach.translate(args.task.out);
  reach.translate(args.abandoned);
  reach.translate(args.failed);
  std::vector<steps::Channel> channels(args.channels, args.channels + blocks);
  for (steps::Channel& channel : channels) reach.translate(channel);
  d.kernel_runs = true;
  d.kernel = std::thread([&d, args, channels, reduce, bytes = loom::device::size_of(type)]() mutable {
    the_reduction = reduce;
    for (std::size_t block = 0; block < channels.size(); ++block) {
      steps::Task task = args.task;
      task.window_first += block * task.window_length;
      steps::Channel& channel = channels[block];
      const steps::WayOut way_out{args.abandoned};
      const bool done = reduce != nullptr
                            ? perform<Reduction>(bytes, task, channel, args.form, way_out)
                            : perform<steps::NoOperation>(bytes, task, channel, args.form, way_out);
      if (!done) steps::store_release(args.failed, 1);
      for (int p = 0; p < steps::kProtocols; ++p) {
        args.channels[block].ring[p].passed = channel.ring[p].passed;
        args.channels[block].pairwise[p].passed = channel.pairwise[p].passed;
      }
    }
    d.kernel_runs = false;
  });
  ++d.counts.kernels;
  return 0;
}

}  // namespace

EXPORT int cuModuleLoadData(void** module, const void* image) {
  LOCK("cuModuleLoadData");
  if (image == nullptr) return kInvalidValue;
  if (current_context() == nullptr) return kInvalidContext;
  *module = &d;
  return 0;
}
EXPORT int cuModuleUnload(void*) {
  return 0;
}
/// Kernels live as long as the fake.
EXPORT int cuModuleGetFunction(Kernel** out, void*, const char* name) {
  LOCK("cuModuleGetFunction");
  Kernel kernel{};
  kernel.collective = std::sscanf(name, "loom_collective_%d_%d", &kernel.operation, &kernel.type) == 2;
  if (!kernel.collective && std::sscanf(name, "loom_reduce_%d_%d", &kernel.operation, &kernel.type) != 2)
    return kNotFound;
  const int key = (kernel.operation * loom::device::kTypeCount + kernel.type) * 2 + kernel.collective;
  *out = &d.kernels.emplace(key, kernel).first->second;
  return 0;
}
EXPORT int cuLaunchKernel(const Kernel* kernel, unsigned blocks, unsigned, unsigned, unsigned, unsigned,
                          unsigned, unsigned, void* stream, void** parameters, void**) {
  using loom::device::cuda::CollectiveArgs;
  using loom::device::cuda::ReduceArgs;
  LOCK("cuLaunchKernel");
  if (current_context() == nullptr) return kInvalidContext;
  Stream* const in = d.find(stream);
  if (in == nullptr) return kInvalidHandle;
  if (kernel->collective && in != &d.stream) return kNotSupported;
  if (kernel->collective)
    return start_collective(d, *kernel, *static_cast<const CollectiveArgs*>(parameters[0]), blocks);
  return enqueue_reduce(d, *in, *kernel, *static_cast<const ReduceArgs*>(parameters[0]));
}
