#include "ucx_transport/transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "device/step_flag.hpp"

namespace loom::ucx_transport {
namespace {

Error unreachable(const std::string& what, ucs_status_t status) {
  return Error(ErrorCode::kUnreachable, fmt::format("{}: {}.", what, ucs_status_string(status)));
}

void on_put_complete(void* request, ucs_status_t status, void* user_data) {
  auto& tracker = *static_cast<PutTracker*>(user_data);
  if (status != UCS_OK) tracker.error = status;
  ucp_request_free(request);
  --tracker.outstanding;
}

void on_endpoint_error(void* argument, ucp_ep_h, ucs_status_t status) {
  static_cast<std::atomic<ucs_status_t>*>(argument)->store(status, std::memory_order_relaxed);
}

}  // namespace

void Endpoint::check() const {
  if (const ucs_status_t error = error_.load(std::memory_order_relaxed); error != UCS_OK)
    throw Error(ErrorCode::kPeerFailed,
                fmt::format("The connection to {} is broken: {}.", peer_, ucs_status_string(error)));
}

Region::Region(Transport& transport, std::size_t bytes) : transport_(transport), bytes_(bytes) {
  const std::size_t lines = (bytes + device::kCacheLine - 1) / device::kCacheLine;
  data_ = static_cast<std::byte*>(std::aligned_alloc(device::kCacheLine, lines * device::kCacheLine));
  if (data_ == nullptr) throw system_error(fmt::format("Allocating {} bytes for network slots failed", bytes), ENOMEM);
  std::memset(data_, 0, bytes);
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = data_;
  params.length = bytes;
  const std::lock_guard lock(transport_.mutex_);
  if (const ucs_status_t status = ucp_mem_map(transport_.context_, &params, &handle_); status != UCS_OK) {
    std::free(data_);
    throw unreachable(fmt::format("UCX could not register {} bytes", bytes), status);
  }
}

Region::~Region() {
  const std::lock_guard lock(transport_.mutex_);
  ucp_mem_unmap(transport_.context_, handle_);
  std::free(data_);
}

Bytes Region::packed_key() const {
  const std::lock_guard lock(transport_.mutex_);
  void* buffer = nullptr;
  std::size_t bytes = 0;
  if (const ucs_status_t status = ucp_rkey_pack(transport_.context_, handle_, &buffer, &bytes); status != UCS_OK)
    throw unreachable("UCX could not pack a remote key", status);
  Bytes key(static_cast<std::byte*>(buffer), static_cast<std::byte*>(buffer) + bytes);
  ucp_rkey_buffer_release(buffer);
  return key;
}

RemoteRegion::RemoteRegion(Transport& transport, std::shared_ptr<Endpoint> endpoint, std::uint64_t address,
                           const Bytes& key)
    : transport_(transport), endpoint_(std::move(endpoint)), address_(address) {
  const std::lock_guard lock(transport_.mutex_);
  if (const ucs_status_t status = ucp_ep_rkey_unpack(endpoint_->ep_, key.data(), &key_); status != UCS_OK)
    throw unreachable(fmt::format("UCX could not unpack the remote key of {}", endpoint_->peer_), status);
}

RemoteRegion::~RemoteRegion() {
  const std::lock_guard lock(transport_.mutex_);
  ucp_rkey_destroy(key_);
}

Transport::Transport() {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_RMA;
  params.name = "loom";
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) throw unreachable("UCX could not read its settings (UCX_* in the environment)", status);
  status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK) throw unreachable("UCX could not start (see UCX_TLS and UCX_NET_DEVICES)", status);

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // mutex_ serializes
  status = ucp_worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) {
    ucp_cleanup(context_);
    throw unreachable("UCX could not create a worker", status);
  }
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  status = ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) {
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
    throw unreachable("UCX has no address for its worker", status);
  }
  const auto* first = reinterpret_cast<const std::byte*>(address);
  address_.assign(first, first + bytes);
  ucp_worker_release_address(worker_, address);
}

Transport::~Transport() {
  {
    const std::lock_guard lock(mutex_);
    // Forced closing completes every outstanding write, with an error, before the worker goes.
    std::vector<void*> closing;
    for (auto& [address, endpoint] : endpoints_) {
      ucp_request_param_t param{};
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
      void* request = ucp_ep_close_nbx(endpoint->ep_, &param);
      if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
    }
    for (void* request : closing) {
      while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker_);
      ucp_request_free(request);
    }
    // Their keys lie in the worker's memory, but the worker's end completes what it has not sent: they must outlive it.
    for (const auto& retiring : retired_) retiring->disconnect();
    ucp_worker_destroy(worker_);
    retired_.clear();
  }
  ucp_cleanup(context_);
}

std::shared_ptr<Endpoint> Transport::connect(const Bytes& address, const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const std::string key(reinterpret_cast<const char*>(address.data()), address.size());
  if (const auto known = endpoints_.find(key); known != endpoints_.end()) return known->second;
  auto endpoint = std::make_shared<Endpoint>(peer);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_endpoint_error, &endpoint->error_};
  if (const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint->ep_); status != UCS_OK)
    throw unreachable(fmt::format("UCX finds no transport to {} (see UCX_TLS and UCX_NET_DEVICES)", peer), status);
  endpoints_.emplace(key, endpoint);
  return endpoint;
}

void Transport::put(const RemoteRegion& to, const void* data, std::size_t bytes, std::size_t offset,
                    PutTracker& tracker) {
  const std::lock_guard lock(mutex_);
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = on_put_complete;
  param.user_data = &tracker;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  to.endpoint_->check();
  ++tracker.outstanding;
  const ucs_status_ptr_t request =
      ucp_put_nbx(to.endpoint_->ep_, data, bytes, to.address_ + offset, to.key_, &param);
  bytes_sent_.fetch_add(bytes, std::memory_order_relaxed);
  if (UCS_PTR_IS_PTR(request)) return;  // on_put_complete will count it
  --tracker.outstanding;
  if (UCS_PTR_IS_ERR(request))
    throw Error(ErrorCode::kPeerFailed, fmt::format("Writing to {} failed: {}.", to.endpoint_->peer_,
                                                    ucs_status_string(UCS_PTR_STATUS(request))));
}

void Transport::order() {
  const std::lock_guard lock(mutex_);
  if (const ucs_status_t status = ucp_worker_fence(worker_); status != UCS_OK)
    throw Error(ErrorCode::kInternal, fmt::format("ucp_worker_fence failed: {}.", ucs_status_string(status)));
}

unsigned Transport::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return 0;
  const unsigned events = ucp_worker_progress(worker_);
  if (!retired_.empty()) std::erase_if(retired_, [](const auto& retiring) { return retiring->quiet(); });
  return events;
}

void Transport::retire(std::unique_ptr<Retiring> retiring) {
  const std::lock_guard lock(mutex_);
  if (!retiring->quiet()) retired_.push_back(std::move(retiring));
}

}  // namespace loom::ucx_transport
