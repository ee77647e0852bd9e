// mpi_capture_test -- calls of each form, on memory of the host and of a GPU, while the program captures work
// in a stream, of which they are no part: neither end nor fail because of each other. Exit code 1: wrong.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "mpi_examples/support/device_memory.hpp"
#include "tests/mpi/init_forms.hpp"

namespace {

using loom::mpi::Driver;
using loom::mpi::Memory;
using loom::mpi::MemoryKind;

constexpr int kCount = 1000, kStride = 2;

int rank, ranks;

void require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, what.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/// Integers.
struct Buffer : Memory {
  explicit Buffer(MemoryKind kind, std::size_t count = kCount * kStride)
      : Memory(count * sizeof(int), kind) {}
  int* values() { return reinterpret_cast<int*>(address()); }
  void fill(int value) {
    std::fill_n(reinterpret_cast<int*>(mirror.data()), mirror.size() / sizeof(int), value);
    upload();
  }
  int operator[](std::size_t i) const { return reinterpret_cast<const int*>(mirror.data())[i]; }
};

/// A stream of the program that captures as long as this lives.
class Capture {
 public:
  Capture(unsigned flags, int mode, std::string what) : what_(std::move(what)) {
    Driver& driver = Driver::get();
    Driver::require(driver.function<int(void**, unsigned)>("cuStreamCreate")(&stream_, flags),
                    "cuStreamCreate");
    Driver::require(driver.function<int(void*, int)>("cuStreamBeginCapture_v2")(stream_, mode),
                    "cuStreamBeginCapture");
  }
  ~Capture() {
    Driver& driver = Driver::get();
    void* graph = nullptr;
    const int result = driver.function<int(void*, void**)>("cuStreamEndCapture")(stream_, &graph);
    require(result == 0 && graph != nullptr, what_ + " has ended a capture: " + std::to_string(result));
    Driver::require(driver.function<int(void*)>("cuGraphDestroy")(graph), "cuGraphDestroy");
    Driver::require(driver.function<int(void*)>("cuStreamDestroy_v2")(stream_), "cuStreamDestroy");
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  std::string what_;
  void* stream_ = nullptr;
};

enum class Form { kBlocking, kNonblocking, kPersistent };

int reduce(Form form, Buffer& in, Buffer& out, MPI_Request& request) {
  switch (form) {
    case Form::kBlocking:
      return MPI_Allreduce(in.values(), out.values(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    case Form::kNonblocking:
      MPI_Iallreduce(in.values(), out.values(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
      return MPI_Wait(&request, MPI_STATUS_IGNORE);
    case Form::kPersistent:
      MPI_Start(&request);
      return MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  return MPI_ERR_OTHER;
}

void test(Form form, MemoryKind kind, unsigned flags, int mode) {
  static int round = 0;
  const int value = ++round * 100 + rank;
  const std::string what = std::string(kind == MemoryKind::kHost ? "host" : "device") + " memory, form " +
                           std::to_string(static_cast<int>(form)) + ", stream flags " +
                           std::to_string(flags) + ", mode " + std::to_string(mode);
  Buffer in(kind), out(kind);
  in.fill(value);
  out.fill(-1);
  MPI_Request request = MPI_REQUEST_NULL;
  if (form == Form::kPersistent) INIT(Allreduce)
  (in.values(), out.values(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  {
    const Capture capture(flags, mode, what);
    require(reduce(form, in, out, request) == MPI_SUCCESS, what + ": the call has failed");
  }
  if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  out.download();
  const int sum = ranks * round * 100 + ranks * (ranks - 1) / 2;
  for (std::size_t i = 0; i < kCount; ++i) require(out[i] == sum, what + ": a wrong sum");
}

/// Every other element of a GPU's memory, which is packed there.
void test_packed(unsigned flags) {
  MPI_Datatype type;
  MPI_Type_vector(kCount, 1, kStride, MPI_INT, &type);
  MPI_Type_commit(&type);
  Buffer in(MemoryKind::kDevice);
  Buffer out(MemoryKind::kDevice, static_cast<std::size_t>(ranks * kCount));
  in.fill(rank + 1);
  out.fill(-1);
  {
    const Capture capture(flags, 2, "a call on elements with gaps");
    require(MPI_Allgather(in.values(), 1, type, out.values(), kCount, MPI_INT, MPI_COMM_WORLD) == MPI_SUCCESS,
            "a call on elements with gaps has failed");
  }
  out.download();
  for (std::size_t i = 0; i < static_cast<std::size_t>(ranks * kCount); ++i)
    require(out[i] == static_cast<int>(i) / kCount + 1, "elements with gaps are wrong");
  MPI_Type_free(&type);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int again = 0; again < 2; ++again) {  // before and after links between GPUs have been made
    for (const unsigned flags : {0U, 1U})    // it synchronises with the legacy stream; or does not
      for (const int mode : {0, 1, 2})       // global, of the thread, relaxed
        for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kDevice})
          for (const Form form : {Form::kNonblocking, Form::kBlocking, Form::kPersistent})
            test(form, kind, flags, mode);
    for (const unsigned flags : {0U, 1U}) test_packed(flags);
    Buffer in(MemoryKind::kDevice), out(MemoryKind::kDevice);
    in.fill(1);
    MPI_Request none = MPI_REQUEST_NULL;
    for (int call = 0; call < 3; ++call) reduce(Form::kBlocking, in, out, none);
  }
  MPI_Finalize();
}
