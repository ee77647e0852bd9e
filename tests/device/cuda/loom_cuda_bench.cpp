// loom_cuda_bench -- how fast loom's kernels are on a GPU: reductions of every type and operation, and
// all-reduces of ranks that share it, by executor, algorithm and protocol. The ranks are streams of this one
// process; scripts/bench/gpu measures ranks that are processes. Needs no Open MPI.
//
//   loom_cuda_bench [copy | reduce | ranks] [--largest BYTES] [--ranks N,...] [--without-kernel]
//
// Two tables, with the GPU's name before them. "copy GB/s" is what the driver's own copy inside the GPU's
// memory reaches, read and written bytes together, in the same run; `copy` prints no more than that.
//
//   reduce  op type
//           GB/s               read (2 operands) and written bytes per second, of operands of --largest bytes
//           of copy            GB/s / copy GB/s. The aim is 0.9
//   ranks   executor           kernel (kernels of all ranks at once) or zero_copy
//           algorithm protocol as in device/steps/collective.hpp
//           ranks channels
//           bytes us           message of each rank; median of the calls
//           GB/s               bytes / us
//           of roofline        of what reading and writing each rank's message once takes at copy GB/s:
//                              2 ranks bytes / copy GB/s / us
//           of copies          of what plain copies take in the same run: each rank sends the next one as
//                              much as in an all-reduce, 2 (ranks - 1) / ranks bytes, all at once. The aim
//                              for large messages is 0.85 by Simple, 0.75 by LL128, 0.4 by LL
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "base/format.hpp"
#include "device/cuda/images.hpp"
#include "device/cuda/kernel_links.hpp"
#include "device/cuda/zero_copy_executor.hpp"
#include "device/reduce/reduce.hpp"
#include "tests/device/cuda/real_gpu.hpp"

namespace loom::device::cuda {
namespace {

// In the order of the numbers.
constexpr const char* kOps[] = {"sum",  "prod", "min", "max",  "land",   "lor",
                                "lxor", "band", "bor", "bxor", "minloc", "maxloc"};
constexpr const char* kTypes[] = {"int8",      "int16",           "int32",          "int64",
                                  "uint8",     "uint16",          "uint32",         "uint64",
                                  "float",     "double",          "long double",    "half",
                                  "bfloat16",  "complex float",   "complex double", "complex long double",
                                  "float int", "double int",      "long int",       "int int",
                                  "short int", "long double int", "float float",    "double double"};
constexpr const char* kAlgorithms[] = {"ring",         "reduce_scatter", "all_gather", "bcast_chain",
                                       "reduce_chain", "one_shot",       "two_shot",   "tree"};
constexpr const char* kProtocols[] = {"simple", "ll", "ll128"};
static_assert(std::size(kOps) == kOpCount && std::size(kTypes) == kTypeCount &&
              std::size(kProtocols) == steps::kProtocols);

struct Options {
  std::string what;
  std::size_t largest = std::size_t{256} << 20;
  std::vector<int> ranks = {2, 4, 8};
  bool without_kernel = false;
};

/// Median microseconds of body(), after a call that is not counted.
template <class Body>
double median_us(int times, Body&& body) {
  body();
  std::vector<double> us;
  for (int i = 0; i < times; ++i) {
    const auto began = std::chrono::steady_clock::now();
    body();
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count());
  }
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

/// Read and written bytes per second of the driver's copy inside the GPU's memory.
double copy_gbps(const RealGpu& real, std::size_t bytes) {
  Gpu gpu(real.driver(), real.owner());
  GpuStream stream(gpu);
  const GpuBytes from(gpu, bytes), to(gpu, bytes);
  const double us = median_us(20, [&] {
    stream.copy(to.at(), from.at(), bytes);
    stream.synchronize();
  });
  return 2.0 * static_cast<double>(bytes) / us / 1e3;
}

void bench_reduce(const RealGpu& real, std::size_t bytes, double copy_gbps) {
  Gpu gpu(real.driver(), real.owner());
  GpuStream stream(gpu);
  const GpuBytes a(gpu, bytes), b(gpu, bytes), out(gpu, bytes);
  loom::print("{:>6} {:<20} {:>8} {:>8}\n", "op", "type", "GB/s", "of copy");
  for (int op = 0; op < kOpCount; ++op)
    for (int type = 0; type < kTypeCount; ++type) {
      if (!Gpu::supports(static_cast<Op>(op), static_cast<Type>(type))) continue;
      const CombineArgs args{.operands = 2,
                             .results = 1,
                             .count = bytes / size_of(static_cast<Type>(type)),
                             .in = {a.at(), b.at()},
                             .out = {out.at()}};
      const double us = median_us(10, [&] {
        stream.combine(static_cast<Op>(op), static_cast<Type>(type), args);
        stream.synchronize();
      });
      const double gbps = 3.0 * static_cast<double>(bytes) / us / 1e3;
      loom::print("{:>6} {:<20} {:>8.1f} {:>8.2f}\n", kOps[op], kTypes[type], gbps, gbps / copy_gbps);
    }
}

/// Ranks of this process that share the GPU, and what their calls are compared with.
class Ranks {
 public:
  Ranks(const RealGpu& real, int size, std::size_t largest, double copy_gbps) : copy_gbps_(copy_gbps) {
    for (int r = 0; r < size; ++r) {
      gpus_.push_back(std::make_shared<Gpu>(real.driver(), real.owner()));
      streams_.push_back(std::make_unique<GpuStream>(*gpus_.back()));
      buffers_.push_back(std::make_unique<GpuBytes>(*gpus_.back(), largest));
      arrivals_.push_back(std::make_unique<GpuBytes>(*gpus_.back(), 2 * largest));
    }
  }
  int size() const { return static_cast<int>(gpus_.size()); }
  const std::shared_ptr<Gpu>& gpu(int rank) const { return gpus_[static_cast<std::size_t>(rank)]; }
  GpuStream& stream(int rank) const { return *streams_[static_cast<std::size_t>(rank)]; }
  std::byte* buffer(int rank) const { return buffers_[static_cast<std::size_t>(rank)]->at(); }

  void print(const char* executor, const char* algorithm, const char* protocol, int channels,
             std::size_t bytes, double us) {
    const double gbps = static_cast<double>(bytes) / us / 1e3,
                 roofline_us = 2.0 * size() * static_cast<double>(bytes) / copy_gbps_ / 1e3;
    loom::print("{:<11} {:<9} {:<8} {:>5} {:>8} {:>10} {:>10.1f} {:>8.2f} {:>11.2f} {:>9.2f}\n", executor,
                algorithm, protocol, size(), channels, bytes, us, gbps, roofline_us / us,
                copies_us(bytes) / us);
  }
  static void print_header() {
    loom::print("{:<11} {:<9} {:<8} {:>5} {:>8} {:>10} {:>10} {:>8} {:>11} {:>9}\n", "executor", "algorithm",
                "protocol", "ranks", "channels", "bytes", "us", "GB/s", "of roofline", "of copies");
  }

 private:
  /// Each rank to the next, all at once.
  double copies_us(std::size_t bytes) {
    const auto [known, is_new] = copies_us_.try_emplace(bytes, 0.0);
    if (!is_new) return known->second;
    const std::size_t n = gpus_.size(), sent = 2 * (n - 1) * bytes / n, half = sent / 2;
    known->second = median_us(20, [&] {
      for (std::size_t r = 0; r < n; ++r)
        for (const std::size_t at : {std::size_t{0}, half})
          streams_[r]->copy(arrivals_[(r + 1) % n]->at() + at, buffers_[r]->at(), half);
      for (const auto& stream : streams_) stream->synchronize();
    });
    return known->second;
  }

  double copy_gbps_;
  std::vector<std::shared_ptr<Gpu>> gpus_;
  std::vector<std::unique_ptr<GpuStream>> streams_;
  std::vector<std::unique_ptr<GpuBytes>> buffers_, arrivals_;
  std::map<std::size_t, double> copies_us_;
};

/// Kernels wait for those of the other ranks: all blocks must be on the GPU at once.
void bench_kernel(Ranks& world, std::size_t largest, int channels) {
  using steps::Algorithm;
  using steps::Protocol;
  const int size = world.size();
  const auto blocks = static_cast<unsigned>(size * channels),
             most = world.gpu(0)->resident_blocks(Op::kSum, Type::kFloat);
  if (blocks > most) {
    loom::print("kernel: not with {} channels of {} ranks, {} blocks, for the GPU holds {} at once\n",
                channels, size, blocks, most);
    return;
  }
  std::vector<std::unique_ptr<KernelLinks>> links;
  std::vector<std::unique_ptr<GpuBytes>> areas;
  std::vector<std::byte*> memory;
  for (int r = 0; r < size; ++r) {
    areas.push_back(
        std::make_unique<GpuBytes>(*world.gpu(r), kernel_bytes(size, plain_kernel_channels(size, channels))));
    memory.push_back(areas.back()->at());
  }
  for (int r = 0; r < size; ++r) {
    links.push_back(
        std::make_unique<KernelLinks>(world.stream(r), r, memory, plain_kernel_channels(size, channels)));
    links.back()->prepare(Op::kSum, Type::kFloat);
  }
  const std::pair<Algorithm, Protocol> ways[] = {
      {Algorithm::kOneShot, Protocol::kLL},          {Algorithm::kOneShot, Protocol::kLL128},
      {Algorithm::kTwoShot, Protocol::kLL},          {Algorithm::kTwoShot, Protocol::kLL128},
      {Algorithm::kAllreduceRing, Protocol::kLL128}, {Algorithm::kAllreduceRing, Protocol::kSimple},
      {Algorithm::kAllreduceTree, Protocol::kLL128}, {Algorithm::kAllreduceTree, Protocol::kSimple}};
  for (const auto& [algorithm, protocol] : ways)
    for (std::size_t bytes = 1024; bytes <= largest; bytes *= 4) {
      if (algorithm == Algorithm::kOneShot && bytes > (1U << 20)) break;
      bool all_done = true;
      const double us = median_us(20, [&, algorithm = algorithm, protocol = protocol] {
        for (int r = 0; r < size; ++r) {
          steps::Task task =
              divide({algorithm, protocol, channels}, bytes / sizeof(float), sizeof(float), size);
          task.in = task.out = world.buffer(r);
          links[static_cast<std::size_t>(r)]->start(task, Op::kSum, Type::kFloat, channels);
        }
        for (auto& each : links) all_done &= each->finish();
      });
      if (!all_done) throw Error(ErrorCode::kInternal, "A kernel gave up.");
      world.print("kernel", kAlgorithms[static_cast<int>(algorithm)], kProtocols[static_cast<int>(protocol)],
                  channels, bytes, us);
    }
}

void bench_zero_copy(Ranks& world, std::size_t largest) {
  const int size = world.size();
  std::vector<std::unique_ptr<GpuLinks>> links;
  std::vector<GpuLinks::Handle> handles;
  for (int r = 0; r < size; ++r) {
    links.push_back(std::make_unique<GpuLinks>(world.gpu(r), GpuLinks::Form{.channels = 0}, size));
    handles.push_back(links.back()->handle());
  }
  for (int r = 0; r < size; ++r) links[static_cast<std::size_t>(r)]->connect(handles, r);
  const auto allreduce = [&](std::size_t bytes) {
    std::vector<std::jthread> threads;
    for (int r = 0; r < size; ++r)
      threads.emplace_back([&, r] {
        std::byte* const at = world.buffer(r);
        ZeroCopyExecutor executor(*links[static_cast<std::size_t>(r)],
                                  {.collective = Collective::kAllreduce,
                                   .in = at,
                                   .out = at,
                                   .count = bytes / sizeof(float),
                                   .type = Type::kFloat},
                                  true);
        while (executor.advance() != ZeroCopyExecutor::State::kDone) std::this_thread::yield();
      });
  };
  const std::vector<float> ones(256, 1.0F);
  std::vector<float> sums(ones.size());
  const std::size_t few = ones.size() * sizeof(float);
  for (int r = 0; r < size; ++r) world.gpu(r)->copy(world.buffer(r), ones.data(), few);
  allreduce(few);
  world.gpu(0)->copy(sums.data(), world.buffer(0), few);
  if (sums != std::vector<float>(ones.size(), static_cast<float>(size)))
    throw Error(ErrorCode::kInternal, "A sum is wrong.");
  for (std::size_t bytes = few; bytes <= largest; bytes *= 4) {
    const double us = median_us(10, [&] { allreduce(bytes); });
    world.print("zero_copy", "-", "-", 0, bytes, us);
  }
  for (auto& each : links) each->leave();
}

Options options_of(int argc, char** argv) {
  Options options;
  CLI::App app{"How fast loom's kernels are on a GPU. The columns are explained in the source."};
  app.add_option("what", options.what, "copy, reduce or ranks alone")
      ->check(CLI::IsMember({"copy", "reduce", "ranks"}));
  app.add_option("--largest", options.largest, "Largest message in bytes")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{1024}, std::size_t{1} << 34));
  app.add_option("--ranks", options.ranks, "Numbers of ranks")
      ->delimiter(',')
      ->check(CLI::Range(2, steps::kMostPairwise));
  app.add_flag("--without-kernel", options.without_kernel,
               "Leave out the kernel executor, whose kernels wait for each other");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  return options;
}

int run(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  const auto real = RealGpu::find();
  if (!real || !has_kernels()) {
    loom::print(stderr, "skipped: {}\n", real ? "this build has no kernels" : "no CUDA device");
    return 77;
  }
  const double gbps = copy_gbps(*real, options.largest);
  loom::print("{}\ncopy GB/s {:.1f}\n", real->name(), gbps);
  if (options.what == "copy") return 0;
  if (options.what != "ranks") bench_reduce(*real, options.largest, gbps);
  if (options.what == "reduce") return 0;
  Ranks::print_header();
  for (const int size : options.ranks) {
    Ranks world(*real, size, options.largest, gbps);
    for (const int channels : {1, 4, 16})
      if (!options.without_kernel) bench_kernel(world, options.largest, channels);
    bench_zero_copy(world, options.largest);
  }
  return 0;
}

}  // namespace
}  // namespace loom::device::cuda

int main(int argc, char** argv) {
  try {
    return loom::device::cuda::run(argc, argv);
  } catch (const std::exception& error) {
    loom::print(stderr, "{}\n", error.what());
    return 1;
  }
}
