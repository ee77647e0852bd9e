// topo_command.cpp -- `loom topo show | draw | check | convert | diff`.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "tools/commands.hpp"
#include "tools/topo_views.hpp"
#include "topo/discover.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/nccl_xml.hpp"
#include "topo/xml_file.hpp"
#include "ucx_transport/ports.hpp"

namespace loom::tools {
namespace {

using namespace loom::topo;

struct Options {
  std::string file, other, output, format, model = "loom", colour = "auto";
  std::optional<std::string> ranks;
  bool json = false, all = false, strict = false;
  int* exit_code = nullptr;
};

Model model_of(const Options& options) {
  return options.model == "nccl" ? Model::kNccl : Model::kLoom;
}

/// https://no-color.org: a value that is not empty means no colours.
bool terminal_has_colours(int descriptor) {
  const char *refused = std::getenv("NO_COLOR"), *terminal = std::getenv("TERM");
  return ::isatty(descriptor) != 0 && (refused == nullptr || *refused == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

Colours colours_of(const Options& options, int descriptor = STDOUT_FILENO) {
  const bool wanted =
      options.colour == "always" || (options.colour == "auto" && terminal_has_colours(descriptor));
  return wanted ? terminal_colours() : Colours{};
}

void tell(const Options& options, const std::vector<std::string>& notes) {
  const Colours colours = colours_of(options, STDERR_FILENO);
  for (const std::string& note : notes)
    fmt::print(stderr, "{}note{}: {}\n", colours.cyan, colours.reset, note);
}

/// "0,1,2". Throws Error (kBadInput).
std::vector<int> ranks_of(const std::string& list) {
  std::vector<int> ranks;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    int rank = 0;
    const auto [stop, error] = std::from_chars(list.data() + at, list.data() + end, rank);
    if (error != std::errc() || stop != list.data() + end || rank < 0)
      throw Error(ErrorCode::kBadInput,
                  fmt::format("--ranks takes ranks with commas, e.g. 0,1,2, not \"{}\".", list));
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
      throw Error(ErrorCode::kBadInput, fmt::format("--ranks names rank {} twice.", rank));
    ranks.push_back(rank);
    at = end + 1;
  }
  return ranks;
}

/// The machine to look at: a file, stdin ("-"), or this one.
SystemWithNotes read(const Options& options, const std::string& file) {
  const Model model = model_of(options);
  SystemWithNotes read = file.empty()  ? discover({.ucx_ports = ucx_transport::ports()}, model)
                         : file == "-" ? parse_system(read_text_file("/dev/stdin"), "stdin", model)
                                       : read_system(file, model);
  if (options.ranks) read.system = trimmed_to(read.system, ranks_of(*options.ranks));
  return read;
}

/// The same, with notes on stderr.
System load(const Options& options, const std::string& file) {
  SystemWithNotes loaded = read(options, file);
  tell(options, loaded.notes);
  return std::move(loaded.system);
}

void write(const std::string& path, const std::string& text) {
  if (!path.empty() && path != "-") return write_text_file(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw system_error("cannot write to stdout", errno);
}

std::string title_of(const Options& options) {
  return options.file.empty() ? host_name() : options.file.substr(options.file.rfind('/') + 1);
}

bool ends_with(const std::string& text, std::string_view end) {
  return std::string_view(text).ends_with(end);
}

void show(const Options& options) {
  const System system = load(options, options.file);
  std::optional<Paths> paths;
  try {
    paths.emplace(system);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadInput) throw;
    tell(options, {error.what()});  // the tree can be shown still
  }
  if (options.json) {
    const nlohmann::json paths_json = paths ? to_json(*paths) : nlohmann::json();
    return write("-", nlohmann::json{{"system", to_json(system)}, {"paths", paths_json}}.dump(2) + "\n");
  }
  const Colours colours = colours_of(options);
  write("-", (paths ? matrix_text(*paths, colours, options.all) + "\n" : "") + tree_text(system, colours));
}

/// By --format, else by the file's name.
bool wants_dot(const Options& options) {
  if (!options.format.empty()) return options.format == "dot";
  if (ends_with(options.output, ".dot") || ends_with(options.output, ".gv")) return true;
  if (!options.output.empty() && options.output != "-" && !ends_with(options.output, ".svg") &&
      options.output.find('.', options.output.rfind('/') + 1) != std::string::npos)
    throw Error(
        ErrorCode::kBadInput,
        fmt::format(
            "{}: pictures are written as .svg, or as .dot for Graphviz; rsvg-convert makes others of them. "
            "--format says which where the name does not.",
            options.output));
  return false;
}

void draw(const Options& options) {
  const bool dot = wants_dot(options);
  const System system = read(options, options.file).system;
  write(options.output, dot ? to_dot(system, title_of(options)) : to_svg(system, title_of(options)));
}

void check_machine(const Options& options) {
  SystemWithNotes loaded = read(options, options.file);
  const System& system = loaded.system;
  // What the findings say again.
  const std::vector<std::string> said = unknown_link_notes(system);
  std::erase_if(loaded.notes, [&](const std::string& note) {
    return std::find(said.begin(), said.end(), note) != said.end();
  });
  const std::vector<std::string> broken = check(system);
  const std::vector<Finding> findings = lint(system);
  const auto warnings = std::count_if(findings.begin(), findings.end(),
                                      [](const Finding& f) { return f.severity == Severity::kWarning; });
  if (options.json) {
    write("-",
          nlohmann::json{{"notes", loaded.notes}, {"broken", broken}, {"findings", to_json(system, findings)}}
                  .dump(2) +
              "\n");
  } else {
    tell(options, loaded.notes);
    std::string text;
    for (const std::string& line : broken) text += fmt::format("broken: {}\n", line);
    text += findings_text(system, findings, colours_of(options));
    write("-",
          text + fmt::format("{} nodes, {} links: {} warnings, {} hints\n", system.size(),
                             system.links().size(), warnings, static_cast<long>(findings.size()) - warnings));
  }
  if (!broken.empty() || warnings > 0 || (options.strict && !findings.empty())) *options.exit_code = kFound;
}

/// NCCL 2.30 (xml.h, NCCL_TOPO_XML_MAX_NODES) reads this many elements of a file.
constexpr std::ptrdiff_t kMostNcclElements = 256;

/// Of XML that loom wrote.
std::ptrdiff_t element_count(std::string_view xml) {
  std::ptrdiff_t count = 0;
  for (std::size_t at = xml.find('<'); at != std::string_view::npos; at = xml.find('<', at + 1))
    count += xml.substr(at + 1, 1) != "/";
  return count;
}

void convert(Options options) {
  options.model = "loom";  // NCCL's rules leave out what has no rank
  const System system = load(options, options.file);
  const bool hwloc = options.format == "hwloc";
  const std::string text = hwloc ? to_hwloc_xml(system) : to_nccl_xml(system);
  if (parse_system(text, options.output.empty() ? "the result" : options.output, system.model()).system !=
      system)
    throw Error(ErrorCode::kInternal,
                "What was written does not read as the same machine; this is a defect of loom.");
  write(options.output, text);
  const std::ptrdiff_t elements = element_count(text);
  if (!hwloc && elements > kMostNcclElements)
    tell(options, {fmt::format("The result has {} elements; NCCL 2.30 reads files of at most {}.", elements,
                               kMostNcclElements)});
}

void diff(const Options& options) {
  const System before = read(options, options.file).system, after = read(options, options.other).system;
  const std::vector<std::string> lines = differences(before, after);
  if (options.json) {
    write("-", nlohmann::json(lines).dump(2) + "\n");
  } else {
    const Colours colours = colours_of(options);
    std::string text;
    for (const std::string& line : lines)
      text += fmt::format("{}{}{}\n",
                          line[0] == '+'   ? colours.green
                          : line[0] == '-' ? colours.red
                                           : colours.yellow,
                          line, colours.reset);
    write("-", text + (lines.empty() ? "the same machine\n" : fmt::format("{} differences\n", lines.size())));
  }
  if (!lines.empty()) *options.exit_code = kFound;
}

CLI::App* add(CLI::App& topo, const std::shared_ptr<Options>& options, const char* name, const char* text,
              const char* examples, void (*run)(const Options&)) {
  CLI::App* command = topo.add_subcommand(name, text);
  command->footer(std::string("Examples:\n") + examples);
  command->add_option("--model", options->model, "rules for links and bandwidths")
      ->check(CLI::IsMember({"loom", "nccl"}))
      ->capture_default_str();
  command->add_option("--color,--colour", options->colour, "colours in text")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  command->callback([options, run] { run(*options); });
  return command;
}

void add_file(CLI::App* command, Options& options) {
  command->add_option("FILE", options.file,
                      "topology file, NCCL's XML or hwloc's; -: stdin; without one: this machine");
  command->add_option("--ranks", options.ranks, "only the GPUs of these ranks take part, e.g. 0,1,2");
}

}  // namespace

void add_topo_command(CLI::App& loom, int& exit_code) {
  CLI::App* topo = loom.add_subcommand("topo", "Show, draw, check, convert and compare machines");
  topo->require_subcommand(1);
  const auto options = std::make_shared<Options>();
  options->exit_code = &exit_code;

  CLI::App* command = add(*topo, options, "show",
                          "The matrix of best paths between GPUs and ports, and the machine as a tree",
                          "  loom topo show                          this machine\n"
                          "  loom topo show dgx.xml --ranks 0,1,4,5  four of its GPUs\n"
                          "  loom topo show dgx.xml --json | jq .paths",
                          show);
  add_file(command, *options);
  command->add_flag("--json", options->json, "nodes, links and paths as JSON");
  command->add_flag("--all", options->all, "all columns, however many");

  command = add(*topo, options, "draw", "A picture of the machine",
                "  loom topo draw dgx.xml -o dgx.svg\n"
                "  loom topo draw --format dot | dot -Tpng > machine.png",
                draw);
  add_file(command, *options);
  command->add_option("-o,--output", options->output, "file to write; without one: stdout");
  command->add_option("--format", options->format, "svg or dot (Graphviz); without one: by the file's name")
      ->check(CLI::IsMember({"svg", "dot"}));

  command = add(*topo, options, "check", "What is missing, contradictory or suspicious, and what it costs",
                "  loom topo check dgx.xml          exit code 1 if there are warnings\n"
                "  loom topo check --strict         hints count, too",
                check_machine);
  add_file(command, *options);
  command->add_flag("--json", options->json, "findings as JSON");
  command->add_flag("--strict", options->strict, "exit code 1 for hints, too");

  command =
      add(*topo, options, "convert", "From one dialect to another, or from this machine to a file",
          "  loom topo convert --to nccl -o machine.xml       for NCCL_TOPO_FILE or coll_loom_topo_file\n"
          "  loom topo convert dgx.xml --to hwloc -o dgx-hwloc.xml && lstopo -i dgx-hwloc.xml",
          [](const Options& o) { convert(o); });
  add_file(command, *options);
  command->add_option("--to", options->format, "nccl or hwloc")
      ->check(CLI::IsMember({"nccl", "hwloc"}))
      ->required();
  command->add_option("-o,--output", options->output, "file to write; without one: stdout");

  command = add(*topo, options, "diff", "How one machine differs from another",
                "  loom topo diff node1.xml node2.xml      exit code 1 if they differ", diff);
  command->add_option("BEFORE", options->file, "topology file")->required();
  command->add_option("AFTER", options->other, "topology file")->required();
  command->add_flag("--json", options->json, "the lines as JSON");
}

}  // namespace loom::tools
