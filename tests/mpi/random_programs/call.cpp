// The call itself, in its three forms.
#include <mpi.h>

#include "tests/mpi/init_forms.hpp"
#include "tests/mpi/random_programs/operands.hpp"

namespace loom::random_programs {

#define CALL(Name, name, ...)                          \
  do {                                                 \
    if (form == Form::kBlocking)                       \
      MPI_##Name(__VA_ARGS__);                         \
    else if (form == Form::kNonblocking)               \
      MPI_I##name(__VA_ARGS__, request);               \
    else                                               \
      INIT(Name)(__VA_ARGS__, MPI_INFO_NULL, request); \
  } while (0)

void Operands::call(Form form, MPI_Request* request) {
  const int root = call_.root % place_.ranks, count = count_;
  void* const send = in_place_ ? MPI_IN_PLACE : in_.data();
  void* const recv = out_.data();
  // Of a scatter it is the result that may be in place.
  void* const send_all = in_.data();
  void* const recv_part = in_place_ ? MPI_IN_PLACE : out_.data();
  const int own_sent = units_between(place_.rank, 0), own_received = units_between(0, place_.rank);
  const MPI_Datatype in = in_.layout.type(), out = out_.layout.type();
  const MPI_Comm comm = place_.comm;
  switch (call_.collective) {
    case Collective::kAllreduce:
      CALL(Allreduce, allreduce, send, recv, count, in, op_, comm);
      break;
    case Collective::kReduce:
      CALL(Reduce, reduce, send, recv, count, in, op_, root, comm);
      break;
    case Collective::kReduceScatterBlock:
      CALL(Reduce_scatter_block, reduce_scatter_block, send, recv, count, in, op_, comm);
      break;
    case Collective::kReduceScatter:
      CALL(Reduce_scatter, reduce_scatter, send, recv, received_.counts.data(), in, op_, comm);
      break;
    case Collective::kScan:
      CALL(Scan, scan, send, recv, count, in, op_, comm);
      break;
    case Collective::kExscan:
      CALL(Exscan, exscan, send, recv, count, in, op_, comm);
      break;
    case Collective::kBcast:
      CALL(Bcast, bcast, recv, count, out, root, comm);
      break;
    case Collective::kAllgather:
      CALL(Allgather, allgather, send, count, in, recv, count, out, comm);
      break;
    case Collective::kAllgatherv:
      CALL(Allgatherv, allgatherv, send, own_sent, in, recv, received_.counts.data(), received_.disps.data(),
           out, comm);
      break;
    case Collective::kGather:
      CALL(Gather, gather, send, count, in, recv, count, out, root, comm);
      break;
    case Collective::kGatherv:
      CALL(Gatherv, gatherv, send, own_sent, in, recv, received_.counts.data(), received_.disps.data(), out,
           root, comm);
      break;
    case Collective::kScatter:
      CALL(Scatter, scatter, send_all, count, in, recv_part, count, out, root, comm);
      break;
    case Collective::kScatterv:
      CALL(Scatterv, scatterv, send_all, sent_.counts.data(), sent_.disps.data(), in, recv_part, own_received,
           out, root, comm);
      break;
    case Collective::kAlltoall:
      CALL(Alltoall, alltoall, send, count, in, recv, count, out, comm);
      break;
    case Collective::kAlltoallv:
      CALL(Alltoallv, alltoallv, send, sent_.counts.data(), sent_.disps.data(), in, recv,
           received_.counts.data(), received_.disps.data(), out, comm);
      break;
    case Collective::kAlltoallw:
      CALL(Alltoallw, alltoallw, send, sent_.counts.data(), sent_.byte_disps.data(), sent_.types.data(), recv,
           received_.counts.data(), received_.byte_disps.data(), received_.types.data(), comm);
      break;
    case Collective::kBarrier:
      if (form == Form::kBlocking)
        MPI_Barrier(comm);
      else if (form == Form::kNonblocking)
        MPI_Ibarrier(comm, request);
      else
        INIT(Barrier)(comm, MPI_INFO_NULL, request);
      break;
  }
}

}  // namespace loom::random_programs
