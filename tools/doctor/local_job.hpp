// local_job.hpp -- a job of some ranks on this host, which look at themselves (job.cpp).
#pragma once

#include <string>

#include "tools/doctor/finding.hpp"
#include "tools/doctor/open_mpi.hpp"

namespace loom::tools {

struct LocalJob {
  std::string mpirun = "mpirun";
  std::string program;  ///< that speaks MPI: loom_doctor_job
  int ranks = 2;
};

/// Where the job fails, earlier findings may be the cause.
void look_at_local_job(const LocalJob& job, const OpenMpi& open_mpi, Findings& findings);

/// The last sentences of what a program has said, which Open MPI breaks into lines.
std::string last_words_of(const std::string& text);

}  // namespace loom::tools
