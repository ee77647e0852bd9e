// mpi_first_alltoallv_test -- an alltoallv on host memory is the first call of a communicator, blocking and
// persistent with the promise of one order. Between hosts loom does not carry it, and it ends also where some
// ranks have CUDA's driver and others do not. Exit code 1: wrong.
#include <vector>

#include "tests/mpi/device_ints.hpp"

namespace {

using namespace loom::mpi_test;

struct Lists {
  std::vector<int> counts, places, in, out;
  Lists() : counts(static_cast<std::size_t>(ranks), 3), in(counts.size() * 3, rank), out(in.size(), -1) {
    for (int r = 0; r < ranks; ++r) places.push_back(3 * r);
  }
  void check() const {
    for (std::size_t i = 0; i < out.size(); ++i)
      require(out[i] == static_cast<int>(i) / 3, "an alltoallv is wrong");
  }
};

MPI_Comm new_communicator() {
  MPI_Comm comm;
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "coll_loom_ordered_starts", "true");
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
  MPI_Info_free(&info);
  return comm;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm comm = new_communicator();
  Lists blocking, persistent;
  MPI_Alltoallv(blocking.in.data(), blocking.counts.data(), blocking.places.data(), MPI_INT,
                blocking.out.data(), blocking.counts.data(), blocking.places.data(), MPI_INT, comm);
  blocking.check();
  MPI_Comm_free(&comm);
  comm = new_communicator();
  MPI_Request request;
  INIT(Alltoallv)
  (persistent.in.data(), persistent.counts.data(), persistent.places.data(), MPI_INT, persistent.out.data(),
   persistent.counts.data(), persistent.places.data(), MPI_INT, comm, MPI_INFO_NULL, &request);
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  persistent.check();
  MPI_Request_free(&request);
  MPI_Comm_free(&comm);
  MPI_Finalize();
  return 0;
}
