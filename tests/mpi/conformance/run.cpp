// The sample of cases on one communicator, and what came of it.
#include "tests/mpi/conformance/conformance.hpp"

#include <bit>

namespace loom::conformance {

const char* name(Form form) {
  return form == Form::kBlocking ? "blocking" : form == Form::kNonblocking ? "nonblocking" : "persistent";
}

Run::Run(MPI_Comm communicator, const Settings& of_run)
    : settings(of_run), comm(communicator), random_(of_run.seed) {
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
}

bool Run::draw() {
  return static_cast<double>(random_() >> 11) * 0x1p-53 < settings.share;
}

void Run::judge(bool right, std::string_view collective, Form form, const std::string& what) {
  ++cases.emplace(collective, 0).first->second;
  if (right) return;
  if (++wrong <= 20)
    loom::print(stderr, "wrong on rank {} of {}: {} {}, {}\n", rank, ranks, name(form), collective, what);
}

std::vector<int> Run::counts() const {
  const int larger = static_cast<int>(std::bit_ceil(2 * settings.big));
  return {0, 1, ranks - 1, ranks, 77, 1009, larger, static_cast<int>(settings.big)};
}

}  // namespace loom::conformance
