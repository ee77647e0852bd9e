// mpi_odd_strides_test -- derived types whose blocks lie at no multiples of their elements, as members of
// packed structs do: what arrives is compared with a map of the type that is written down here. Messages are
// longer than what loom packs at a time.
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

struct Segment {
  int offset, length;
};

/// An element's segments in the order in which they are sent.
struct Layout {
  std::string name;
  MPI_Datatype type;
  int extent;
  std::vector<Segment> segments;
};

int rank, ranks, failures, cases;

Layout strided(int blocks, int length, int stride, MPI_Datatype basic, int size, const char* name) {
  Layout made{std::string(name) + " x " + std::to_string(length) + ", " + std::to_string(blocks) +
                  " times every " + std::to_string(stride),
              MPI_DATATYPE_NULL,
              (blocks - 1) * stride + length * size,
              {}};
  MPI_Type_create_hvector(blocks, length, stride, basic, &made.type);
  for (int i = 0; i < blocks; ++i) made.segments.push_back({i * stride, length * size});
  return made;
}

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  const struct {
    MPI_Datatype type;
    int size;
    const char* name;
  } basics[] = {{MPI_SHORT, 2, "short"},
                {MPI_INT, 4, "int"},
                {MPI_DOUBLE, 8, "double"},
                {MPI_CXX_DOUBLE_COMPLEX, 16, "complex"}};
  for (const auto& basic : basics)
    for (const int blocks : {2, 3, 5})
      for (const int length : {1, 2, 3})
        for (const int gap : {1, 4, 12})
          all.push_back(
              strided(blocks, length, length * basic.size + gap, basic.type, basic.size, basic.name));
  Layout packed{"a packed struct of int, double and short", MPI_DATATYPE_NULL, 14, {{0, 4}, {4, 8}, {12, 2}}};
  const int lengths[] = {1, 1, 1};
  const MPI_Aint places[] = {0, 4, 12};
  const MPI_Datatype members[] = {MPI_INT, MPI_DOUBLE, MPI_SHORT};
  MPI_Type_create_struct(3, lengths, places, members, &packed.type);
  all.push_back(packed);
  MPI_Datatype apart;
  MPI_Type_create_resized(MPI_CXX_DOUBLE_COMPLEX, 0, 24, &apart);
  Layout row{
      "a row of complex numbers, each of 24 bytes", MPI_DATATYPE_NULL, 72, {{0, 16}, {24, 16}, {48, 16}}};
  MPI_Type_contiguous(3, apart, &row.type);
  MPI_Type_free(&apart);
  all.push_back(row);
  for (Layout& layout : all) {
    MPI_Datatype whole;
    MPI_Type_create_resized(layout.type, 0, layout.extent, &whole);
    MPI_Type_free(&layout.type);
    layout.type = whole;
    MPI_Type_commit(&layout.type);
  }
  return all;
}

using Bytes = std::vector<unsigned char>;

/// `count` elements with bytes that tell who they are from; gaps, too.
Bytes filled(const Layout& layout, int count, int seed) {
  Bytes bytes(static_cast<std::size_t>(layout.extent) * static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(i * 37 + i / 251 + static_cast<std::size_t>(seed) * 101);
  return bytes;
}

/// What is in `out` once elements of `in` have arrived: gaps stay as they are.
void arrive(const Layout& layout, int count, const unsigned char* in, unsigned char* out) {
  for (int k = 0; k < count; ++k)
    for (const Segment& segment : layout.segments) {
      const std::size_t at = static_cast<std::size_t>(k) * static_cast<std::size_t>(layout.extent) +
                             static_cast<std::size_t>(segment.offset);
      std::memcpy(out + at, in + at, static_cast<std::size_t>(segment.length));
    }
}

void compare(const Layout& layout, const char* call, int count, const Bytes& got, const Bytes& wanted) {
  ++cases;
  if (got == wanted) return;
  if (++failures <= 10)
    std::fprintf(stderr, "rank %d of %d: %s of %d elements (%s): wrong bytes\n", rank, ranks, call, count,
                 layout.name.c_str());
}

void try_calls(const Layout& layout, int count) {
  const std::size_t block = static_cast<std::size_t>(layout.extent) * static_cast<std::size_t>(count);
  const Bytes mine = filled(layout, count, rank);
  {
    Bytes got = rank == 0 ? mine : filled(layout, count, 99), wanted = got;
    if (rank != 0) arrive(layout, count, filled(layout, count, 0).data(), wanted.data());
    MPI_Bcast(got.data(), count, layout.type, 0, MPI_COMM_WORLD);
    compare(layout, "MPI_Bcast", count, got, wanted);
  }
  Bytes wanted = filled(layout, count * ranks, 99);
  for (int from = 0; from < ranks; ++from)
    arrive(layout, count, filled(layout, count, from).data(),
           wanted.data() + static_cast<std::size_t>(from) * block);
  {
    Bytes got = filled(layout, count * ranks, 99);
    MPI_Allgather(mine.data(), count, layout.type, got.data(), count, layout.type, MPI_COMM_WORLD);
    compare(layout, "MPI_Allgather", count, got, wanted);
  }
  {
    Bytes got = filled(layout, count * ranks, 99);
    MPI_Request request;
    MPI_Igather(mine.data(), count, layout.type, got.data(), count, layout.type, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == 0) compare(layout, "MPI_Igather", count, got, wanted);
  }
  // Block i of rank r goes to rank i, as block r.
  const Bytes all = filled(layout, count * ranks, rank);
  Bytes got = filled(layout, count * ranks, 99);
  wanted = got;
  for (int from = 0; from < ranks; ++from) {
    const std::size_t at = static_cast<std::size_t>(from) * block;
    arrive(layout, count, filled(layout, count * ranks, from).data() + static_cast<std::size_t>(rank) * block,
           wanted.data() + at);
  }
  MPI_Alltoall(all.data(), count, layout.type, got.data(), count, layout.type, MPI_COMM_WORLD);
  compare(layout, "MPI_Alltoall", count, got, wanted);
  // Out of a block that begins where a type's own beginning is, in place, as the fallback component does it.
  got = all;
  wanted = all;
  for (int from = 0; from < ranks; ++from) {
    const std::size_t at = static_cast<std::size_t>(from) * block;
    arrive(layout, count, filled(layout, count * ranks, from).data() + static_cast<std::size_t>(rank) * block,
           wanted.data() + at);
  }
  const std::vector<int> counts(static_cast<std::size_t>(ranks), count);
  std::vector<int> places;
  for (int i = 0; i < ranks; ++i) places.push_back(i * count);
  MPI_Request request;
  MPI_Ialltoallv(MPI_IN_PLACE, nullptr, nullptr, MPI_DATATYPE_NULL, got.data(), counts.data(), places.data(),
                 layout.type, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  compare(layout, "MPI_Ialltoallv in place", count, got, wanted);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (Layout& layout : layouts()) {
    for (const int count : {3, 453, 1500, 4136}) try_calls(layout, count);
    MPI_Type_free(&layout.type);
  }
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%d calls on each rank, %d wrong\n", cases, all);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
