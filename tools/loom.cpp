// loom.cpp -- the command line: which command, and how it ends.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "base/format.hpp"
#include "tools/commands.hpp"
#include "ucx_transport/ports.hpp"

namespace {

/// "a, b and c"
std::string listed(const std::vector<const CLI::App*>& commands) {
  std::string text;
  for (std::size_t i = 0; i < commands.size(); ++i)
    text += (i == 0 ? "" : i + 1 < commands.size() ? ", " : " and ") + commands[i]->get_name();
  return text;
}

/// A complaint about the first word that should name a command and does not; "" without one.
std::string unknown_command(const CLI::App& loom, int argc, char** argv) {
  const CLI::App* at = &loom;
  std::string path = loom.get_name();
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    const std::string word = argv[i];
    const auto commands = at->get_subcommands(nullptr);
    if (commands.empty()) break;
    const auto named = std::find_if(commands.begin(), commands.end(),
                                    [&](const CLI::App* command) { return command->get_name() == word; });
    if (named == commands.end())
      return loom::format("{} has no command \"{}\"; it has {}. See {} --help.", path, word, listed(commands),
                          path);
    at = *named;
    path += " " + word;
  }
  return "";
}

/// CLI11's complaint, with the name of the command that it is about.
std::string failure(const CLI::App* app, const CLI::Error& error) {
  std::string path = app->get_name();
  for (auto parsed = app->get_subcommands(); !parsed.empty(); parsed = app->get_subcommands()) {
    app = parsed.front();
    path += " " + app->get_name();
  }
  return loom::format("loom: {}\nSee {} --help.\n", error.what(), path);
}

/// Or kTrouble, where some of the output has not been written.
int ended_with(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  loom::print(stderr, "loom: cannot write to stdout: {}.\n", std::strerror(errno));
  return loom::tools::kTrouble;
}

}  // namespace

int main(int argc, char** argv) {
  loom::ucx_transport::leave_signals_alone();
  CLI::App app("loom: look at machines as loom sees them. All but doctor needs no MPI, and all of it no GPU.",
               "loom");
  app.require_subcommand(1);
  app.set_version_flag("--version", "loom " LOOM_VERSION);
  app.failure_message(failure);
  app.footer(
      "Exit codes: 0 fine, 1 something found (topo check, topo diff, search --check and --compare, connect, "
      "doctor) or nothing (search), 2 wrong command line or file.");
  int exit_code = loom::tools::kOk;
  loom::tools::add_topo_command(app, exit_code);
  loom::tools::add_search_command(app, exit_code);
  loom::tools::add_connect_command(app, exit_code);
  loom::tools::add_plan_command(app, exit_code);
  loom::tools::add_doctor_command(app, exit_code);
  loom::tools::add_plot_command(app, exit_code);
  if (const std::string complaint = unknown_command(app, argc, argv); !complaint.empty()) {
    loom::print(stderr, "loom: {}\n", complaint);
    return loom::tools::kTrouble;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ended_with(loom::tools::kOk) : loom::tools::kTrouble;
  } catch (const std::exception& error) {
    loom::print(stderr, "loom: {}\n", error.what());
    return loom::tools::kTrouble;
  }
  return ended_with(exit_code);
}
