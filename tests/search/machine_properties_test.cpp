// machine_properties_test.cpp -- what holds on every machine, by RapidCheck: a machine is a list of choices,
// so what fails shrinks to a small one.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <map>

#include "charged_machine.hpp"
#include "search/graph_xml.hpp"
#include "search_cases.hpp"

namespace loom::search {
namespace {

/// The same machines in every run, unless RC_PARAMS asks for others ("seed=7 max_success=10000").
[[maybe_unused]] const int kSeeded = ::setenv("RC_PARAMS", "seed=20 max_success=300", 0);

constexpr int kMostGpus = 16;
constexpr std::int64_t kOneRound = 400'000;                      // what is begun is finished
constexpr double kFewDiffer = 1.0 / 100, kManyDiffer = 1.0 / 7;  // of what up to 10 GPUs get, and more

topo::System machine_of(const std::vector<unsigned>& choices, bool intel) {
  std::size_t next = 0;
  return machine_from([&] { return next < choices.size() ? choices[next++] : 0U; }, intel, kMostGpus);
}

/// Choices for machines with many GPUs too, which short lists do not give.
rc::Gen<std::vector<unsigned>> some_choices() {
  return rc::gen::resize(400, rc::gen::arbitrary<std::vector<unsigned>>());
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

/// As `loom search --json` prints it.
nlohmann::json printed(const topo::System& system, const Channel& channel) {
  std::vector<std::string> nets;
  for (const topo::NodeId net : channel.nets) nets.push_back(topo::label(system, net));
  return {{"gpus", channel.ranks},
          {"nets", nets},
          {"bandwidth_gbps", channel.inter_gbps},
          {"bandwidth_intra_gbps", channel.intra_gbps}};
}

/// What all parts take at the same time is there, charged by charged_machine.hpp, without the search.
void expect_room(const PathTables& tables, const NodePlans& plans) {
  ByName taken;
  for (std::size_t i = 0; i < plans.parts.size(); ++i) {
    const ChannelPlan& plan = plans.parts[i];
    if (plan.channels.empty() || plan.in_order) continue;
    const topo::System& system = part_of(tables, plans, i).system;
    const ChargedMachine machine(system, plans.ranks[i]);
    for (const Channel& channel : plan.channels)
      machine.add_taken(std::string(name_of(plan.pattern)), printed(system, channel), taken);
    RC_ASSERT(machine.overloaded(taken) == "");
  }
}

void expect_sound(const PathTables& tables, const NodePlans& plans, const Request& request) {
  const std::vector<std::string> found = violations(tables, plans);
  if (!found.empty()) RC_FAIL(found.front());
  for (const ChannelPlan& plan : plans.parts)
    RC_ASSERT(static_cast<int>(plan.channels.size()) <= request.max_channels);
  expect_room(tables, plans);
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

/// Both machines are one, listed in two ways: their plans carry the same but for this part, by `request`.
void expect_as_much(const topo::System& system, const topo::System& other, const Request& request,
                    double share) {
  // Which of several equal ways through other GPUs the field takes, and which GPU passes data on to a port,
  // depends on the order of GPUs.
  const bool other_paths = charges_by_name(system) != charges_by_name(other);
  RC_CLASSIFY(other_paths);
  if (other_paths) return;
  const NodePlans a = find_plans(system, request), b = find_plans(other, request);
  for (const NodePlans* plans : {&a, &b})
    for (const ChannelPlan& plan : plans->parts)
      RC_LOG() << loom::format("{} GPUs: {} channels, {:g} of {:g} GB/s, {} steps\n", system.gpus().size(),
                               plan.channels.size(), plan.total_gbps, plan.bound_gbps, plan.steps);
  RC_ASSERT(a.parts.size() == b.parts.size());
  RC_ASSERT(a.total_gbps <= b.total_gbps * (1 + share));
  RC_ASSERT(b.total_gbps <= a.total_gbps * (1 + share));
}

RC_GTEST_PROP(AnyMachine, GetsAsMuchWhateverItsGpusAreCalled, (bool intel, unsigned order)) {
  const topo::System system = machine_of(*some_choices(), intel), other = renumbered(system, order);
  Request request;
  request.nodes = *rc::gen::inRange(1, 3);
  request.max_channels = 1000;
  request.max_steps = 300'000'000;
  expect_as_much(system, other, request, 1e-4);
}

/// Where steps or channels end before the search does, as docs/search.md says.
RC_GTEST_PROP(AnyMachine, GetsNearlyAsMuchWithinTheSteps, (bool intel, unsigned order)) {
  const topo::System system = machine_of(*some_choices(), intel), other = renumbered(system, order);
  Request request;
  request.nodes = *rc::gen::inRange(1, 3);
  request.max_channels = 64;
  expect_as_much(system, other, request, system.gpus().size() <= 10 ? kFewDiffer : kManyDiffer);
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

/// A mesh on which the steps ended amid the choice of few channels.
TEST(FourteenGpus, LoseNoChannelsWhereStepsEnd) {
  const std::vector<unsigned> choices = {1391, 2127, 757,  1631, 667,  2079, 670,  1605, 2175, 1804,
                                         1653, 2418, 1047, 77,   1207, 2255, 2365, 1050, 1575, 287,
                                         1314, 2334, 1364, 1695, 0,    2382, 1945, 519,  1631, 2391,
                                         1370, 595,  1045, 1647, 839,  363,  1021, 807,  886,  1031};
  const topo::System system = machine_of(choices, true), other = renumbered(system, 291);
  ASSERT_EQ(system.gpus().size(), 14U);
  Request request;
  request.max_channels = 64;
  EXPECT_GT(find_plans(system, request).total_gbps, 140);
  EXPECT_GT(find_plans(other, request).total_gbps, 135);
}

}  // namespace
}  // namespace loom::search
