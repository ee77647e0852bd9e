// topo_command.cpp -- `loom topo show | draw | check | convert | diff`.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "tools/commands.hpp"
#include "tools/options.hpp"
#include "tools/topo_diff.hpp"
#include "tools/topo_views.hpp"
#include "tools/words.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/nccl_xml.hpp"
#include "topo/xml_file.hpp"

namespace loom::tools {
namespace {

using namespace loom::topo;

struct Options {
  std::string file, other, output, format, model = "loom", colour = "auto";
  std::optional<std::string> ranks;
  bool json = false, all = false, strict = false, ignore_ids = false;
  int* exit_code = nullptr;
};

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

void tell_in_colour(const Options& options, const std::vector<std::string>& notes) {
  tell(notes, colours_of(options, STDERR_FILENO));
}

/// COLUMNS, else what the terminal has; 0: lines may be of any length.
std::size_t output_width() {
  if (const char* columns = std::getenv("COLUMNS"))
    if (const int width = std::atoi(columns); width > 0) return static_cast<std::size_t>(width);
  winsize terminal{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal) == 0 ? terminal.ws_col : 0;
}

/// The machine to look at, without the ranks that take no part.
SystemWithNotes read(const Options& options, const std::string& file) {
  SystemWithNotes read = read_machine(file, model_of(options.model));
  if (options.ranks) read.system = trimmed_to(read.system, ranks_of(*options.ranks, "--ranks"));
  return read;
}

/// The same, with notes on stderr.
System load(const Options& options, const std::string& file) {
  SystemWithNotes loaded = read(options, file);
  tell_in_colour(options, loaded.notes);
  return std::move(loaded.system);
}

void write(const std::string& path, const std::string& text) {
  if (!path.empty() && path != "-") return write_text_file(path, text);
  loom::print("{}", text);
}

/// Ignores case.
bool ends_with(std::string text, std::string_view end) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::string_view(text).ends_with(end);
}

void show(const Options& options) {
  auto [system, notes] = read(options, options.file);
  std::optional<Paths> paths;
  try {
    paths.emplace(system);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadInput) throw;
    notes.emplace_back(error.what());  // the rest can be shown still
  }
  if (options.json) return write("-", show_json(system, paths ? &*paths : nullptr, notes));
  tell_in_colour(options, notes);
  const Colours colours = colours_of(options);
  write("-", (paths ? matrix_text(*paths, colours, options.all, output_width()) + "\n" : "") +
                 tree_text(system, colours));
}

/// By --format, else by the file's name.
bool wants_dot(const Options& options) {
  if (!options.format.empty()) return options.format == "dot";
  if (ends_with(options.output, ".dot") || ends_with(options.output, ".gv")) return true;
  if (options.output != "-" && !ends_with(options.output, ".svg") &&
      options.output.find('.', options.output.rfind('/') + 1) != std::string::npos)
    throw Error(
        ErrorCode::kBadInput,
        loom::format(
            "{}: pictures are written as .svg, or as .dot for Graphviz; rsvg-convert makes others of them. "
            "--format says which where the name does not.",
            options.output));
  return false;
}

void check_output(const Options& options) {
  check_outputs({{"FILE", options.file}}, {{"--output", options.output}});
}

void draw(const Options& options) {
  check_output(options);
  const bool dot = wants_dot(options);
  const System system = read(options, options.file).system;
  write(options.output, dot ? to_dot(system, name_of_machine(options.file), options.all)
                            : to_svg(system, name_of_machine(options.file), options.all));
}

void check_machine(const Options& options) {
  SystemWithNotes loaded = read(options, options.file);
  const System& system = loaded.system;
  // The findings repeat these.
  const std::vector<std::string> said = gap_notes(system);
  std::erase_if(loaded.notes, [&](const std::string& note) {
    return std::find(said.begin(), said.end(), note) != said.end();
  });
  const std::vector<std::string> broken = check(system);
  const std::vector<Finding> findings = lint(system);
  const std::vector<FindingGroup> groups = grouped(findings);
  const auto warnings = static_cast<std::size_t>(std::count_if(
      groups.begin(), groups.end(), [](const auto& g) { return g.first.severity == Severity::kWarning; }));
  if (options.json) {
    write("-",
          nlohmann::json{{"notes", loaded.notes}, {"broken", broken}, {"findings", to_json(system, findings)}}
                  .dump(2) +
              "\n");
  } else {
    tell_in_colour(options, loaded.notes);
    std::string text;
    for (const std::string& line : broken) text += loom::format("broken: {}\n", line);
    text += findings_text(system, groups, colours_of(options));
    write("-", text + loom::format(
                          "{}, {}: {}, {}, {}\n", counted(static_cast<std::size_t>(system.size()), "node"),
                          counted(system.links().size(), "link"), counted(warnings, "warning"),
                          counted(groups.size() - warnings, "hint"), counted(loaded.notes.size(), "note")));
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
  check_output(options);
  options.model = "loom";  // NCCL's rules leave out what has no rank
  const System system = load(options, options.file);
  const bool hwloc = options.format == "hwloc";
  const std::string text = hwloc ? to_hwloc_xml(system) : to_nccl_xml(system);
  try {
    if (parse_system(text, "the result", system.model()).system != system)
      throw Error(ErrorCode::kInternal,
                  "What was written does not read as the same machine; this is a defect of loom.");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadInput) throw;
    throw Error(ErrorCode::kBadInput,
                loom::format("What {}'s XML makes of this machine could not be read again: {}",
                             hwloc ? "hwloc" : "NCCL", error.what()));
  }
  write(options.output, text);
  const std::ptrdiff_t elements = element_count(text);
  if (!hwloc && elements > kMostNcclElements)
    tell_in_colour(options, {loom::format("The result has {} elements; NCCL 2.30 reads files of at most {}.",
                                          elements, kMostNcclElements)});
}

void diff(const Options& options) {
  if (options.file == "-" && options.other == "-")
    throw Error(ErrorCode::kBadInput, "stdin (-) can be one of the two machines only.");
  const System before = read(options, options.file).system, after = read(options, options.other).system;
  const std::vector<Difference> found =
      differences(before, after, options.ignore_ids ? Ignore::kIds : Ignore::kNothing,
                  options.ranks ? CompareGpus::kOfRanks : CompareGpus::kAll);
  if (options.json) {
    write("-", to_json(found).dump(2) + "\n");
  } else {
    const Colours colours = colours_of(options);
    std::string text;
    for (const Difference& one : found)
      text += loom::format("{}{}{}\n",
                           one.sign == '+'   ? colours.green
                           : one.sign == '-' ? colours.red
                                             : colours.yellow,
                           one.text, colours.reset);
    const std::string same = loom::format("the same machine{}{}\n", options.ranks ? " for these ranks" : "",
                                          options.ignore_ids ? " but for its ids" : "");
    write("-", text + (found.empty() ? same : counted(found.size(), "difference") + "\n"));
  }
  if (!found.empty()) *options.exit_code = kFound;
}

CLI::App* add(CLI::App& topo, const std::shared_ptr<Options>& options, const char* name, const char* text,
              const char* examples, void (*run)(const Options&)) {
  CLI::App* command = topo.add_subcommand(name, text);
  command->footer(std::string("Examples:\n") + examples);
  command->callback([options, run] { run(*options); });
  return command;
}

void add_colour(CLI::App* command, Options& options) {
  command
      ->add_flag("--color{always},--colour{always}", options.colour,
                 "colours in text: --color, or --color=auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
}

void add_ranks(CLI::App* command, Options& options) {
  command->add_option("--ranks", options.ranks, "only the GPUs of these ranks take part, e.g. 0,1,2 or 0-3");
}

void add_file(CLI::App* command, Options& options) {
  command
      ->add_option("FILE", options.file,
                   "topology file, NCCL's XML or hwloc's; -: stdin; without one: this machine")
      ->check(not_empty());
  add_ranks(command, options);
}

void add_output(CLI::App* command, Options& options) {
  command->add_option("-o,--output", options.output, "file to write; -, or without one: stdout")
      ->check(not_empty());
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
                          "  loom topo show dgx.xml --ranks 0-1,4-5  four of its GPUs\n"
                          "  loom topo show dgx.xml --json | jq .paths\n"
                          "The matrix folds into the width of the terminal, or of COLUMNS.",
                          show);
  add_model(*command, options->model);
  add_colour(command, *options);
  add_file(command, *options);
  command->add_flag("--json", options->json, "nodes, links, paths and notes as JSON");
  command->add_flag("--all", options->all, "all GPUs and ports, however many");

  command = add(*topo, options, "draw", "A picture of the machine",
                "  loom topo draw dgx.xml -o dgx.svg\n"
                "  loom topo draw rack.xml --all > rack.svg         equal hosts each by itself\n"
                "  loom topo draw --format dot | dot -Tpng > machine.png",
                draw);
  add_model(*command, options->model);
  add_file(command, *options);
  add_output(command, *options);
  command->add_flag("--all", options->all, "every host, where equal ones would be drawn as one");
  command->add_option("--format", options->format, "svg or dot (Graphviz); without one: by the file's name")
      ->check(CLI::IsMember({"svg", "dot"}));

  command = add(*topo, options, "check", "What is missing, contradictory or suspicious, and what it costs",
                "  loom topo check dgx.xml          exit code 1 if there are warnings\n"
                "  loom topo check --strict         hints count, too",
                check_machine);
  add_model(*command, options->model);
  add_colour(command, *options);
  add_file(command, *options);
  command->add_flag("--json", options->json, "findings as JSON");
  command->add_flag("--strict", options->strict, "exit code 1 for hints, too");

  command =
      add(*topo, options, "convert", "From one dialect to another, or from this machine to a file",
          "  loom topo convert --to nccl -o machine.xml       for NCCL_TOPO_FILE or coll_loom_topo_file\n"
          "  loom topo convert dgx.xml --to hwloc -o dgx-hwloc.xml && lstopo -i dgx-hwloc.xml",
          [](const Options& o) { convert(o); });
  add_colour(command, *options);
  add_file(command, *options);
  command->add_option("--to", options->format, "nccl or hwloc")
      ->check(CLI::IsMember({"nccl", "hwloc"}))
      ->required();
  add_output(command, *options);

  command = add(*topo, options, "diff", "How one machine differs from another",
                "  loom topo diff node1.xml node2.xml      exit code 1 if they differ\n"
                "  loom topo diff node1.xml                this machine against what it was\n"
                "  loom topo diff node1.xml node2.xml --ignore-ids",
                diff);
  add_model(*command, options->model);
  add_colour(command, *options);
  command->add_option("BEFORE", options->file, "topology file; -: stdin")->required()->check(not_empty());
  command->add_option("AFTER", options->other, "topology file; -: stdin; without one: this machine")
      ->check(not_empty());
  add_ranks(command, *options);
  command->add_flag("--ignore-ids", options->ignore_ids,
                    "not bus ids, GUIDs and host hashes, in which equal machines differ");
  command->add_flag("--json", options->json, "the differences as JSON");
}

}  // namespace loom::tools
