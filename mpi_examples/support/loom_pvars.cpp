#include "mpi_examples/support/loom_pvars.hpp"

#include <array>
#include <iterator>
#include <sstream>
#include <vector>

namespace loom::mpi {
namespace {

/// The names of one dimension, from the description of a variable (docs/parameters.md):
/// "...; collective: allreduce reduce; reason: no_kernel not_connected" has two.
std::vector<std::string> names_of_dimension(const std::string& description, int dimension) {
  std::istringstream parts(description);
  for (std::string part; std::getline(parts, part, ';');) {
    const std::size_t colon = part.find(':');
    if (colon == std::string::npos || dimension-- > 0) continue;
    std::istringstream names(part.substr(colon + 1));
    return {std::istream_iterator<std::string>(names), {}};
  }
  return {""};
}

/// The indices of all places with this name; all indices where it is empty.
std::vector<std::size_t> places_of(const std::vector<std::string>& names, std::string_view wanted) {
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < names.size(); ++place)
    if (wanted.empty() || names[place] == wanted) places.push_back(place);
  return places;
}

}  // namespace

ToolInterface::ToolInterface() {
  // Open MPI takes the thread level given here as that of the whole library, so ask for the current one.
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  MPI_T_init_thread(level, &level);
  MPI_T_pvar_session_create(&session_);
}

ToolInterface::~ToolInterface() {
  for (auto& [name, counter] : counters_) {
    if (counter) MPI_T_pvar_handle_free(session_, &counter->handle);
  }
  MPI_T_pvar_session_free(&session_);
  MPI_T_finalize();
}

std::optional<std::uint64_t> ToolInterface::counter(const std::string& name, std::string_view row,
                                                    std::string_view column) {
  auto known = counters_.find(name);
  if (known == counters_.end()) known = counters_.emplace(name, find(name)).first;
  if (!known->second) return std::nullopt;
  Counter& counter = *known->second;
  if (MPI_T_pvar_read(session_, counter.handle, counter.values.data()) != MPI_SUCCESS) return std::nullopt;

  const auto rows = places_of(counter.rows, row), columns = places_of(counter.columns, column);
  if (rows.empty() || columns.empty()) return std::nullopt;
  std::uint64_t sum = 0;
  for (const std::size_t r : rows)
    for (const std::size_t c : columns) sum += counter.values[r * counter.columns.size() + c];
  return sum;
}

// MPI_T_pvar_get_index would also want the variable's class; a walk over all names does not.
std::optional<ToolInterface::Counter> ToolInterface::find(const std::string& name) const {
  int variable_count = 0;
  MPI_T_pvar_get_num(&variable_count);
  for (int index = 0; index < variable_count; ++index) {
    std::array<char, 256> found{};
    std::array<char, 4096> description{};
    int length = static_cast<int>(found.size());
    int description_length = static_cast<int>(description.size());
    int verbosity, var_class, bind, readonly, continuous, atomic;
    MPI_Datatype type;
    if (MPI_T_pvar_get_info(index, found.data(), &length, &verbosity, &var_class, &type, nullptr,
                            description.data(), &description_length, &bind, &readonly, &continuous,
                            &atomic) != MPI_SUCCESS) {
      continue;
    }
    if (name != found.data() || bind != MPI_T_BIND_NO_OBJECT) continue;
    int bytes = 0;
    MPI_Type_size(type, &bytes);
    if (bytes != static_cast<int>(sizeof(std::uint64_t))) return std::nullopt;

    Counter counter{.rows = names_of_dimension(description.data(), 0),
                    .columns = names_of_dimension(description.data(), 1),
                    .values = {}};
    int values = 0;
    if (MPI_T_pvar_handle_alloc(session_, index, nullptr, &counter.handle, &values) != MPI_SUCCESS)
      return std::nullopt;
    counter.values.resize(static_cast<std::size_t>(values));
    if (counter.values.size() != counter.rows.size() * counter.columns.size()) {
      MPI_T_pvar_handle_free(session_, &counter.handle);
      return std::nullopt;
    }
    if (!continuous) MPI_T_pvar_start(session_, counter.handle);
    return counter;
  }
  return std::nullopt;
}

std::optional<std::string> ToolInterface::variable(const std::string& name) {
  int index = 0;
  if (MPI_T_cvar_get_index(name.c_str(), &index) != MPI_SUCCESS) return std::nullopt;
  std::array<char, 256> unused{};
  int length = static_cast<int>(unused.size());
  int no_text = 0;
  int verbosity, bind, scope;
  MPI_Datatype type;
  MPI_T_enum enumerator;
  if (MPI_T_cvar_get_info(index, unused.data(), &length, &verbosity, &type, &enumerator, nullptr, &no_text,
                          &bind, &scope) != MPI_SUCCESS) {
    return std::nullopt;
  }
  MPI_T_cvar_handle handle;
  int count = 0;
  if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) return std::nullopt;
  std::optional<std::string> value;
  if (type == MPI_CHAR) {
    // count is the length of the string, or a bound on it, with its terminating zero.
    std::vector<char> text(static_cast<std::size_t>(count) + 4096, '\0');
    if (MPI_T_cvar_read(handle, text.data()) == MPI_SUCCESS) value = text.data();
  } else if (int number = 0; type == MPI_INT && MPI_T_cvar_read(handle, &number) == MPI_SUCCESS) {
    value = std::to_string(number);
  } else if (bool truth = false; type == MPI_C_BOOL && MPI_T_cvar_read(handle, &truth) == MPI_SUCCESS) {
    value = std::to_string(truth);
  } else if (double real = 0; type == MPI_DOUBLE && MPI_T_cvar_read(handle, &real) == MPI_SUCCESS) {
    value = std::to_string(real);
  } else if (unsigned long long size = 0;
             type == MPI_UNSIGNED_LONG_LONG && MPI_T_cvar_read(handle, &size) == MPI_SUCCESS) {
    value = std::to_string(size);
  }
  MPI_T_cvar_handle_free(&handle);
  return value;
}

CarriedAllreduces::CarriedAllreduces(bool on_gpus) : on_gpus_(on_gpus), before_(count()) {}

std::optional<std::uint64_t> CarriedAllreduces::count() {
  if (!on_gpus_) return tool_.counter("coll_loom_calls", "allreduce");
  std::optional<std::uint64_t> sum;
  for (const char* algorithm : {"zero_copy", "kernel", "kernel_ring", "kernel_tree", "kernel_hier"})
    if (const auto calls = tool_.counter("coll_loom_calls", "allreduce", algorithm))
      sum = sum.value_or(0) + *calls;
  return sum;
}

std::pair<std::string, bool> CarriedAllreduces::of(int calls) {
  const auto now = count();
  if (!before_ || !now) return {"loom is not loaded", false};
  const std::uint64_t carried = *now - *before_;
  return {(on_gpus_ ? "kept on GPUs by loom: " : "carried by loom: ") + std::to_string(carried) + " of " +
              std::to_string(calls) + " allreduces",
          carried == static_cast<std::uint64_t>(calls)};
}

namespace {

MPI_Comm dup_with(MPI_Comm comm, const char* key, const std::string& value) {
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, key, value.c_str());
  MPI_Comm duplicate;
  MPI_Comm_dup_with_info(comm, info, &duplicate);
  MPI_Info_free(&info);
  return duplicate;
}

MPI_Comm dup_preferring(MPI_Comm comm, const std::string& components) {
  return dup_with(comm, "ompi_comm_coll_preference", components);
}

}  // namespace

MPI_Comm dup_without_loom(MPI_Comm comm) {
  return dup_preferring(comm, "^loom");
}

MPI_Comm dup_with_component(MPI_Comm comm, const std::string& component) {
  return dup_preferring(comm, component + ",tuned,libnbc,basic,self");
}

MPI_Comm dup_with_ordered_starts(MPI_Comm comm) {
  return dup_with(comm, "coll_loom_ordered_starts", "true");
}

}  // namespace loom::mpi
