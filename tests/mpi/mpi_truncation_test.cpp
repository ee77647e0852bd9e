// mpi_truncation_test -- rank 1 has half the room for what others send it, an error of the program. It gets
// MPI_ERR_TRUNCATE, in every form of a call and whatever carries it. Where the others can end the call, they
// do, and the communicator goes on; where not, later calls on it fail. Nothing is ever wrong in silence.
//
// Without MPI_Alltoall, whose arguments Open MPI compares itself before it calls anybody.
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#if OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define PERSISTENT(name) MPIX_##name##_init
#else
#define PERSISTENT(name) MPI_##name##_init
#endif

namespace {

enum class Form { kBlocking, kNonblocking, kPersistent };
constexpr const char* kForms[] = {"blocking", "nonblocking", "persistent"};
constexpr int kShortRank = 1;

int rank, ranks, failures = 0;

int class_of(int error) {
  int error_class = MPI_SUCCESS;
  if (error != MPI_SUCCESS) MPI_Error_class(error, &error_class);
  return error_class;
}

/// By messages, without any collective component.
void meet() {
  for (int tag = 0; tag < 2; ++tag)
    for (int other = 1; other < ranks; ++other) {
      const bool sends = tag == 0 ? rank == other : rank == 0;
      if (rank != 0 && rank != other) continue;
      if (sends)
        MPI_Send(nullptr, 0, MPI_INT, rank == 0 ? other : 0, tag, MPI_COMM_WORLD);
      else
        MPI_Recv(nullptr, 0, MPI_INT, rank == 0 ? other : 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/// A call in which every rank but the short one has `count` integers for each.
struct Case {
  std::string collective;
  Form form;
  int count;
  bool goes_on;  ///< the others end the call, and the communicator is as good as ever

  void fail(const std::string& what) const {
    ++failures;
    std::fprintf(stderr, "rank %d of %d: %s, %s, %d integers: %s\n", rank, ranks, collective.c_str(),
                 kForms[static_cast<int>(form)], count, what.c_str());
  }
};

int value(int from, int to, int i) {
  return from * 1'000'003 + to * 10'007 + i;
}

class Buffers {
 public:
  explicit Buffers(const Case& of)
      : n_(of.count),
        mine_(rank == kShortRank ? of.count / 2 : of.count),
        in_(static_cast<std::size_t>(ranks * n_)),
        out_(in_.size(), -1),
        sent_(static_cast<std::size_t>(ranks), n_),
        received_(sent_),
        types_(sent_.size(), MPI_INT) {
    for (int to = 0; to < ranks; ++to) {
      places_.push_back(to * n_);
      byte_places_.push_back(to * n_ * static_cast<int>(sizeof(int)));
      for (int i = 0; i < n_; ++i) in_[static_cast<std::size_t>(to * n_ + i)] = value(rank, to, i);
    }
    if (rank == kShortRank) received_[0] = mine_;
  }

#define CALL(name, iname, ...)                                                                 \
  if (form == Form::kBlocking) return MPI_##name(__VA_ARGS__);                                 \
  if (form == Form::kNonblocking) return finish(MPI_I##iname(__VA_ARGS__, &request_));         \
  if (const int error = PERSISTENT(name)(__VA_ARGS__, MPI_INFO_NULL, &request_)) return error; \
  return start();

  int perform(const std::string& which, Form form, MPI_Comm comm) {
    int* const in = in_.data();
    int* const out = out_.data();
    const int *sent = sent_.data(), *received = received_.data(), *places = places_.data();
    const MPI_Datatype type = MPI_INT;
    if (which == "bcast") {
      CALL(Bcast, bcast, rank == 0 ? in : out, mine_, type, 0, comm)
    }
    if (which == "gather") {
      CALL(Gather, gather, in, n_, type, out, mine_, type, kShortRank, comm)
    }
    if (which == "gatherv") {
      CALL(Gatherv, gatherv, in, n_, type, out, received, places, type, kShortRank, comm)
    }
    if (which == "scatter") {
      CALL(Scatter, scatter, in, n_, type, out, mine_, type, 0, comm)
    }
    if (which == "scatterv") {
      CALL(Scatterv, scatterv, in, sent, places, type, out, mine_, type, 0, comm)
    }
    if (which == "allgather") {
      CALL(Allgather, allgather, in, n_, type, out, mine_, type, comm)
    }
    if (which == "allgatherv") {
      CALL(Allgatherv, allgatherv, in, n_, type, out, received, places, type, comm)
    }
    if (which == "alltoallv") {
      CALL(Alltoallv, alltoallv, in, sent, places, type, out, received, places, type, comm)
    }
    if (which == "alltoallw") {
      const int* bytes = byte_places_.data();
      const MPI_Datatype* types = types_.data();
      CALL(Alltoallw, alltoallw, in, sent, bytes, types, out, received, bytes, types, comm)
    }
    if (which == "allreduce") {
      CALL(Allreduce, allreduce, in, out, mine_, type, MPI_SUM, comm)
    }
    if (which == "reduce") {
      CALL(Reduce, reduce, in, out, mine_, type, MPI_SUM, kShortRank, comm)
    }
    if (which == "reduce_scatter_block") {
      CALL(Reduce_scatter_block, reduce_scatter_block, in, out, mine_, type, MPI_SUM, comm)
    }
    if (which == "reduce_scatter") {
      CALL(Reduce_scatter, reduce_scatter, in, out, received, type, MPI_SUM, comm)
    }
    if (which == "scan") {
      CALL(Scan, scan, in, out, mine_, type, MPI_SUM, comm)
    }
    CALL(Exscan, exscan, in, out, mine_, type, MPI_SUM, comm)
  }
#undef CALL

  void free_request() {
    if (request_ != MPI_REQUEST_NULL) MPI_Request_free(&request_);
  }

  /// Checks what has come from rank 0, as far as there was room. In a gather only the root receives; there
  /// the root is the short rank.
  bool is_right(const std::string& which) const {
    const bool to_root = which == "gather" || which == "gatherv";
    if ((to_root && rank != kShortRank) || (which == "bcast" && rank == 0)) return true;
    const bool one_for_each =
        which == "scatter" || which == "scatterv" || which == "alltoallv" || which == "alltoallw";
    const int room = rank == kShortRank ? mine_ : n_, to = one_for_each ? rank : 0;
    for (int i = 0; i < n_; ++i) {
      const int got = out_[static_cast<std::size_t>(i)];
      const bool beyond = i >= room;
      // Where blocks are as long as the room for them, the next rank's block begins there.
      if (beyond && (which == "gather" || which == "allgather")) break;
      if (got != (beyond ? -1 : value(0, to, i))) return false;
    }
    return true;
  }

 private:
  int finish(int error) {
    return error != MPI_SUCCESS ? error : MPI_Wait(&request_, MPI_STATUS_IGNORE);
  }
  int start() {
    return finish(MPI_Start(&request_));
  }

  int n_, mine_;
  std::vector<int> in_, out_, sent_, received_, places_, byte_places_;
  std::vector<MPI_Datatype> types_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

/// Right calls of several sizes. Returns how many have failed; a wrong result counts against the case.
int make_right_calls(const Case& of, MPI_Comm comm) {
  int failed = 0;
  for (const int count : {1, 2000, of.count / 2, of.count, 20'000}) {
    const auto n = static_cast<std::size_t>(count);
    std::vector<int> in(n), out(n * static_cast<std::size_t>(ranks), -1);
    for (int i = 0; i < count; ++i) in[static_cast<std::size_t>(i)] = value(rank, 0, i);
    if (MPI_Allreduce(in.data(), out.data(), count, MPI_INT, MPI_MAX, comm) != MPI_SUCCESS)
      ++failed;
    else if (out[n - 1] != value(ranks - 1, 0, count - 1))
      of.fail("a later all-reduce is wrong");
    if (MPI_Allgather(in.data(), count, MPI_INT, out.data(), count, MPI_INT, comm) != MPI_SUCCESS)
      ++failed;
    else if (out[0] != value(0, 0, 0) || out.back() != value(ranks - 1, 0, count - 1))
      of.fail("a later all-gather is wrong");
    if (MPI_Bcast(in.data(), count, MPI_INT, 0, comm) != MPI_SUCCESS)
      ++failed;
    else if (in[0] != value(0, 0, 0) || in[n - 1] != value(0, 0, count - 1))
      of.fail("a later broadcast is wrong");
  }
  return failed;
}

void run(const Case& of) {
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "coll_loom_ordered_starts", "true");
  MPI_Comm comm;
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
  MPI_Info_free(&info);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  if (make_right_calls(of, comm) > 0) of.fail("a call before fails");
  meet();

  Buffers buffers(of);
  const int wanted = rank == kShortRank ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
  for (int turn = 0; turn < (of.goes_on ? 2 : 1); ++turn) {
    const int got = class_of(buffers.perform(of.collective, of.form, comm));
    if ((of.goes_on || rank == kShortRank) && got != wanted)
      of.fail("error class " + std::to_string(got) + ", expected " + std::to_string(wanted));
    if (of.goes_on && !buffers.is_right(of.collective)) of.fail("what has come is wrong");
    // Open MPI has freed that of the short rank, because it ended with an error; all ranks make the next one.
    buffers.free_request();
  }
  meet();
  const int failed = make_right_calls(of, comm);
  if (of.goes_on && failed > 0) of.fail("a later call fails");
  if (!of.goes_on && failed == 0) of.fail("later calls know nothing of it");
  meet();
  if (of.goes_on) MPI_Comm_free(&comm);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string only = argc > 1 ? argv[1] : "";
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int cases = 0;
  // Integers: in a line, in the ring, around the sizes where other algorithms begin, in several pieces or
  // tiles.
  for (const char* collective :
       {"bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv", "alltoallv",
        "alltoallw", "allreduce", "reduce", "reduce_scatter_block", "reduce_scatter", "scan", "exscan"})
    for (const Form form : {Form::kBlocking, Form::kNonblocking, Form::kPersistent})
      for (const int count : {4, 256, 3000, 6000, 16'384, 24'000, 262'144}) {
        const std::string name = collective;
        if (!only.empty() && name != only) continue;
        const bool reduces = name.find("reduce") != name.npos || name.find("scan") != name.npos;
        run({name, form, count, !reduces});
        ++cases;
      }
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%d cases, %d failures\n", cases, all);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
