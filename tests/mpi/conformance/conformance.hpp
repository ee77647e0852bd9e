// conformance.hpp -- every collective in every form against a reference that each rank computes for itself:
// values are a function of rank, place and call, so nothing but the call under test communicates.
#pragma once

#include <mpi.h>
#if OMPI_MAJOR_VERSION == 4
#include <mpi-ext.h>  // MPIX_Allreduce_init and the like
#endif

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.hpp"
#include "mpi_examples/support/device_memory.hpp"

namespace loom::conformance {

enum class Form { kBlocking, kNonblocking, kPersistent };
inline constexpr Form kForms[] = {Form::kBlocking, Form::kNonblocking, Form::kPersistent};
const char* name(Form form);

#ifdef LOOM_BIG_COUNTS  // the functions with large counts of MPI 4, in all forms
using Count = MPI_Count;
using Displacement = MPI_Aint;
#define LOOM_FUNCTION(name) name##_c
#define MPI_Barrier_c MPI_Barrier  // which have nothing to count
#define MPI_Ibarrier_c MPI_Ibarrier
#define MPI_Barrier_init_c MPI_Barrier_init
#else
using Count = int;
using Displacement = int;
#define LOOM_FUNCTION(name) name
#endif

#if OMPI_MAJOR_VERSION == 4
#define LOOM_INIT(Name) MPIX_##Name##_init
#else
#define LOOM_INIT(Name) LOOM_FUNCTION(MPI_##Name##_init)
#endif
/// Makes a call in one of its forms, to the end. A persistent one is started twice: `refill` restores the
/// buffers before each start.
#define LOOM_CALL(form, refill, Name, name, ...)             \
  do {                                                       \
    MPI_Request request = MPI_REQUEST_NULL;                  \
    if ((form) == Form::kBlocking) {                         \
      refill();                                              \
      LOOM_FUNCTION(MPI_##Name)(__VA_ARGS__);                \
    } else if ((form) == Form::kNonblocking) {               \
      refill();                                              \
      LOOM_FUNCTION(MPI_I##name)(__VA_ARGS__, &request);     \
      MPI_Wait(&request, MPI_STATUS_IGNORE);                 \
    } else {                                                 \
      LOOM_INIT(Name)(__VA_ARGS__, MPI_INFO_NULL, &request); \
      for (int times = 0; times < 2; ++times) {              \
        refill();                                            \
        MPI_Start(&request);                                 \
        MPI_Wait(&request, MPI_STATUS_IGNORE);               \
      }                                                      \
      MPI_Request_free(&request);                            \
    }                                                        \
  } while (0)

struct Settings {
  double share = 1;  ///< of all cases, drawn alike on all ranks
  std::uint64_t seed = 1;
  std::size_t big = 30'011;
  double seconds = 0;                       ///< draw again and again so long
  bool in_order = false;                    ///< floating-point sums are rounded as in order of rank
  bool ordered_starts = true;               ///< the program promises so of its persistent requests
  bool long_elements = false;               ///< also types with elements of more than 16 bytes
  std::set<std::string, std::less<>> only;  ///< collectives, by name; empty: all
  std::set<Form> forms{std::begin(kForms), std::end(kForms)};
};

/// The run of one communicator.
class Run {
 public:
  Run(MPI_Comm communicator, const Settings& of_run);

  const Settings& settings;
  MPI_Comm comm;
  int rank = 0, ranks = 0;

  /// Whether the run is to try this collective.
  bool takes(std::string_view collective) const {
    return settings.only.empty() || settings.only.contains(collective);
  }
  bool takes(Form form) const { return settings.forms.contains(form); }
  /// Whether the next case is in the sample; the same answer on every rank.
  bool draw();
  /// Draws others from now on.
  void reseed(std::uint64_t seed) { random_.seed(seed); }
  /// Judges the case just run.
  void judge(bool right, std::string_view collective, Form form, const std::string& what);
  /// Nothing, one element, about as many as ranks, odd and prime ones, and large ones.
  std::vector<int> counts() const;

  std::map<std::string, int, std::less<>> cases;  ///< by collective
  int wrong = 0;

 private:
  std::mt19937_64 random_;
};

void run_moving(Run& run);
void run_reducing(Run& run);

}  // namespace loom::conformance
