// mpi_freed_early_test -- persistent requests whose types and operations the program frees before it starts
// them. Exit code 1: wrong.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
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

/// Of `count` pairs of integers, each followed by a gap of one.
MPI_Datatype pairs_with_gaps(int count) {
  MPI_Datatype pairs, type;
  MPI_Type_vector(count, 2, 3, MPI_INT, &pairs);
  MPI_Type_create_resized(pairs, 0, static_cast<MPI_Aint>(3 * sizeof(int)) * count, &type);
  MPI_Type_free(&pairs);
  MPI_Type_commit(&type);
  return type;
}

/// An operation that no component knows: the first operand of pairs whose first elements are equal, else -1.
void keep_first(void* in, void* inout, int* length, MPI_Datatype*) {
  int* const a = static_cast<int*>(in);
  int* const b = static_cast<int*>(inout);
  for (int i = 0; i < 2 * *length; i += 2) {
    b[i] = a[i] == b[i] ? a[i] : -1;
    b[i + 1] = a[i + 1];
  }
}

/// Persistent calls of one communicator, with blocks of `pairs` pairs with gaps. Their types and their
/// operation are freed as soon as they have been made, and other types take that memory.
class Calls {
 public:
  explicit Calls(int pairs)
      : block_(3 * static_cast<std::size_t>(pairs)),
        in_(all_blocks()),
        all_(all_blocks()),
        listed_(all_blocks()),
        in_place_(all_blocks()),
        gathered_(rank == 0 ? all_blocks() : 0),
        operand_(2 * static_cast<std::size_t>(pairs)),
        reduced_(operand_.size()) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    make(pairs);
    for (MPI_Datatype& other : others_) {
      MPI_Type_vector(3, 1, 2, MPI_CHAR, &other);
      MPI_Type_commit(&other);
    }
  }
  ~Calls() {
    for (MPI_Request& request : requests_) MPI_Request_free(&request);
    for (MPI_Datatype& other : others_) MPI_Type_free(&other);
    MPI_Comm_free(&comm_);
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  void run(int first_value) {
    for (std::size_t i = 0; i < in_.size(); ++i) {
      in_[i] = first_value + rank * 10 + static_cast<int>(i / block_);
      in_place_[i] = i % 3 == 2 ? -1 : in_[i];
    }
    for (std::vector<int>* out : {&all_, &listed_, &gathered_}) std::fill(out->begin(), out->end(), -1);
    for (std::size_t i = 0; i < operand_.size(); ++i)
      operand_[i] = static_cast<int>(i % 2 == 0 ? i : i + static_cast<std::size_t>(rank));
    MPI_Startall(static_cast<int>(requests_.size()), requests_.data());
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    is_from_all(all_, first_value + rank, "an alltoall whose type was freed");
    is_from_all(listed_, first_value + rank, "an alltoallw whose types were freed");
    is_from_all(in_place_, first_value + rank, "an alltoallv in place whose type was freed");
    is_from_all(gathered_, first_value, "a gather whose type was freed");
    for (std::size_t i = 0; i < reduced_.size(); ++i)
      require(reduced_[i] == static_cast<int>(i), "an allreduce whose operation was freed");
  }

 private:
  std::size_t all_blocks() const { return static_cast<std::size_t>(ranks) * block_; }

  void make(int pairs) {
    MPI_Datatype type = pairs_with_gaps(pairs), two;
    for (int of = 0; of < ranks; ++of) {
      types_.push_back(pairs_with_gaps(pairs));
      ones_.push_back(1);
      places_.push_back(of * static_cast<int>(block_ * sizeof(int)));
      indices_.push_back(of);
    }
    MPI_Type_contiguous(2, MPI_INT, &two);
    MPI_Type_commit(&two);
    MPI_Op op;
    MPI_Op_create(keep_first, 0, &op);
    INIT(Alltoall)(in_.data(), 1, type, all_.data(), 1, type, comm_, MPI_INFO_NULL, &requests_[0]);
    INIT(Alltoallw)
    (in_.data(), ones_.data(), places_.data(), types_.data(), listed_.data(), ones_.data(), places_.data(),
     types_.data(), comm_, MPI_INFO_NULL, &requests_[1]);
    INIT(Alltoallv)
    (MPI_IN_PLACE, nullptr, nullptr, MPI_DATATYPE_NULL, in_place_.data(), ones_.data(), indices_.data(), type,
     comm_, MPI_INFO_NULL, &requests_[2]);
    INIT(Gather)
    (in_.data(), 1, type, gathered_.data(), 1, rank == 0 ? type : MPI_DATATYPE_NULL, 0, comm_, MPI_INFO_NULL,
     &requests_[3]);
    INIT(Allreduce)
    (operand_.data(), reduced_.data(), pairs, two, op, comm_, MPI_INFO_NULL, &requests_[4]);
    for (MPI_Datatype each : types_) MPI_Type_free(&each);  // the array stays as it is
    MPI_Type_free(&type);
    MPI_Type_free(&two);
    MPI_Op_free(&op);
  }

  /// A block from each rank, ten apart.
  void is_from_all(const std::vector<int>& got, int of_first, const char* what) const {
    for (std::size_t i = 0; i < got.size(); ++i)
      require(got[i] == (i % 3 == 2 ? -1 : of_first + static_cast<int>(i / block_) * 10), what);
  }

  std::size_t block_;  ///< integers, with gaps
  std::vector<int> in_, all_, listed_, in_place_, gathered_, operand_, reduced_;
  std::vector<MPI_Datatype> types_;
  std::vector<int> ones_, places_, indices_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::array<MPI_Request, 5> requests_;
  std::array<MPI_Datatype, 20> others_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const int pairs : {1, 100, 20'000}) {
    Calls calls(pairs);
    for (int round = 0; round < 3; ++round) calls.run(1000 * round);
  }
  if (rank == 0) std::puts("right");
  MPI_Finalize();
}
