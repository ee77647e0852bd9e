#include "tools/options.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "tools/machine_file.hpp"
#include "tools/words.hpp"
#include "topo/discover.hpp"
#include "ucx_transport/ports.hpp"

namespace loom::tools {
namespace {

template <class Number>
CLI::Validator in_range(Number least, Number most, const char* what) {
  const auto check = [=](const std::string& text) {
    const std::optional<Number> value = parsed<Number>(text);
    return value && *value >= least && *value <= most  // nan is neither
               ? std::string()
               : loom::format("\"{}\" is no {} from {} to {}", text, what, least, most);
  };
  return {check, loom::format("{} to {}", least, most), "in range"};
}

/// Where it is, or would be once it is written.
std::string place_of(const std::string& path) {
  constexpr int kMostLinks = 40;
  std::error_code none;
  std::filesystem::path at = std::filesystem::absolute(path, none);
  for (int links = 0; links < kMostLinks && std::filesystem::is_symlink(at, none); ++links)
    at = at.parent_path() / std::filesystem::read_symlink(at, none);
  const std::filesystem::path place = std::filesystem::weakly_canonical(at, none);
  return none ? path : place.string();
}

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat first {
  }, second{};
  if (::stat(a.c_str(), &first) != 0 || ::stat(b.c_str(), &second) != 0) return place_of(a) == place_of(b);
  return S_ISREG(first.st_mode) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

void check_writable(const NamedFile& output) {
  const auto fail = [&](const std::string& why) {
    refuse(loom::format("{}: cannot write {}: {}.", output.option, output.path, why));
  };
  struct stat status {};
  const bool is_there = ::stat(output.path.c_str(), &status) == 0;
  if (is_there && S_ISDIR(status.st_mode)) fail("it is a folder");
  const bool replaced = !is_there || S_ISREG(status.st_mode);
  const std::string folder = std::filesystem::path(place_of(output.path)).parent_path().string();
  const std::string written = replaced ? folder : output.path;
  if (::access(written.c_str(), replaced ? W_OK | X_OK : W_OK) != 0)
    fail(replaced ? loom::format("{}: {}", folder, std::strerror(errno)) : std::strerror(errno));
}

}  // namespace

void refuse(const std::string& reason) {
  throw Error(ErrorCode::kBadInput, reason);
}

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return in_range(least, most, "whole number");
}

CLI::Validator number(double least, double most) {
  return in_range(least, most, "number");
}

CLI::Validator not_empty() {
  // An unset variable of a script leaves an empty argument.
  return {[](const std::string& text) { return std::string(text.empty() ? "it is empty" : ""); }, "",
          "not empty"};
}

std::vector<std::string> items_of(const std::string& list, const std::string& option) {
  std::vector<std::string> items;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    items.push_back(list.substr(at, end - at));
    if (items.back().empty()) refuse(loom::format("{} \"{}\" has an empty item.", option, list));
    at = end + 1;
  }
  return items;
}

std::vector<int> ranks_of(const std::string& list, const std::string& option) {
  constexpr int kMostRanks = 1 << 20;
  std::vector<int> ranks;
  for (const std::string& item : items_of(list, option)) {
    const std::size_t dash = item.find('-');
    const auto first = parsed<int>(std::string_view(item).substr(0, dash));
    const auto last =
        dash == std::string::npos ? first : parsed<int>(std::string_view(item).substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMostRanks)
      refuse(loom::format("{} takes ranks with commas, e.g. 0,1,2 or 0-3,6, not \"{}\".", option, list));
    for (int rank = *first; rank <= *last; ++rank) ranks.push_back(rank);
  }
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    refuse(loom::format("{} names rank {} twice.", option, *twice));
  return ranks;
}

std::vector<int> counts_of(const std::string& list, const std::string& option) {
  constexpr int kMost = 65535;
  std::vector<int> counts;
  for (const std::string& item : items_of(list, option)) {
    const std::optional<int> count = parsed<int>(item);
    if (!count || *count < 1 || *count > kMost)
      refuse(loom::format("{}: \"{}\" is no whole number from 1 to {}.", option, item, kMost));
    counts.push_back(*count);
  }
  return counts;
}

std::uint64_t bytes_of(const std::string& text, const std::string& option) {
  constexpr std::string_view kUnits = "KMGTP";
  constexpr int kMostPower = 60;
  std::string_view digits = text;
  int power = 0;
  if (!text.empty())
    if (const std::size_t unit =
            kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(text.back()))));
        unit != std::string_view::npos) {
      power = 10 * (static_cast<int>(unit) + 1);
      digits.remove_suffix(1);
    }
  const std::optional<double> value = parsed<double>(digits);
  const double bytes = value ? std::ldexp(*value, power) : 0;
  if (!(bytes >= 1 && bytes <= std::ldexp(1., kMostPower)) || bytes != std::floor(bytes))
    refuse(loom::format(
        "{}: \"{}\" is no whole number of bytes from 1 to 1024P. 512, 64K and 1.5G are: K, M, G, T "
        "and P are powers of 1024.",
        option, text));
  return static_cast<std::uint64_t>(bytes);
}

void refuse_with(const CLI::App& command, const char* option, std::initializer_list<const char*> others) {
  if (command.count(option) == 0) return;
  for (const char* other : others)
    if (command.count(other) > 0) refuse(loom::format("{} does not go with {}.", option, other));
}

topo::SystemWithNotes read_machine(const std::string& file, topo::Model model) {
  return file.empty() ? topo::discover({.initialise_cuda = true, .ucx_ports = ucx_transport::ports()}, model)
                      : read_machine_file(file, model);
}

void tell(const std::vector<std::string>& notes, const Colours& colours) {
  for (const std::string& note : notes)
    loom::print(stderr, "{}note{}: {}\n", colours.cyan, colours.reset, note);
}

std::string name_of_machine(const std::string& file) {
  return file.empty() ? topo::host_name() : file_name(file);
}

void add_model(CLI::App& command, std::string& model) {
  command.add_option("--model", model, "rules for links and bandwidths")
      ->check(CLI::IsMember({"loom", "nccl"}))
      ->capture_default_str();
}

topo::Model model_of(const std::string& name) {
  return name == "nccl" ? topo::Model::kNccl : topo::Model::kLoom;
}

void add_channel_options(CLI::App& command, ChannelOptions& options) {
  command.add_option("--nodes,--hosts", options.nodes, "machines like FILE")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  command.add_option("--cross-nic", options.cross_nic, "0 never, 1 always, 2 where it carries more")
      ->check(whole_number(0, 2))
      ->capture_default_str();
  command.add_option("--min-channels", options.min_channels, "fewer are cut into equal parts")
      ->check(whole_number(1, 64))
      ->capture_default_str();
  command.add_option("--max-channels", options.max_channels, "no more channels than these")
      ->check(whole_number(1, 64))
      ->capture_default_str();
  command.add_option("--channel-gbps", options.most_gbps, "cut channels that carry more GB/s; 0: none")
      ->check(number(0, 1'000'000));
}

void settle(const CLI::App& command, ChannelOptions& options) {
  if (options.min_channels <= options.max_channels) return;
  if (command.count("--max-channels") > 0)
    refuse(loom::format("--min-channels {} is more than --max-channels {}.", options.min_channels,
                        options.max_channels));
  options.max_channels = options.min_channels;
}

void check_outputs(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs) {
  const auto is_file = [](const NamedFile& file) { return !file.path.empty() && file.path != "-"; };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!is_file(outputs[i])) continue;
    check_writable(outputs[i]);
    const auto check = [&](const NamedFile& other) {
      if (is_file(other) && is_same_file(outputs[i].path, other.path))
        refuse(loom::format("{} {} would overwrite {} {}.", outputs[i].option, outputs[i].path, other.option,
                            other.path));
    };
    std::for_each(inputs.begin(), inputs.end(), check);
    std::for_each(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(i), check);
  }
}

}  // namespace loom::tools
