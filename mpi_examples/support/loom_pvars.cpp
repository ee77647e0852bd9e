#include "mpi_examples/support/loom_pvars.hpp"

#include <array>
#include <vector>

namespace loom::mpi {

ToolInterface::ToolInterface() {
  // Open MPI takes the level asked for here as the new one of the whole library, so ask for what it has.
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  MPI_T_init_thread(level, &level);
  MPI_T_pvar_session_create(&session_);
}

ToolInterface::~ToolInterface() {
  for (auto& [name, handle] : handles_) {
    if (handle) MPI_T_pvar_handle_free(session_, &*handle);
  }
  MPI_T_pvar_session_free(&session_);
  MPI_T_finalize();
}

std::optional<std::uint64_t> ToolInterface::counter(const std::string& name) {
  auto known = handles_.find(name);
  if (known == handles_.end()) known = handles_.emplace(name, handle_of(name)).first;
  if (!known->second) return std::nullopt;
  std::uint64_t value = 0;
  if (MPI_T_pvar_read(session_, *known->second, &value) != MPI_SUCCESS) return std::nullopt;
  return value;
}

// MPI_T_pvar_get_index would want the variable's class as well; a walk over all names asks for less.
std::optional<MPI_T_pvar_handle> ToolInterface::handle_of(const std::string& name) {
  int variable_count = 0;
  MPI_T_pvar_get_num(&variable_count);
  for (int index = 0; index < variable_count; ++index) {
    std::array<char, 256> found{};
    int length = static_cast<int>(found.size());
    int no_text = 0;
    int verbosity, var_class, bind, readonly, continuous, atomic;
    MPI_Datatype type;
    if (MPI_T_pvar_get_info(index, found.data(), &length, &verbosity, &var_class, &type, nullptr, nullptr,
                            &no_text, &bind, &readonly, &continuous, &atomic) != MPI_SUCCESS) {
      continue;
    }
    if (name != found.data() || bind != MPI_T_BIND_NO_OBJECT) continue;
    int bytes = 0;
    MPI_Type_size(type, &bytes);
    if (bytes != static_cast<int>(sizeof(std::uint64_t))) return std::nullopt;

    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    int values = 0;
    if (MPI_T_pvar_handle_alloc(session_, index, nullptr, &handle, &values) != MPI_SUCCESS)
      return std::nullopt;
    if (!continuous) MPI_T_pvar_start(session_, handle);
    return handle;
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
  }
  MPI_T_cvar_handle_free(&handle);
  return value;
}

namespace {

MPI_Comm dup_preferring(MPI_Comm comm, const std::string& components) {
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "ompi_comm_coll_preference", components.c_str());
  MPI_Comm duplicate;
  MPI_Comm_dup_with_info(comm, info, &duplicate);
  MPI_Info_free(&info);
  return duplicate;
}

}  // namespace

MPI_Comm dup_without_loom(MPI_Comm comm) {
  return dup_preferring(comm, "^loom");
}

MPI_Comm dup_with_component(MPI_Comm comm, const std::string& component) {
  return dup_preferring(comm, component + ",tuned,libnbc,basic,self");
}

}  // namespace loom::mpi
