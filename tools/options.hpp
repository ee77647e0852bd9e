// options.hpp -- options that commands share, and what the command line says: numbers, lists, files.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "tools/topo_views.hpp"
#include "topo/draft.hpp"
#include "topo/system.hpp"

namespace loom::tools {

/// Throws Error (kBadInput).
[[noreturn]] void refuse(const std::string& reason);

/// For CLI::Option::check. They look at the text, before CLI11 turns it into no number or another one.
CLI::Validator whole_number(std::int64_t least, std::int64_t most);
CLI::Validator number(double least, double most);
CLI::Validator not_empty();

/// What name_of() calls each, for CLI::IsMember.
template <class Kinds>
std::vector<std::string> names_of(const Kinds& kinds) {
  std::vector<std::string> names;
  for (const auto& kind : kinds) names.emplace_back(name_of(kind));
  return names;
}

/// "a,b": its items, none of them empty; `option` is named in what is thrown. Error (kBadInput), as from the
/// following. CLI11's own lists would leave out what is empty, and take FILE behind them for one more item.
std::vector<std::string> items_of(const std::string& list, const std::string& option);
/// "0,1,2" or "0-2,7", each once.
std::vector<int> ranks_of(const std::string& list, const std::string& option);
/// "8,2", from 1 on.
std::vector<int> counts_of(const std::string& list, const std::string& option);
/// "512", "64K", "1.5G": whole bytes, 1 to 2^60; K, M, G, T and P are powers of 1024.
std::uint64_t bytes_of(const std::string& text, const std::string& option);

/// Throws Error (kBadInput) where `option` was given with one of `others`.
void refuse_with(const CLI::App& command, const char* option, std::initializer_list<const char*> others);

/// A file, stdin ("-"), or, where there is none, this machine. Throws Error (kBadInput).
topo::SystemWithNotes read_machine(const std::string& file, topo::Model model);
/// What reading it assumed, a line each on stderr.
void tell(const std::vector<std::string>& notes, const Colours& colours = {});
/// For pictures and messages: the file's name, or this host's.
std::string name_of_machine(const std::string& file);

void add_model(CLI::App& command, std::string& model);
topo::Model model_of(const std::string& name);

/// What search and connect ask of channels.
struct ChannelOptions {
  int nodes = 1, cross_nic = 2, min_channels = 1, max_channels = 32;
  double most_gbps = 0;
};
void add_channel_options(CLI::App& command, ChannelOptions& options);
/// A minimum above the usual maximum raises that; above one that was given it is refused.
void settle(const CLI::App& command, ChannelOptions& options);

/// A file on the command line, with the option or argument that names it.
struct NamedFile {
  std::string option, path;  ///< empty: none
};
/// Throws Error (kBadInput) where an output could not be written (it is a folder, or its folder is not there
/// or takes no new file), or is the same file as an input or as another output. "-" is stdin or stdout.
void check_outputs(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs);

}  // namespace loom::tools
