// fuzz_xml.cpp -- any bytes as a topology file: they give a sound System or an Error, never a crash.
// LOOM_FUZZ_DIALECT says which reader; see CONTRIBUTING.md for running it. Without libFuzzer replay.cpp runs
// it over files.
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "tests/must.hpp"
#include "topo/check.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/nccl_xml.hpp"
#include "topo/paths.hpp"

namespace {

using namespace loom;
using namespace loom::topo;

/// NCCL's XML has no virtual GPUs, and NCCL passes over GPUs without a rank.
bool nccl_has_words_for(const System& system) {
  for (const NodeId id : system.of_kind(NodeKind::kGpu)) {
    const GpuInfo& gpu = system.node(id).gpu();
    if (gpu.is_virtual || (gpu.rank == kNoRank && system.model() == Model::kNccl)) return false;
  }
  return true;
}

void read(const std::string& text, Model model) {
  const System system = LOOM_FUZZ_DIALECT(text, "input", model).system;
  must(check(system).empty(), "a reader made a broken System");
  must(parse_system(to_hwloc_xml(system), "hwloc", model).system == system, "hwloc's XML loses something");
  if (nccl_has_words_for(system))
    must(parse_system(to_nccl_xml(system), "nccl", model).system == system, "NCCL's XML loses something");
  if (system.size() > 100) return;  // more would only be slow
  const Paths paths(system);
  domains_of(paths);
  for (const NodeId from : system.gpus())
    for (const NodeId to : system.gpus())
      must(paths.route(from, to).size() <= 2 * static_cast<std::size_t>(system.size()), "a route has a loop");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const Model model : {Model::kLoom, Model::kNccl}) {
    try {
      read(text, model);
    } catch (const Error& error) {
      must(error.code() == ErrorCode::kBadInput, error.what());
    }
  }
  return 0;
}
