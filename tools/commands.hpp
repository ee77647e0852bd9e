// commands.hpp -- the subcommands of `loom`. Each adds itself to the command line; the one that runs sets the
// exit code.
#pragma once

namespace CLI {
class App;
}

namespace loom::tools {

/// Exit codes of all commands.
enum ExitCode {
  kOk = 0,
  kFound = 1,    ///< there is something to warn of, or a difference; or `search` found no channels
  kTrouble = 2,  ///< wrong command line, unreadable or wrong file
};

void add_topo_command(CLI::App& loom, int& exit_code);
void add_search_command(CLI::App& loom, int& exit_code);
void add_connect_command(CLI::App& loom, int& exit_code);
void add_plan_command(CLI::App& loom, int& exit_code);
void add_doctor_command(CLI::App& loom, int& exit_code);
void add_plot_command(CLI::App& loom, int& exit_code);

}  // namespace loom::tools
