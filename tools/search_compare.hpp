// search_compare.hpp -- `loom search FOLDER --compare`: our channels beside those of another search.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "search/channel_plan.hpp"
#include "topo/system.hpp"

namespace loom::tools {

struct Comparison {
  std::string folder;     ///< of topology files
  std::string reference;  ///< a file of NCCL's figures for them
  bool markdown = false;  ///< rings alone, as a table for docs/search.md
  bool json = false;      ///< {"searches": [...], "sum": {...}}
};

/// Prints a line for each search, and a sum. False: some result carries less than NCCL's, or is not valid.
/// Machines that the folder does not have are named on stderr. Throws Error (kBadInput, with the file's or
/// the folder's name): no such folder, none of the machines in it, a reference that is none.
bool compare(const Comparison& comparison, const search::Request& request);
/// All-gathers and all-reduces by forests beside those by rings and trees, as a table for docs/search.md.
/// False: some forest carries less than rings.
bool compare_forests(const std::string& folder, const std::string& reference);

/// NCCL's figures by file. Throws Error (kBadInput), which names the file.
nlohmann::json read_reference(const std::string& path);
/// body(name, figures, machine) for each machine of the reference that NCCL has searched and that the folder
/// has; those that it lacks are named on stderr. Throws Error (kBadInput).
void for_machines(
    const std::string& folder, const std::string& reference,
    const std::function<void(const std::string&, const nlohmann::json&, const topo::System&)>& body);

}  // namespace loom::tools
