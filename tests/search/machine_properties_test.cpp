// machine_properties_test.cpp -- what holds on every machine, by RapidCheck: a machine is a list of choices,
// so what fails shrinks to a small one.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>

#include "search_cases.hpp"

namespace loom::search {
namespace {

/// The same machines in every run, unless RC_PARAMS asks for others ("seed=7 max_success=10000").
[[maybe_unused]] const int kSeeded = ::setenv("RC_PARAMS", "seed=20 max_success=300", 0);

topo::System machine_of(const std::vector<unsigned>& choices, bool intel) {
  std::size_t next = 0;
  return machine_from([&] { return next < choices.size() ? choices[next++] : 0U; }, intel);
}

RC_GTEST_PROP(AnyMachine, HasValidPlansOfEveryPattern, (const std::vector<unsigned>& choices, bool intel)) {
  const topo::System system = machine_of(choices, intel);
  Request request;
  request.pattern = kAllPatterns[*rc::gen::inRange<std::size_t>(0, std::size(kAllPatterns))];
  request.nodes = *rc::gen::inRange(1, 3);
  request.max_channels = *rc::gen::inRange(1, 33);
  const NodePlans plans = find_plans(system, request);
  for (std::size_t i = 0; i < plans.parts.size(); ++i) {
    const topo::System part = topo::trimmed_to(system, plans.ranks[i]);
    RC_ASSERT(violations(topo::Paths(part, whole_rules()), plans.parts[i]).empty());
    RC_ASSERT(static_cast<int>(plans.parts[i].channels.size()) <= request.max_channels);
  }
}

RC_GTEST_PROP(AnyMachine, IsNeverBelowTheSimpleOrder, (const std::vector<unsigned>& choices, bool intel)) {
  const topo::System system = machine_of(choices, intel);
  const topo::Paths paths(system, whole_rules());
  const ChannelPlan plan = find_channels(paths, {});
  RC_ASSERT(!plan.in_order);
  RC_ASSERT(plan.total_gbps >= simple_order_gbps(paths) * (1 - 1e-6));
}

RC_GTEST_PROP(AnyMachine, GetsAsMuchWhateverItsGpusAreCalled,
              (const std::vector<unsigned>& choices, bool intel, unsigned order)) {
  const topo::System system = machine_of(choices, intel), other = renumbered(system, order);
  Request request;
  request.max_channels = 64;
  const double a = find_channels(topo::Paths(system, whole_rules()), request).total_gbps;
  const double b = find_channels(topo::Paths(other, whole_rules()), request).total_gbps;
  RC_ASSERT(a <= b * (1 + 1e-4) && b <= a * (1 + 1e-4));
}

}  // namespace
}  // namespace loom::search
