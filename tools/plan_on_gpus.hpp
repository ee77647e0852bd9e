// plan_on_gpus.hpp -- `loom plan --memory device` as text and JSON: what carries calls whose buffers lie on
// GPUs.
#pragma once

#include <vector>

#include "component/select/gpu_plan.hpp"

namespace loom::tools {

struct GpuRow {
  device::Collective collective;
  std::size_t whole;  ///< bytes of the message, all blocks together
  GpuCall call;
};

void print(const GpuPlan& plan, const Conditions& conditions, const std::vector<GpuRow>& rows);
/// The fields of docs/algorithms.md.
void print_json(const GpuPlan& plan, const Conditions& conditions, const std::vector<GpuRow>& rows);

}  // namespace loom::tools
