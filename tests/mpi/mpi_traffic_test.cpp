// mpi_traffic_test -- what a call by kernels sends over links of the machine, against what it has to.
// Four ranks, each with a GPU of its own of tests/virtual_gpu. Exit code 1: it differs.
//
//   mpi_traffic_test FROM TO [FROM TO]...               links that carry what one rank sends around rings
//   mpi_traffic_test trees FROM TO PART [FROM TO PART]...
//       PART   of the message, which the trees over this link carry up or down: 2/3
//   mpi_traffic_test gather FROM TO PART [FROM TO PART]...
//       as much of what all ranks have, in an allgather and a reduce_scatter_block
//   mpi_traffic_test shared              any number of ranks on one GPU, whose own traffic counts
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

struct Link {
  const char *from, *to;
  double part = 0;
};
std::vector<Link> links;

/// By all links, while no rank has anything on the way: a call may end before its kernel's last block.
std::vector<std::uint64_t> carried() {
  require(Driver::get().function<int()>("cuCtxSynchronize")() == 0, "a kernel has failed");
  MPI_Barrier(MPI_COMM_WORLD);
  std::vector<std::uint64_t> result;
  for (const auto& [from, to, part] : links) {
    result.push_back(Driver::get().function<decltype(virtual_gpu_carried)>("virtual_gpu_carried")(from, to));
    require(result.back() != ~std::uint64_t{0}, "there is no such link in this machine");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return result;
}

/// What a call sends over each link.
template <class Call>
std::vector<std::uint64_t> sent_by(Call&& call) {
  const auto before = carried();
  call();
  auto sent = carried();
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] -= before[i];
  return sent;
}

std::vector<std::uint64_t> allreduce(int count) {
  Ints in(count, rank, MemoryKind::kDevice), out(count, -1, MemoryKind::kDevice);
  auto sent = sent_by([&] { MPI_Allreduce(in.at(), out.at(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD); });
  out.is([](int) { return ranks * (ranks - 1) / 2; }, "an allreduce is wrong");
  return sent;
}

std::vector<std::uint64_t> gather(int count) {
  const int own = count / 4;
  Ints in(own, rank, MemoryKind::kDevice), out(4 * own, -1, MemoryKind::kDevice);
  auto sent = sent_by([&] { MPI_Allgather(in.at(), own, MPI_INT, out.at(), own, MPI_INT, MPI_COMM_WORLD); });
  out.is([&](int i) { return i / own; }, "an allgather is wrong");
  return sent;
}

std::vector<std::uint64_t> reduce_scatter(int count) {
  const int own = count / 4;
  Ints in(4 * own, rank, MemoryKind::kDevice), out(own, -1, MemoryKind::kDevice);
  auto sent =
      sent_by([&] { MPI_Reduce_scatter_block(in.at(), out.at(), own, MPI_INT, MPI_SUM, MPI_COMM_WORLD); });
  out.is([](int) { return ranks * (ranks - 1) / 2; }, "a reduce_scatter_block is wrong");
  return sent;
}

/// Beside data: words of the links, and one that tells the host.
bool is_right(const Link& link, std::uint64_t sent, bool by_trees) {
  if (!by_trees) return kLeast <= sent && sent <= kMost;
  const double data = link.part * kCount * sizeof(int);
  return data <= static_cast<double>(sent) && static_cast<double>(sent) <= 1.02 * data + 64;
}

/// Every operand is read once, and every result written once: 2 n S bytes. A little more is allowed.
void share_a_gpu() {
  links = {{"GPU 0", "memory of GPU 0"}, {"memory of GPU 0", "GPU 0"}};
  loom::mpi::ToolInterface tools;
  allreduce(kCount);  // sets up
  const auto calls = [&] { return tools.counter("coll_loom_calls", "allreduce", "zero_copy").value_or(0); };
  const std::uint64_t before = calls();
  const auto moved = allreduce(kCount);
  require(calls() == before + 1, "zero copy does not carry the allreduce");
  const double least = 2.0 * ranks * kCount * sizeof(int);
  const double ratio = static_cast<double>(moved[0] + moved[1]) / least;
  if (rank == 0) std::printf("%d ranks on a GPU: %.3f of 2 n S bytes\n", ranks, ratio);
  require(ratio >= 1 && ratio <= 1.1, "ranks that share a GPU move too much or too little there");
}

double part_of(const char* text) {
  double part = 0, whole = 1;
  std::sscanf(text, "%lf/%lf", &part, &whole);
  return part / whole;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc > 1 && std::strcmp(argv[1], "shared") == 0) {
    share_a_gpu();
    MPI_Finalize();
    return 0;
  }
  const bool by_trees = argc > 1 && std::strcmp(argv[1], "trees") == 0,
             gathers = argc > 1 && std::strcmp(argv[1], "gather") == 0, parts = by_trees || gathers;
  const char* const algorithm = parts ? "kernel_tree" : "kernel";
  for (int i = parts ? 2 : 1, each = parts ? 3 : 2; i + each <= argc; i += each)
    links.push_back({argv[i], argv[i + 1], parts ? part_of(argv[i + 2]) : 0});
  require(ranks == 4 && !links.empty(), "the test is for four ranks, and links");
  {
    loom::mpi::ToolInterface tools;
    allreduce(1);  // sets up
    const auto check = [&](const char* collective, auto&& call) {
      const auto by_kernel = [&] {
        return tools.counter("coll_loom_calls", collective, algorithm).value_or(0);
      };
      call(4);
      const std::uint64_t calls = by_kernel();
      const std::vector<std::uint64_t> sent = call(kCount);
      require(by_kernel() == calls + 1, "no kernel carries the call");
      for (std::size_t i = 0; i < links.size(); ++i) {
        const bool right = is_right(links[i], sent[i], parts);
        if (!right && rank == 0)
          std::fprintf(stderr, "%s, %s to %s: %ju bytes\n", collective, links[i].from, links[i].to,
                       static_cast<std::uintmax_t>(sent[i]));
        require(right, "a channel sends too much or too little");
      }
    };
    if (gathers) {
      check("allgather", gather);
      check("reduce_scatter_block", reduce_scatter);
    } else {
      check("allreduce", allreduce);
    }
  }
  MPI_Finalize();
  return 0;
}
