// loom.cpp -- the command line: which command, and how it ends.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "tools/commands.hpp"
#include "ucx_transport/ports.hpp"

int main(int argc, char** argv) {
  loom::ucx_transport::leave_signals_alone();
  CLI::App app("loom: look at machines as loom sees them. No MPI and no GPU needed.", "loom");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 fine, 1 something found (topo check, topo diff, search --check and --compare), 2 wrong "
      "command line or file.");
  int exit_code = loom::tools::kOk;
  loom::tools::add_topo_command(app, exit_code);
  loom::tools::add_search_command(app, exit_code);
  loom::tools::add_connect_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? loom::tools::kOk : loom::tools::kTrouble;
  } catch (const std::exception& error) {
    fmt::print(stderr, "loom: {}\n", error.what());
    return loom::tools::kTrouble;
  }
  return exit_code;
}
