#include "tools/doctor/report.hpp"

#include <sstream>

#include "base/format.hpp"
#include "tools/words.hpp"

namespace loom::tools {
namespace {

constexpr std::size_t kMostHosts = 4;  // that a line names

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line)
    if (c == '\t')
      fields.emplace_back();
    else if (c != '\0')  // mpirun 5.0 puts some between what ranks write
      fields.back() += c;
  return fields;
}

std::string without_tabs(std::string text) {
  for (char& c : text)
    if (c == '\t' || c == '\n') c = ' ';
  return text;
}

std::string conclusion(const Findings& findings) {
  const std::size_t fails = findings.count(Verdict::kFails), warnings = findings.count(Verdict::kWarning);
  if (fails > 0)
    return loom::format("loom will not run here: see {} marked \"fails\".", counted(fails, "line"));
  const bool is_off = std::ranges::any_of(findings.all(), [](const Finding& finding) {
    return finding.topic == kEnabledTopic && finding.verdict != Verdict::kFine;
  });
  std::string options = findings.options();
  if (is_off) options += options.empty() ? "--mca coll_loom_enable 1" : " --mca coll_loom_enable 1";
  if (!options.empty())
    return loom::format("{}: mpirun {} ./app",
                        is_off ? "loom would run here, but it is off" : "loom runs here with", options);
  if (warnings > 0)
    return loom::format("loom runs here. See {} marked \"warning\".", counted(warnings, "line"));
  return "loom runs here.";
}

}  // namespace

std::string listed(const std::vector<std::string>& names) {
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMostHosts)));
  const std::string text = loom::join(first, ", ");
  return names.size() > kMostHosts ? loom::format("{} and {} more", text, names.size() - kMostHosts) : text;
}

std::string text_of(const Findings& findings, const std::string& heading) {
  std::size_t widest = 0;
  for (const Finding& finding : findings.all()) widest = std::max(widest, finding.topic.size());
  std::string text = heading + "\n\n";
  for (const auto& [verdict, topic, what, cure] : findings.all()) {
    text += loom::format("  {:<7} {:<{}}  {}\n", name_of(verdict), topic, widest, what);
    if (!cure.empty()) text += loom::format("  {:<7} {:<{}}  -> {}\n", "", "", widest, cure);
  }
  return text + "\n" + conclusion(findings) + "\n";
}

std::string lines_of(const Findings& findings) {
  std::string lines;
  for (const auto& [verdict, topic, what, cure] : findings.all())
    lines +=
        loom::format("{}\t{}\t{}\t{}\n", name_of(verdict), topic, without_tabs(what), without_tabs(cure));
  return lines;
}

void add_lines(const std::string& lines, Findings& findings) {
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() != 4) continue;
    for (const Verdict verdict : {Verdict::kFine, Verdict::kWarning, Verdict::kFails})
      if (fields[0] == name_of(verdict)) findings.add({verdict, fields[1], fields[2], fields[3]});
  }
}

Findings merged(const std::vector<std::pair<std::string, Findings>>& by_host) {
  struct Said {
    Finding finding;
    std::vector<std::string> hosts;
  };
  std::vector<Said> all;
  for (const auto& [host, findings] : by_host)
    for (const Finding& finding : findings.all()) {
      const auto same = std::ranges::find(all, finding, &Said::finding);
      if (same != all.end())
        same->hosts.push_back(host);
      else
        all.push_back({finding, {host}});
    }
  // What is about one thing stands together, in the order in which it was first said.
  std::vector<std::string> topics;
  for (const Said& said : all)
    if (std::ranges::find(topics, said.finding.topic) == topics.end()) topics.push_back(said.finding.topic);
  Findings result;
  for (const std::string& topic : topics)
    for (const auto& [finding, hosts] : all) {
      if (finding.topic != topic) continue;
      Finding told = finding;
      if (hosts.size() < by_host.size()) told.what = loom::format("{}: {}", listed(hosts), told.what);
      result.add(told);
    }
  return result;
}

}  // namespace loom::tools
