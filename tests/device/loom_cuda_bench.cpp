// loom_cuda_bench -- what a GPU makes of loom's kernels, on one GPU: reductions of every type and operation,
// and all-reduces of ranks that share it, by executor, algorithm and protocol. Needs no Open MPI.
//
//   loom_cuda_bench [reduce | ranks]
//
// Two tables, with the GPU's name before them. "copy GB/s" is what the driver's own copy inside the GPU's
// memory reaches, read and written bytes together, in the same run: reductions are held against it.
//
//   reduce  op type            numbers of device/operations.hpp
//           GB/s               read (2 operands) and written bytes per second, of 256 MiB operands
//           of copy            GB/s / copy GB/s
//   ranks   executor           persistent (kernels of all ranks at once) or handed_over (stepped by the host)
//           algorithm protocol numbers of device/steps/collective.hpp
//           ranks, channels    in this process, each with its stream
//           bytes us           message of each rank; median of the calls
//           GB/s               bytes / us
//           bus GB/s           2 (ranks - 1) / ranks x that: what each rank sends
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "device/cuda/gpu_links.hpp"
#include "device/cuda/images.hpp"
#include "device/cuda/persistent_links.hpp"
#include "device/reduce.hpp"
#include "tests/device/real_gpu.hpp"

namespace loom::device::cuda {
namespace {

constexpr std::size_t kLarge = std::size_t{256} << 20;

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

void bench_reduce(const RealGpu& real) {
  Gpu gpu(real.driver(), real.owner());
  const GpuBytes a(gpu, kLarge), b(gpu, kLarge), out(gpu, kLarge);
  const double copy_us = median_us(20, [&] {
    gpu.copy(out.at(), a.at(), kLarge);
    gpu.synchronize();
  });
  const double copy_gbps = 2.0 * kLarge / copy_us / 1e3;
  fmt::print("copy GB/s {:.0f}\n{:>4} {:>4} {:>8} {:>8}\n", copy_gbps, "op", "type", "GB/s", "of copy");
  for (int op = 0; op < kOpCount; ++op)
    for (int type = 0; type < kTypeCount; ++type) {
      if (!Gpu::supports(static_cast<Op>(op), static_cast<Type>(type))) continue;
      ReduceArgs args{.out = out.at(), .operands = 2, .count = kLarge / size_of(static_cast<Type>(type))};
      args.in[0] = a.at();
      args.in[1] = b.at();
      const double us = median_us(10, [&] {
        gpu.reduce(static_cast<Op>(op), static_cast<Type>(type), args);
        gpu.synchronize();
      });
      const double gbps = 3.0 * kLarge / us / 1e3;
      fmt::print("{:>4} {:>4} {:>8.0f} {:>8.2f}\n", op, type, gbps, gbps / copy_gbps);
    }
}

void print_call(const char* executor, int algorithm, int protocol, int ranks, int channels, std::size_t bytes,
                double us) {
  const double gbps = static_cast<double>(bytes) / us / 1e3;
  fmt::print("{:>11} {:>9} {:>8} {:>5} {:>8} {:>10} {:>10.1f} {:>8.2f} {:>8.2f}\n", executor, algorithm,
             protocol, ranks, channels, bytes, us, gbps, gbps * 2 * (ranks - 1) / ranks);
}

void bench_persistent(const RealGpu& real, int size, int channels) {
  using steps::Algorithm;
  using steps::Protocol;
  std::vector<std::unique_ptr<Gpu>> gpus;
  std::vector<std::unique_ptr<PersistentLinks>> links;
  std::vector<std::unique_ptr<GpuBytes>> buffers, areas;
  std::vector<std::byte*> memory;
  for (int r = 0; r < size; ++r) {
    gpus.push_back(std::make_unique<Gpu>(real.driver(), real.owner(), Gpu::Stream::kOwn));
    areas.push_back(std::make_unique<GpuBytes>(*gpus.back(), persistent_bytes(size, channels)));
    buffers.push_back(std::make_unique<GpuBytes>(*gpus.back(), kLarge));
    memory.push_back(areas.back()->at());
  }
  for (int r = 0; r < size; ++r) {
    links.push_back(
        std::make_unique<PersistentLinks>(*gpus[static_cast<std::size_t>(r)], r, memory, channels));
    links.back()->prepare(Op::kSum, Type::kFloat);
  }
  const std::pair<Algorithm, Protocol> ways[] = {
      {Algorithm::kOneShot, Protocol::kLL},          {Algorithm::kOneShot, Protocol::kLL128},
      {Algorithm::kTwoShot, Protocol::kLL},          {Algorithm::kTwoShot, Protocol::kLL128},
      {Algorithm::kAllreduceRing, Protocol::kLL128}, {Algorithm::kAllreduceRing, Protocol::kSimple}};
  for (const auto& [algorithm, protocol] : ways)
    for (std::size_t bytes = 1024; bytes <= kLarge; bytes *= 16) {
      if (algorithm == Algorithm::kOneShot && bytes > (1U << 20)) break;
      bool all_done = true;
      const double us = median_us(20, [&] {
        for (int r = 0; r < size; ++r) {
          steps::Task task =
              divide({algorithm, protocol, channels}, bytes / sizeof(float), sizeof(float), size);
          task.in = task.out = buffers[static_cast<std::size_t>(r)]->at();
          links[static_cast<std::size_t>(r)]->start(task, Op::kSum, Type::kFloat, channels);
        }
        for (auto& each : links) all_done &= each->finish();
      });
      if (!all_done) throw Error(ErrorCode::kInternal, "A kernel gave up.");
      print_call("persistent", static_cast<int>(algorithm), static_cast<int>(protocol), size, channels, bytes,
                 us);
    }
}

void bench_handed_over(const RealGpu& real, int size) {
  std::vector<std::shared_ptr<Gpu>> gpus;
  std::vector<std::unique_ptr<GpuLinks>> links;
  std::vector<GpuLinks::Handle> handles;
  std::vector<std::unique_ptr<GpuBytes>> buffers;
  for (int r = 0; r < size; ++r) {
    gpus.push_back(std::make_shared<Gpu>(real.driver(), real.owner(), Gpu::Stream::kOwn));
    links.push_back(std::make_unique<GpuLinks>(gpus.back(), GpuLinks::Kind::kHandedOver, size));
    handles.push_back(links.back()->handle());
    buffers.push_back(std::make_unique<GpuBytes>(*gpus.back(), kLarge));
  }
  for (int r = 0; r < size; ++r) links[static_cast<std::size_t>(r)]->connect(handles, r);
  for (std::size_t bytes = 1024; bytes <= kLarge; bytes *= 16) {
    const double us = median_us(10, [&] {
      std::vector<std::jthread> threads;
      for (int r = 0; r < size; ++r)
        threads.emplace_back([&, r] {
          std::byte* const at = buffers[static_cast<std::size_t>(r)]->at();
          HandedOverExecutor executor(links[static_cast<std::size_t>(r)]->boards(),
                                      {.collective = Collective::kAllreduce,
                                       .in = at,
                                       .out = at,
                                       .count = bytes / sizeof(float),
                                       .elem_bytes = sizeof(float)},
                                      Op::kSum, Type::kFloat);
          while (executor.advance() != BoardWalk::State::kDone) std::this_thread::yield();
        });
    });
    print_call("handed_over", -1, -1, size, 0, bytes, us);
  }
  for (auto& each : links) each->leave();
}

int run(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (!what.empty() && what != "reduce" && what != "ranks") {
    fmt::print(stderr, "usage: loom_cuda_bench [reduce | ranks]\n");
    return 2;
  }
  const auto real = RealGpu::find();
  if (!real || kernel_image(0) == nullptr) {
    fmt::print(stderr, "skipped: {}\n", real ? "this build has no kernels" : "no CUDA device");
    return 77;
  }
  fmt::print("{}\n", real->name());
  if (what != "ranks") bench_reduce(*real);
  if (what == "reduce") return 0;
  fmt::print("{:>11} {:>9} {:>8} {:>5} {:>8} {:>10} {:>10} {:>8} {:>8}\n", "executor", "algorithm",
             "protocol", "ranks", "channels", "bytes", "us", "GB/s", "bus GB/s");
  for (const int size : {2, 4, 8}) {
    for (const int channels : {1, 4, 16}) bench_persistent(*real, size, channels);
    bench_handed_over(*real, size);
  }
  return 0;
}

}  // namespace
}  // namespace loom::device::cuda

int main(int argc, char** argv) {
  try {
    return loom::device::cuda::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
