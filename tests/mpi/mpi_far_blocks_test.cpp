// mpi_far_blocks_test -- all-to-alls in place whose blocks lie far apart on one rank and near on the others:
// absolute addresses in the heap, the stack and the program's data, and types with gaps and negative lower
// bounds. Exit code 1: wrong.
#include <mpi.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/mpi/init_forms.hpp"

namespace {

int rank, ranks;

void require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, what.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int value(int from, int to, int round) {
  return 10000 * round + 100 * from + to + 1;
}

struct Block {
  int first = 0, unused = -1, second = 0;
};

/// Two integers of a block, wherever it lies.
MPI_Datatype type_at(const Block* block) {
  MPI_Aint places[2];
  MPI_Get_address(&block->first, &places[0]);
  MPI_Get_address(&block->second, &places[1]);
  const int lengths[] = {1, 1};
  const MPI_Datatype types[] = {MPI_INT, MPI_INT};
  MPI_Datatype type;
  MPI_Type_create_struct(2, lengths, places, types, &type);
  MPI_Type_commit(&type);
  return type;
}

int wait_for(MPI_Request* request) {
  return MPI_Wait(request, MPI_STATUS_IGNORE);
}

/// Rank 1's blocks are in the heap, in the stack, and in the program's data, in turn.
void test_listed_blocks() {
  static Block in_program[64];
  Block in_stack[64];
  const auto in_heap = std::make_unique<Block[]>(64);
  Block* const places[] = {in_program, in_stack, in_heap.get()};
  std::vector<Block*> blocks;
  std::vector<MPI_Datatype> types;
  for (int peer = 0; peer < ranks; ++peer) {
    blocks.push_back(places[rank == 1 ? peer % 3 : 0] + peer);
    types.push_back(type_at(blocks.back()));
  }
  const std::vector<int> ones(blocks.size(), 1), zeros(blocks.size(), 0);
  const auto fill = [&](int round) {
    for (int peer = 0; peer < ranks; ++peer)
      *blocks[static_cast<std::size_t>(peer)] = {value(rank, peer, round), -1, -value(rank, peer, round)};
  };
  const auto check = [&](int round, const char* what) {
    for (int peer = 0; peer < ranks; ++peer) {
      const Block& got = *blocks[static_cast<std::size_t>(peer)];
      require(got.first == value(peer, rank, round) && got.second == -got.first && got.unused == -1, what);
    }
  };
  MPI_Request request;
  fill(1);
  MPI_Ialltoallw(MPI_IN_PLACE, nullptr, nullptr, nullptr, MPI_BOTTOM, ones.data(), zeros.data(), types.data(),
                 MPI_COMM_WORLD, &request);
  wait_for(&request);
  check(1, "MPI_Ialltoallw of blocks far apart");
  INIT(Alltoallw)
  (MPI_IN_PLACE, nullptr, nullptr, nullptr, MPI_BOTTOM, ones.data(), zeros.data(), types.data(),
   MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (int round = 2; round < 5; ++round) {
    fill(round);
    MPI_Start(&request);
    wait_for(&request);
    check(round, "a persistent alltoallw of blocks far apart");
  }
  MPI_Request_free(&request);
  for (MPI_Datatype& type : types) MPI_Type_free(&type);
}

/// Blocks of different lengths, in descending order, with gaps between them and within the elements, whose
/// lower bound is negative. Rank 0 sends nothing to itself.
void test_counted_blocks() {
  constexpr int kStride = 7;  // integers from element to element
  const auto length = [](int a, int b) { return (a + b) % 3; };
  MPI_Datatype two, type;
  const int ones[] = {1, 1}, places[] = {-2, 3};
  MPI_Type_indexed(2, ones, places, MPI_INT, &two);
  MPI_Type_create_resized(two, -3 * static_cast<MPI_Aint>(sizeof(int)),
                          kStride * static_cast<MPI_Aint>(sizeof(int)), &type);
  MPI_Type_commit(&type);
  MPI_Type_free(&two);
  std::vector<int> counts, disps;
  for (int peer = 0; peer < ranks; ++peer) {
    counts.push_back(length(rank, peer));
    disps.push_back(5 * (ranks - 1 - peer) - 3);
  }
  std::vector<int> memory(static_cast<std::size_t>(kStride * (5 * ranks + 8)));
  int* const buffer = memory.data() + 4 * kStride;
  const auto each = [&](const std::function<void(int peer, int element, int* at)>& body) {
    for (int peer = 0; peer < ranks; ++peer)
      for (int i = 0; i < counts[static_cast<std::size_t>(peer)]; ++i)
        for (const int place : places)
          body(peer, 2 * i + (place > 0),
               buffer + (disps[static_cast<std::size_t>(peer)] + i) * kStride + place);
  };
  const auto fill = [&](int round) {
    std::fill(memory.begin(), memory.end(), -1);
    each([&](int peer, int element, int* at) { *at = value(rank, peer, round) * 10 + element; });
  };
  const auto check = [&](int round, const char* what) {
    std::size_t set = 0;
    each([&](int peer, int element, int* at) {
      require(*at == value(peer, rank, round) * 10 + element, what);
      ++set;
    });
    for (const int each_int : memory) set += each_int == -1;
    require(set == memory.size(), std::string(what) + " writes into gaps");
  };
  MPI_Request request;
  fill(1);
  MPI_Ialltoallv(MPI_IN_PLACE, nullptr, nullptr, MPI_DATATYPE_NULL, buffer, counts.data(), disps.data(), type,
                 MPI_COMM_WORLD, &request);
  wait_for(&request);
  check(1, "MPI_Ialltoallv of blocks with gaps");
  INIT(Alltoallv)
  (MPI_IN_PLACE, nullptr, nullptr, MPI_DATATYPE_NULL, buffer, counts.data(), disps.data(), type,
   MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (int round = 2; round < 5; ++round) {
    fill(round);
    MPI_Start(&request);
    wait_for(&request);
    check(round, "a persistent alltoallv of blocks with gaps");
  }
  MPI_Request_free(&request);
  MPI_Type_free(&type);
}

/// Blocks of one element of more than a MiB, of a MiB, and of nothing.
void test_long_elements() {
  const auto length = [](int a, int b) {
    constexpr int kMiB = 1 << 20;
    const int lengths[] = {kMiB + 3, kMiB, 0};
    return lengths[(a + b) % 3];
  };
  std::vector<std::vector<char>> blocks;
  std::vector<MPI_Datatype> types;
  for (int peer = 0; peer < ranks; ++peer) {
    blocks.emplace_back(static_cast<std::size_t>(length(rank, peer)), static_cast<char>(10 * rank + peer));
    MPI_Datatype bytes, type;
    MPI_Type_contiguous(length(rank, peer), MPI_CHAR, &bytes);
    MPI_Aint place;
    MPI_Get_address(blocks.back().data(), &place);
    const int one = 1;
    MPI_Type_create_struct(1, &one, &place, &bytes, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&bytes);
    types.push_back(type);
  }
  const std::vector<int> ones(types.size(), 1), zeros(types.size(), 0);
  MPI_Request request;
  MPI_Ialltoallw(MPI_IN_PLACE, nullptr, nullptr, nullptr, MPI_BOTTOM, ones.data(), zeros.data(), types.data(),
                 MPI_COMM_WORLD, &request);
  wait_for(&request);
  for (int peer = 0; peer < ranks; ++peer)
    for (const char got : blocks[static_cast<std::size_t>(peer)])
      require(got == static_cast<char>(10 * peer + rank), "long elements");
  for (MPI_Datatype& type : types) MPI_Type_free(&type);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int again = 0; again < 2; ++again) {
    test_listed_blocks();
    test_counted_blocks();
    test_long_elements();
  }
  MPI_Finalize();
}
