// plan_on_gpus.hpp -- `loom plan --memory device` as text and JSON: what carries calls whose buffers lie on
// GPUs.
#pragma once

#include <vector>

#include "component/select/gpu_plan.hpp"

namespace loom::tools {

/// Whether all ranks know how long such a call is; where not, nothing depends on it.
bool is_known_to_all(device::Collective collective);
/// "64K"; "any" where not all know it.
std::string size_text(device::Collective collective, std::size_t whole);

struct GpuRow {
  device::Collective collective;
  std::size_t whole;  ///< bytes of the message, all blocks together
  GpuCall call;
};

void print(const GpuPlan& plan, const Conditions& conditions, const std::vector<GpuRow>& rows);
/// The fields of docs/algorithms.md.
void print_json(const GpuPlan& plan, const Conditions& conditions, const std::vector<GpuRow>& rows);

}  // namespace loom::tools
