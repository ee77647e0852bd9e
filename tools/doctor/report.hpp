// report.hpp -- findings as text: for people, and for another process of loom doctor.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/finding.hpp"

namespace loom::tools {

/// "a, b, c, d and 12 more"
std::string listed(const std::vector<std::string>& names);

/// A line each: verdict, topic and what, and below it the cure. Ends with a line that says whether loom runs.
std::string text_of(const Findings& findings, const std::string& heading);
/// "verdict<TAB>topic<TAB>what<TAB>cure", a line each.
std::string lines_of(const Findings& findings);
/// Adds what lines_of() has written; other lines are left out.
void add_lines(const std::string& lines, Findings& findings);

/// Findings of several hosts as those of one job: what all hosts say alike is one line, else each names its
/// hosts. by_host: a host's name and findings.
Findings merged(const std::vector<std::pair<std::string, Findings>>& by_host);

}  // namespace loom::tools
