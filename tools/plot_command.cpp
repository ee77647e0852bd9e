// plot_command.cpp -- `loom plot`.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/format.hpp"
#include "tools/commands.hpp"
#include "tools/options.hpp"
#include "tools/plot/measurements.hpp"
#include "topo/xml_file.hpp"

namespace loom::tools {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string output = "-", show = "auto";
  bool names_output = false;
};

/// Not a barrier.
bool has_sizes(const Measurement& measurement) {
  return std::ranges::any_of(measurement.curves.front().points,
                             [](const auto& point) { return point.first > 0; });
}

std::string picture(const Options& options, const std::vector<Measurement>& all) {
  if (options.show == "ratios" || (options.show == "auto" && (all.size() > 1 || !has_sizes(all[0])))) {
    for (const Measurement& measurement : all)
      if (!measurement.has_loom())
        refuse(loom::format("{}, {} was measured with loom off alone: mpirun --mca coll_loom_enable 1.",
                            measurement.title, measurement.where));
      else if (measurement.curves.size() < 2)
        refuse(loom::format("{}, {} has nothing to compare with: loom_bench --compare or --peers.",
                            measurement.title, measurement.where));
    return ratios_svg(all);
  }
  if (all.size() > 1)
    refuse(loom::format(
        "--show {} takes one collective on one set of ranks; these files have {}, {} and others.",
        options.show, all[0].title, all[1].title));
  if (!has_sizes(all[0]))
    refuse(loom::format("{} has no sizes to show {} over: --show ratios.", all[0].title, options.show));
  return curves_svg(all[0], options.show == "bandwidth");
}

void plot(const Options& options) {
  if (!options.names_output && ::isatty(STDOUT_FILENO) == 1)
    refuse("the picture is SVG, which a terminal does not show: -o out.svg");
  std::vector<NamedFile> inputs;
  for (const std::string& file : options.files) inputs.push_back({"FILE", file});
  check_outputs(inputs, {{"--output", options.output}});
  if (const std::filesystem::path output(options.output);
      output.has_extension() && output.extension() != ".svg")
    refuse(loom::format(
        "--output {}: the picture is SVG, name it .svg (rsvg-convert or a browser makes a {} of it).",
        options.output, output.extension().string().substr(1)));
  const std::string svg = picture(options, read_measurements(options.files));
  if (options.output == "-")
    loom::print("{}", svg);
  else
    topo::write_text_file(options.output, svg);
}

}  // namespace

void add_plot_command(CLI::App& loom, int&) {
  auto options = std::make_shared<Options>();
  CLI::App* command = loom.add_subcommand("plot", "Pictures of what loom_bench --json has measured");
  command
      ->add_option("FILE", options->files,
                   "What loom_bench --json has written, once or several times; - is stdin")
      ->required();
  CLI::Option* output = command->add_option("-o,--output", options->output, "The picture, SVG; - is stdout")
                            ->capture_default_str();
  command
      ->add_option(
          "--show", options->show,
          "latency or bandwidth over size, of one collective; ratios: of each collective to the best of "
          "what it was compared with; auto: latency of one, ratios of several")
      ->check(CLI::IsMember({"auto", "latency", "bandwidth", "ratios"}))
      ->capture_default_str();
  command->footer(
      "Examples:\n  mpirun -n 2 --mca coll_loom_enable 1 loom_bench allreduce --peers tuned,sm --json "
      "allreduce.json\n"
      "  loom plot allreduce.json -o allreduce.svg");
  command->callback([options, output] {
    options->names_output = output->count() > 0;
    plot(*options);
  });
}

}  // namespace loom::tools
