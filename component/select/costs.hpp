// costs.hpp -- how long does a call take by each algorithm? Predicted, in microseconds.
#pragma once

#include "component/select/algorithms.hpp"

namespace loom::costs {

double copy(const Conditions& conditions, device::Collective collective, std::size_t bytes);
double immediate(const Conditions& conditions, device::Collective collective, std::size_t bytes);
double tiered(const Conditions& conditions, device::Collective collective, std::size_t bytes);
double tiered_cico(const Conditions& conditions, device::Collective collective, std::size_t bytes);
double cico(const Conditions& conditions, device::Collective collective, std::size_t bytes);
double single_copy(const Conditions& conditions, device::Collective collective, std::size_t bytes);
double hier(const Conditions& conditions, device::Collective collective, std::size_t bytes);
double ring(const Conditions& conditions, device::Collective collective, std::size_t bytes);
double dbt(const Conditions& conditions, device::Collective collective, std::size_t bytes);
double pairwise(const Conditions& conditions, device::Collective collective, std::size_t bytes);
/// 0: of algorithms on GPUs. device::cuda::KernelWays predicts kernels once their channels are known.
double unmeasured(const Conditions& conditions, device::Collective collective, std::size_t bytes);
/// Of buffers on GPUs that are copied to the host and back, where the call takes on_host_us.
double staged(const Conditions& conditions, device::Collective collective, std::size_t bytes,
              double on_host_us);

}  // namespace loom::costs
