#include "tools/doctor/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <sstream>

#include "base/format.hpp"
#include "component/core.h"
#include "component/mca/variables.h"
#include "tools/words.hpp"

namespace loom::tools {
namespace {

const std::string kPrefix = "coll_loom_";

bool is_about_loom(const std::string& name) {
  return name.find("loom") != std::string::npos;
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// Letters to add, to drop, to replace, or to exchange with the next.
std::size_t typing_errors(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(last, row);
  }
  return last[b.size()];
}

/// The variable that somebody may have meant; empty: none is near.
std::string meant_by(const std::string& name) {
  constexpr std::size_t kMostErrors = 2;
  std::string best;
  std::size_t least = kMostErrors + 1;
  for (const coll_loom_variable* row = coll_loom_variable_table; row->name != nullptr; ++row)
    for (const std::string& written : {kPrefix + row->name, std::string("loom_") + row->name})
      if (const std::size_t errors = typing_errors(name, written); errors < least) {
        least = errors;
        best = kPrefix + row->name;
      }
  return best;
}

const coll_loom_variable* variable_named(const std::string& name) {
  for (const coll_loom_variable* row = coll_loom_variable_table; row->name != nullptr; ++row)
    if (name == kPrefix + row->name) return row;
  return nullptr;
}

/// "0" of "0.000000".
std::string short_number(const std::string& text) {
  const auto number = parsed<double>(text);
  return number ? loom::format("{}", *number) : text;
}

/// What loom makes of a value that it does not take.
std::string ignored(const coll_loom_variable& variable, const std::string& text) {
  char part[256];
  if (variable.lists_collectives) {
    std::array<bool, LOOM_COLLECTIVE_COUNT> named;
    coll_loom_read_list(text.c_str(), named.data(), part, sizeof(part));
    return loom::format("names \"{}\", which is no collective; loom ignores it", part);
  }
  coll_loom_write_range(&variable, part, sizeof(part));
  std::string what = loom::format("is out of range ({}); loom takes ", part);
  coll_loom_write_default(&variable, part, sizeof(part));
  return what + part;
}

}  // namespace

std::vector<Setting> settings_of_loom(const std::vector<std::string>& files) {
  std::vector<Setting> all;
  const auto add = [&](Setting setting) {
    if (!is_about_loom(setting.name)) return;
    const auto before = std::ranges::find(all, setting.name, &Setting::name);
    if (before == all.end())
      all.push_back(std::move(setting));
    else if (before->where.empty() && before->text == setting.text)
      before->where = setting.where;  // from 5.0 on mpirun hands what files say to its ranks
  };
  const std::string prefix = "OMPI_MCA_";
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string set(*entry);
    const std::size_t end = set.find('=');
    if (set.starts_with(prefix) && end != std::string::npos)
      add({set.substr(prefix.size(), end - prefix.size()), set.substr(end + 1), ""});
  }
  for (const std::string& path : files) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const std::size_t end = line.find('=');
      const std::string name = trimmed(line.substr(0, end));
      if (!name.starts_with('#'))
        add({name, end == std::string::npos ? "" : trimmed(line.substr(end + 1)), path});
    }
  }
  return all;
}

std::vector<std::string> files_in(const std::string& list) {
  std::vector<std::string> files(1);
  for (const char c : list)
    if (c == ',' || c == ':')
      files.emplace_back();
    else
      files.back() += c;
  std::erase(files, "");
  return files;
}

std::vector<std::string> look_at_settings(
    const std::vector<Setting>& settings,
    const std::function<std::optional<std::string>(const std::string& name)>& taken, Findings& findings) {
  std::vector<std::string> not_as_written;
  for (const auto& [name, text, where] : settings) {
    const auto value = taken(name);
    if (!value) {
      const std::string meant = meant_by(name);
      findings.warn(
          "parameters",
          loom::format("{}, and loom has no such variable", where.empty()
                                                                ? loom::format("OMPI_MCA_{} is set", name)
                                                                : loom::format("{} sets {}", where, name)),
          meant.empty() ? "docs/parameters.md has the names" : loom::format("did you mean {}?", meant));
      continue;
    }
    const coll_loom_variable* const variable = variable_named(name);
    if (variable == nullptr) continue;
    const std::string setting =
        loom::format("{} = {} ({})", name, text, where.empty() ? "environment" : where);
    const bool is_read = coll_loom_reads_whole(variable, text.c_str());
    if (is_read && coll_loom_takes_text(variable, text.c_str())) continue;
    not_as_written.push_back(name);
    if (is_read) {
      findings.warn("parameters", loom::format("{} {}", setting, ignored(*variable, text)),
                    "correct it there; docs/parameters.md has what it takes");
      continue;
    }
    findings.warn("parameters",
                  loom::format("{} is not a number; Open MPI takes it as {}", setting, short_number(*value)),
                  variable->type == COLL_LOOM_SECONDS
                      ? "a number of seconds, such as 60 or 0.5"
                      : "a whole number; k, m or g behind it are KiB, MiB or GiB, such as 1536k");
  }
  return not_as_written;
}

}  // namespace loom::tools
