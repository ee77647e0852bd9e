// mpi_counters_test -- loom's performance variables as MPI's tool interface shows them: few, some of them
// arrays.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"

namespace {

int failures = 0;

void expect(bool condition, const std::string& otherwise) {
  if (condition) return;
  ++failures;
  std::fprintf(stderr, "%s\n", otherwise.c_str());
}

/// As many elements as the lists of names in the description give.
std::size_t elements_described(const std::string& description) {
  std::size_t elements = 1;
  std::istringstream parts(description);
  for (std::string part; std::getline(parts, part, ';');) {
    if (const std::size_t colon = part.find(':'); colon != std::string::npos)
      elements *=
          static_cast<std::size_t>(std::count(part.begin() + static_cast<long>(colon), part.end(), ' '));
  }
  return elements;
}

/// Every variable of loom gives as many values as its description says, and writes no more.
void read_all(MPI_T_pvar_session session) {
  constexpr std::uint64_t kUntouched = 0xA5A5A5A5A5A5A5A5;
  int found = 0, variables = 0;
  MPI_T_pvar_get_num(&variables);
  for (int index = 0; index < variables; ++index) {
    std::array<char, 256> name{};
    std::array<char, 4096> description{};
    int name_length = static_cast<int>(name.size()),
        description_length = static_cast<int>(description.size());
    int verbosity, var_class, bind, readonly, continuous, atomic;
    MPI_Datatype type;
    if (MPI_T_pvar_get_info(index, name.data(), &name_length, &verbosity, &var_class, &type, nullptr,
                            description.data(), &description_length, &bind, &readonly, &continuous,
                            &atomic) != MPI_SUCCESS ||
        std::string(name.data()).rfind("coll_loom_", 0) != 0)
      continue;
    ++found;
    const std::string variable = name.data();
    expect(type == MPI_UNSIGNED_LONG_LONG && var_class == MPI_T_PVAR_CLASS_COUNTER,
           variable + ": another type");
    MPI_T_pvar_handle handle;
    int count = -1;
    expect(MPI_T_pvar_handle_alloc(session, index, nullptr, &handle, &count) == MPI_SUCCESS,
           variable + ": no handle");
    const std::size_t elements = elements_described(description.data());
    expect(
        count == static_cast<int>(elements),
        variable + ": " + std::to_string(count) + " elements, but described are " + std::to_string(elements));
    std::vector<std::uint64_t> values(elements + 1, kUntouched);
    expect(MPI_T_pvar_read(session, handle, values.data()) == MPI_SUCCESS, variable + ": cannot be read");
    expect(std::count(values.begin(), values.end(), kUntouched) == 1 && values.back() == kUntouched,
           variable + ": not all elements have been written, or more than these");
    MPI_T_pvar_handle_free(session, &handle);
  }
  expect(found >= 5 && found <= 10, std::to_string(found) + " variables");
}

/// Calls show in the elements of their collective, and in no others.
void count_calls(loom::mpi::ToolInterface& tool) {
  tool.counter("coll_loom_calls");
  const auto calls = [&](const char* collective) {
    return tool.counter("coll_loom_calls", collective).value_or(0);
  };
  const std::uint64_t all = *tool.counter("coll_loom_calls"), allreduces = calls("allreduce"),
                      scans = calls("scan"), bytes = *tool.counter("coll_loom_bytes", "allreduce");
  std::array<int, 4> in{1, 2, 3, 4}, out{};
  for (int i = 0; i < 3; ++i) MPI_Allreduce(in.data(), out.data(), 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < 2; ++i) MPI_Scan(in.data(), out.data(), 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  expect(calls("allreduce") == allreduces + 3, "allreduces are not counted");
  expect(calls("scan") == scans + 2, "scans are not counted");
  expect(*tool.counter("coll_loom_calls") == all + 5, "other calls are counted");
  expect(*tool.counter("coll_loom_bytes", "allreduce") == bytes + 3 * sizeof in, "bytes are not counted");
  // One element of many: one rank carries its calls alone, several use what is best for small ones.
  int ranks;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  expect(tool.counter("coll_loom_calls", "allreduce", ranks == 1 ? "copy" : "immediate").value_or(0) >=
             allreduces + 3,
         "allreduces are not counted by algorithm");
}

void look_for_what_is_not_there(loom::mpi::ToolInterface& tool) {
  expect(!tool.counter("coll_loom_nothing"), "there is no such variable");
  expect(!tool.counter("coll_loom_calls", "allreduces"), "there is no such collective");
  expect(!tool.counter("coll_loom_calls", "allreduce", "nobody"), "there is no such algorithm");
  expect(!tool.counter("coll_loom_declined", "allreduce"), "it is not by collective");
  expect(tool.counter("coll_loom_declined").has_value(), "it has one element");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    loom::mpi::ToolInterface tool;
    MPI_T_pvar_session session;
    MPI_T_pvar_session_create(&session);
    read_all(session);
    MPI_T_pvar_session_free(&session);
    count_calls(tool);
    look_for_what_is_not_there(tool);
  }
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
