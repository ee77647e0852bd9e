#include "tools/plan_on_gpus.hpp"

#include <nlohmann/json.hpp>
#include <string>

#include "base/format.hpp"
#include "tools/connect_views.hpp"
#include "tools/options.hpp"
#include "tools/words.hpp"

namespace loom::tools {
bool is_known_to_all(device::Collective collective) {
  return !device::lists_blocks(collective) || collective == device::Collective::kAllGatherV;
}

std::string size_text(device::Collective collective, std::size_t whole) {
  return is_known_to_all(collective) ? bytes_text(whole) : "any";
}

namespace {

std::string us_text(const std::optional<double>& us) {
  return us ? loom::format("{:.1f}", *us) : "-";
}

/// By what a call goes: a kernel's links, or the algorithm that carries staged copies.
std::string way_text(const GpuCall& call) {
  if (call.kernel) return text_of(call.kernel->way);
  return call.algorithm == Algorithm::kStaged ? loom::format("then {}", name_of(call.on_host))
                                              : "buffers of all ranks";
}

std::string runner_up_text(const std::optional<RunnerUp>& other) {
  return other ? loom::format("{} {:.1f} us", other->by, other->us) : "-";
}

/// Not those of one host where calls are between several.
const connect::GpuChannels* channels_of(const GpuPlan& plan, const Conditions& conditions) {
  const connect::GpuChannels* channels = plan.channels();
  const bool are_theirs = channels != nullptr && channels->hosts == conditions.shape.hosts;
  return are_theirs ? channels : nullptr;
}

nlohmann::json to_json(const std::optional<double>& us) {
  return us ? nlohmann::json(*us) : nlohmann::json();
}

nlohmann::json to_json(const TimedWay& way) {
  return {{"links", links_name(way.way)},
          {"protocol", protocol_name(way.way)},
          {"channels", way.way.channels},
          {"predicted_us", way.us}};
}

nlohmann::json to_json(const GpuRow& row) {
  const GpuCall& call = row.call;
  nlohmann::json one = {
      {"collective", name_of(row.collective)},
      {"bytes", row.whole},
      {"algorithm", name_of(call.algorithm)},
      {"staged", {{"algorithm", name_of(call.on_host)}, {"predicted_us", to_json(call.staged_us)}}},
      {"probes_staging", call.probes},
      {"why", call.why}};
  if (call.kernel) one["kernel"] = to_json(*call.kernel);
  if (call.algorithm != Algorithm::kStaged) one["predicted_us"] = call.us;
  if (call.runner_up) one["runner_up"] = {{"by", call.runner_up->by}, {"predicted_us", call.runner_up->us}};
  return one;
}

}  // namespace

void print(const GpuPlan& plan, const Conditions& conditions, const std::vector<GpuRow>& rows) {
  if (const connect::GpuChannels* channels = channels_of(plan, conditions)) {
    tell(channels->notes);
    loom::print("{}\n", channels->summary);
    loom::print("kernels {}\n",
                conditions.shape.hosts > 1 ? "go by Simple alone: some links lead to other hosts"
                : plan.may_ll128()         ? "may use LL128: NVLink joins the GPUs"
                                           : "do without LL128: NVLink does not join the GPUs of all ranks");
  }
  loom::print("offline, in no prediction: multicast (NVLS), NVLink between hosts\n");
  static constexpr char kRow[] = "{:<21}{:>8}  {:<12}{:<32}{:>12}  {:<30}{:>10}  {}\n";
  loom::print(kRow, "collective", "bytes", "algorithm", "by", "predicted us", "runner-up", "staged us",
              "why");
  for (const GpuRow& row : rows) {
    const GpuCall& call = row.call;
    const std::string us =
        us_text(call.algorithm == Algorithm::kStaged ? call.staged_us : std::optional(call.us));
    loom::print(kRow, name_of(row.collective), size_text(row.collective, row.whole), name_of(call.algorithm),
                way_text(call), is_known_to_all(row.collective) ? us : "-", runner_up_text(call.runner_up),
                us_text(call.staged_us), call.why);
  }
}

void print_json(const GpuPlan& plan, const Conditions& conditions, const std::vector<GpuRow>& rows) {
  nlohmann::json all = {{"memory", "device"},
                        {"ranks", conditions.shape.ranks},
                        {"hosts", conditions.shape.hosts},
                        {"ranks_per_host", conditions.shape.ranks_per_host},
                        {"ll128", plan.may_ll128()},
                        {"offline", {"multicast", "NVLink between hosts"}},
                        {"decisions", nlohmann::json::array()}};
  if (const connect::GpuChannels* channels = channels_of(plan, conditions)) {
    all["notes"] = channels->notes;
    all["channels"] = channels->summary;
    if (channels->all_gather.rings > 0) all["all_gather_gbps"] = to_json(channels->all_gather);
  }
  for (const GpuRow& row : rows) all["decisions"].push_back(to_json(row));
  loom::print("{}\n", all.dump(2));
}

}  // namespace loom::tools
