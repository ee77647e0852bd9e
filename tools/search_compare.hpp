// search_compare.hpp -- `loom search FOLDER --compare`: our channels beside those of another search.
#pragma once

#include <string>

#include "search/channel_plan.hpp"

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

}  // namespace loom::tools
