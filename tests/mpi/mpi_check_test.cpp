// mpi_check_test CASE -- rank 1 makes another call than the others, with coll_loom_check set while the
// program runs. All ranks must get the error class, and the next call must work. check_exit.sh looks at the
// message. `late RANK`: that rank comes too late for coll_loom_timeout. Then no rank hangs, and other
// communicators go on.
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/init_forms.hpp"

namespace {

void set_check(int value) {
  int provided, index, count;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_T_cvar_handle handle;
  if (MPI_T_cvar_get_index("coll_loom_check", &index) != MPI_SUCCESS ||
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS ||
      MPI_T_cvar_write(handle, &value) != MPI_SUCCESS) {
    std::fprintf(stderr, "coll_loom_check cannot be set\n");
    std::exit(1);
  }
  MPI_T_cvar_handle_free(&handle);
  MPI_T_finalize();
}

MPI_Comm with_start_order(const char* value) {
  MPI_Comm comm;
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "coll_loom_ordered_starts", value);
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Info_free(&info);
  return comm;
}

/// Two broadcasts, which rank 1 starts in the other order: the error of both. Open MPI frees requests that
/// have failed. Two new ones, started in one order, must be right.
int start_in_another_order(bool odd_one_out, int rank) {
  MPI_Comm comm = with_start_order("true");
  std::vector<int> a(100), b(100);
  MPI_Request requests[2];
  const auto make = [&] {
    INIT(Bcast)(a.data(), 100, MPI_INT, 0, comm, MPI_INFO_NULL, &requests[0]);
    INIT(Bcast)(b.data(), 100, MPI_INT, 0, comm, MPI_INFO_NULL, &requests[1]);
  };
  make();
  int errors[2], later = MPI_SUCCESS;
  MPI_Start(&requests[odd_one_out ? 1 : 0]);
  MPI_Start(&requests[odd_one_out ? 0 : 1]);
  for (int i = 0; i < 2; ++i) errors[i] = MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
  make();
  for (int round = 0; round < 3 && later == MPI_SUCCESS; ++round) {
    a.assign(100, rank == 0 ? round : -1);
    b.assign(100, rank == 0 ? round + 50 : -1);
    MPI_Startall(2, requests);
    later = MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    if (a.back() != round || b.front() != round + 50) later = MPI_ERR_INTERN;
  }
  for (MPI_Request& request : requests) MPI_Request_free(&request);
  MPI_Comm_free(&comm);
  return later != MPI_SUCCESS || errors[0] != errors[1] ? MPI_ERR_INTERN : errors[0];
}

/// The error class that all ranks must get.
int make_call(const std::string& which, bool odd_one_out, int rank, int ranks, int& error) {
  std::vector<int> in(1000, rank), out(1000, -1), counts(static_cast<std::size_t>(ranks), 2), disps;
  for (int i = 0; i < ranks; ++i) disps.push_back(2 * i);
  int* const send = in.data();
  int* const recv = out.data();
  const MPI_Comm world = MPI_COMM_WORLD;
  MPI_Request request;
  if (which == "count") {
    error = MPI_Allreduce(send, recv, odd_one_out ? 11 : 10, MPI_INT, MPI_SUM, world);
    return MPI_ERR_COUNT;
  }
  if (which == "type") {
    error = MPI_Bcast(send, 10, odd_one_out ? MPI_FLOAT : MPI_INT, 0, world);
    return MPI_ERR_TYPE;
  }
  if (which == "sent") {
    error = MPI_Allgather(send, odd_one_out ? 1 : 2, MPI_INT, recv, 2, MPI_INT, world);
    return MPI_ERR_COUNT;
  }
  if (which == "root") {
    error = MPI_Bcast(send, 10, MPI_INT, odd_one_out ? 1 : 0, world);
    return MPI_ERR_ROOT;
  }
  if (which == "op") {
    error = MPI_Iallreduce(send, recv, 10, MPI_INT, odd_one_out ? MPI_MAX : MPI_SUM, world, &request);
    return MPI_ERR_OP;
  }
  if (which == "collective") {
    error = odd_one_out ? MPI_Barrier(world) : MPI_Allreduce(send, recv, 10, MPI_INT, MPI_SUM, world);
    return MPI_ERR_OTHER;
  }
  if (which == "in_place") {
    error = MPI_Allreduce(odd_one_out ? MPI_IN_PLACE : send, recv, 10, MPI_INT, MPI_SUM, world);
    return MPI_ERR_BUFFER;
  }
  if (which == "block") {
    if (odd_one_out) counts[2] = 3;
    error = MPI_Alltoallv(send, counts.data(), disps.data(), MPI_INT, recv,
                          std::vector<int>(counts.size(), 2).data(), disps.data(), MPI_INT, world);
    return MPI_ERR_COUNT;
  }
  if (which == "form") {
    error = odd_one_out ? MPI_Ibcast(send, 10, MPI_INT, 0, world, &request)
                        : MPI_Bcast(send, 10, MPI_INT, 0, world);
    return MPI_ERR_OTHER;
  }
  if (which == "promise") {
    MPI_Comm comm = with_start_order(odd_one_out ? "true" : "false");
    error = INIT(Bcast)(send, 10, MPI_INT, 0, comm, MPI_INFO_NULL, &request);
    MPI_Comm_free(&comm);
    return MPI_ERR_INFO;
  }
  if (which == "starts") {
    error = start_in_another_order(odd_one_out, rank);
    return MPI_ERR_OTHER;
  }
  if (which == "same") {  // described in another way
    MPI_Datatype two;
    MPI_Type_contiguous(2, MPI_INT, &two);
    MPI_Type_commit(&two);
    for (int i = 0; i < 3 && error == MPI_SUCCESS; ++i)
      error = odd_one_out ? MPI_Bcast(send, 1, two, 0, world) : MPI_Bcast(send, 2, MPI_INT, 0, world);
    MPI_Type_free(&two);
    return MPI_SUCCESS;
  }
  std::fprintf(stderr, "there is no case '%s'\n", which.c_str());
  std::exit(2);
}

/// 0: right.
int come_late(bool is_late, bool connects_first, bool falls_back) {
  constexpr double kLateBy = 3.5, kSoon = 0.5;
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  int one = 1, wrong = 0;
  MPI_Op op = MPI_MAX;
  if (falls_back) MPI_Op_create([](void*, void*, int*, MPI_Datatype*) {}, 1, &op);
  std::vector<double> took;
  const auto call = [&] {
    const double begin = MPI_Wtime();
    const int error = MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, op, comm);
    took.push_back(MPI_Wtime() - begin);
    return error;
  };
  if (connects_first) wrong |= call() != MPI_SUCCESS;
  set_check(1);
  if (is_late) std::this_thread::sleep_for(std::chrono::duration<double>(kLateBy));
  wrong |= call() == MPI_SUCCESS;
  wrong |= took.back() > (is_late ? kSoon : kLateBy);
  for (int again = 0; again < 2; ++again) {
    wrong |= call() == MPI_SUCCESS || took.back() > kSoon;
    set_check(0);
  }
  if (wrong != 0) {
    std::fprintf(stderr, "calls took");
    for (const double s : took) std::fprintf(stderr, " %.2f s", s);
    std::fprintf(stderr, "\n");
  }
  if (falls_back) MPI_Op_free(&op);
  MPI_Comm_free(&comm);
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks, error = MPI_SUCCESS, cls = MPI_SUCCESS;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const bool connects_first = argc > 2 && std::string(argv[argc - 1]) == "connected";
  if (argc > 2 && std::string(argv[1]) == "late") {
    int wrong_late =
        come_late(rank == std::atoi(argv[2]), connects_first, std::string(argv[argc - 1]) == "fallback");
    MPI_Allreduce(MPI_IN_PLACE, &wrong_late, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
    MPI_Finalize();
    return wrong_late;
  }
  int most = 0;
  if (connects_first) MPI_Allreduce(&rank, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  set_check(1);
  const int expected = make_call(argc > 1 ? argv[1] : "", rank == 1, rank, ranks, error);
  MPI_Error_class(error, &cls);
  int wrong = cls != expected, sum = 0;
  if (wrong) std::fprintf(stderr, "rank %d: error class %d, expected %d\n", rank, cls, expected);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  wrong |= sum != ranks * (ranks - 1) / 2;
  set_check(0);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
  MPI_Finalize();
  return wrong;
}
