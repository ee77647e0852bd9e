// mpi_traffic_test -- what the ring of an allreduce by kernels sends over links of the machine, against what
// it has to. Four ranks, each with a GPU of its own of tests/virtual_gpu. Exit code 1: it differs.
//
//   mpi_traffic_test FROM TO [FROM TO]...   links that carry what one rank sends
#include <mpi.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/device_ints.hpp"

namespace {

using namespace loom::mpi_test;

constexpr int kCount = 9 << 16;  // of integers: more than an exchange without a ring takes

/// A rank sends 6 of 4 chunks, 3 of them reduced on the way and 3 results, over all its channels together.
/// For each message there is a word to the next rank, and one back to the previous rank for each that has
/// come from there; how many there are is a matter of the channels: of one for each step to one for each of
/// 16 channels in each step. A word tells the host that the kernel has ended. All of this leaves the GPU.
constexpr std::uint64_t kData = 6 * (kCount / 4 * sizeof(int)), kMostMessages = 6 * 16,
                        kLeast = kData + 6 * 2 * 8, kMost = kData + kMostMessages * 2 * 8 + 8;
static_assert(kMost < kData + kData / 1000);

std::vector<std::pair<const char*, const char*>> links;

/// By all links, while no rank has anything on the way: a call may end before its kernel's last block.
std::vector<std::uint64_t> carried() {
  require(Driver::get().function<int()>("cuCtxSynchronize")() == 0, "a kernel has failed");
  MPI_Barrier(MPI_COMM_WORLD);
  std::vector<std::uint64_t> result;
  for (const auto& [from, to] : links) {
    result.push_back(Driver::get().function<decltype(virtual_gpu_carried)>("virtual_gpu_carried")(from, to));
    require(result.back() != ~std::uint64_t{0}, "there is no such link in this machine");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return result;
}

/// What the call itself sends over each link.
std::vector<std::uint64_t> allreduce(int count) {
  Ints in(count, rank, MemoryKind::kDevice), out(count, -1, MemoryKind::kDevice);
  const auto before = carried();
  MPI_Allreduce(in.at(), out.at(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  auto sent = carried();
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] -= before[i];
  out.is([](int) { return ranks * (ranks - 1) / 2; }, "an allreduce is wrong");
  return sent;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 1; i + 1 < argc; i += 2) links.emplace_back(argv[i], argv[i + 1]);
  require(ranks == 4 && !links.empty(), "the test is for four ranks, and links");
  {
    loom::mpi::ToolInterface tools;
    const auto by_kernel = [&] {
      return tools.counter("coll_loom_calls", "allreduce", "kernel").value_or(0);
    };
    allreduce(1);  // sets up
    const std::uint64_t calls = by_kernel();
    const auto sent = allreduce(kCount);
    require(by_kernel() == calls + 1, "no kernel carries the allreduce");
    for (std::size_t i = 0; i < links.size(); ++i) {
      const bool is_right = kLeast <= sent[i] && sent[i] <= kMost;
      if (!is_right && rank == 0)
        std::fprintf(stderr, "%s to %s: %ju bytes, of which %ju are data\n", links[i].first, links[i].second,
                     static_cast<std::uintmax_t>(sent[i]), static_cast<std::uintmax_t>(kData));
      require(is_right, "a ring sends too much or too little");
    }
  }
  MPI_Finalize();
  return 0;
}
