// fault.hpp -- what strikes the victim of mpi_faulted, and what each rank writes down. One per process.
#pragma once

#include <initializer_list>
#include <string>

namespace faults {

inline constexpr int kExitCode = 7, kAbortCode = 9;

/// Of the command line and of mpirun's environment; set before MPI_Init.
struct Run {
  std::string fault, situation, directory;
  int rank = 0, ranks = 0;
  long within_us = -1;

  bool is_victim() const { return rank == ranks - 1; }
};
extern Run run;

/// The file that record() writes to. False: it cannot be written.
bool open_record();
/// One line in this rank's file, with the seconds since the epoch. Allocates nothing.
__attribute__((format(printf, 1, 2))) void record(const char* format, ...);

bool is_one_of(const std::string& word, std::initializer_list<const char*> words);
/// Faults after which the victim makes no call any more.
bool victim_goes();
/// Faults that the victim lives with from before the call until it has ended.
bool is_of_resources();

/// Faults from the beginning.
void strike_before_init();
/// Once loom is loaded, before the first call that may meet the fault.
void prepare();
/// The victim's part of the fault. Returns where the process lives on.
void strike();
/// The fault is over, where it is one of resources.
void relieve();

}  // namespace faults
