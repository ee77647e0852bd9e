#include "ucx_transport/memory_types.hpp"

#include <ucp/api/ucp.h>

namespace loom::ucx_transport {

bool open_mpi_moves_cuda_memory() noexcept {
  ucp_config_t* config = nullptr;
  if (ucp_config_read("MPI", nullptr, &config) != UCS_OK) return false;
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG;
  ucp_context_h context = nullptr;
  const ucs_status_t status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  if (status != UCS_OK) return false;
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  const bool moves = ucp_context_query(context, &attributes) == UCS_OK &&
                     (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
  ucp_cleanup(context);
  return moves;
}

}  // namespace loom::ucx_transport
