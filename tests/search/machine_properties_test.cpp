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

constexpr int kMostGpus = 16;
constexpr std::int64_t kOneRound = 4'000'000;  // what is begun is finished

topo::System machine_of(const std::vector<unsigned>& choices, bool intel) {
  std::size_t next = 0;
  return machine_from([&] { return next < choices.size() ? choices[next++] : 0U; }, intel, kMostGpus);
}

/// Choices for machines with many GPUs too, which short lists do not give.
rc::Gen<std::vector<unsigned>> some_choices() {
  return rc::gen::resize(400, rc::gen::arbitrary<std::vector<unsigned>>());
}

/// Some path leads through another GPU. Which one of several equal ones the field takes depends on their
/// order.
bool has_detours(const topo::System& system) {
  const topo::Paths paths(system, whole_rules());
  const HopTable table(paths, true, false, false);
  for (int gpu = 0; gpu < table.gpus(); ++gpu)
    for (int end = 0; end < table.ends(); ++end)
      if (const auto type = table.hop(gpu, end).type;
          type == topo::PathType::kNvb || type == topo::PathType::kPxn)
        return true;
  return false;
}

/// Of any pattern; few GPUs with exact orders, so that local search is what is tried.
Request some_request() {
  Request request;
  request.pattern = kAllPatterns[*rc::gen::inRange<std::size_t>(0, std::size(kAllPatterns))];
  request.nodes = *rc::gen::inRange(1, 3);
  request.cross_nic = *rc::gen::inRange(0, 3);
  request.exact_gpus = *rc::gen::inRange(2, 11);
  return request;
}

void expect_sound(const PathTables& tables, const NodePlans& plans, const Request& request) {
  const std::vector<std::string> found = violations(tables, plans);
  if (!found.empty()) RC_FAIL(found.front());
  for (const ChannelPlan& plan : plans.parts)
    RC_ASSERT(static_cast<int>(plan.channels.size()) <= request.max_channels);
}

RC_GTEST_PROP(AnyMachine, HasValidPlansOfEveryPattern, (bool intel)) {
  const topo::System system = machine_of(*some_choices(), intel);
  Request request = some_request();
  request.max_channels = *rc::gen::inRange(1, 33);
  const PathTables tables(system);
  expect_sound(tables, find_plans(tables, request), request);
}

/// Whether parts are faster than the whole or not.
RC_GTEST_PROP(AnyMachine, HasValidPlansOfItsParts, (std::vector<unsigned> choices)) {
  std::size_t next = 0;
  const PathTables tables(
      machine_in_parts_from([&] { return next < choices.size() ? choices[next++] : 0U; }));
  Request request = some_request();
  request.max_channels = *rc::gen::inRange(1, 33);
  const NodePlans plans = plan_parts(tables, request);
  RC_CLASSIFY(!plans.parts.empty() && plans.parts[0].proof.together);
  expect_sound(tables, plans, request);
}

RC_GTEST_PROP(AnyMachine, IsNeverBelowTheSimpleOrder, (bool intel)) {
  const topo::System system = machine_of(*some_choices(), intel);
  const topo::Paths paths(system, whole_rules());
  Request request;
  request.exact_gpus = *rc::gen::inRange(2, 11);
  const ChannelPlan plan = find_channels(paths, request);
  RC_ASSERT(!plan.in_order);
  RC_ASSERT(plan.total_gbps >= simple_order_gbps(paths) * (1 - 1e-6));
}

RC_GTEST_PROP(AnyMachine, GetsAsMuchWhateverItsGpusAreCalled, (bool intel, unsigned order)) {
  const topo::System system = machine_of(*some_choices(), intel), other = renumbered(system, order);
  Request request;
  request.nodes = *rc::gen::inRange(1, 3);
  request.max_channels = 64;
  RC_CLASSIFY(has_detours(system));
  if (has_detours(system)) return;
  const NodePlans a = find_plans(system, request), b = find_plans(other, request);
  RC_ASSERT(a.parts.size() == b.parts.size());
  // Of more GPUs the steps decide how near the bound a search comes.
  const double share = system.gpus().size() <= 10 ? 1e-4 : 0.05;
  RC_ASSERT(a.total_gbps <= b.total_gbps * (1 + share) && b.total_gbps <= a.total_gbps * (1 + share));
}

RC_GTEST_PROP(AnyMachine, IsSearchedWithinTheSteps, (bool intel)) {
  const topo::System system = machine_of(*some_choices(), intel);
  Request request = some_request();
  request.max_steps = *rc::gen::inRange<std::int64_t>(1, 2'000'000);
  const PathTables tables(system);
  const NodePlans plans = find_plans(tables, request);
  expect_sound(tables, plans, request);
  std::int64_t steps = 0;
  for (const ChannelPlan& plan : plans.parts) steps += plan.steps;
  RC_ASSERT(steps <= request.max_steps + kOneRound);
}

}  // namespace
}  // namespace loom::search
