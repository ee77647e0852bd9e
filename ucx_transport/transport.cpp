#include "ucx_transport/transport.hpp"

#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/random_word.hpp"
#include "device/cuda/gpu.hpp"
#include "device/link/step_flag.hpp"
#include "ucx_transport/ports.hpp"
#include "ucx_transport/resources.hpp"

namespace loom::ucx_transport {
namespace {

/// UCX's number for loom's messages. The worker is loom's own: there are no others.
constexpr unsigned kMessageId = 0;

struct MessageHeader {
  InboxId inbox;
  Word word;
};

/// A message that UCX has not completed.
struct Pending {
  MessageHeader header;
  std::shared_ptr<Outbox> outbox;
  bool is_for_a_live_peer;
};

/// A message whose data are being fetched. Its place lives until they are, whatever becomes of the inbox.
struct Fetched {
  Transport& transport;
  InboxId inbox;
  Word word;
  Place place;
};

ucs_memory_type_t memory_type(bool on_gpu) {
  return on_gpu ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

Error unreachable(const std::string& what, ucs_status_t status) {
  return Error(ErrorCode::kUnreachable, loom::format("{}: {}.", what, ucs_status_string(status)));
}

void on_endpoint_error(void* argument, ucp_ep_h, ucs_status_t status) {
  static_cast<std::atomic<ucs_status_t>*>(argument)->store(status, std::memory_order_release);
}

/// From what UCX prints of an endpoint: UCX 1.13 has no other way to ask which transport it took.
///   #   lane[0]:  1:tcp/eth0.0 md[1]   -> ...
std::string way_of(ucp_ep_h endpoint) {
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* const stream = ::open_memstream(&text, &bytes);
  if (stream == nullptr) return "UCX";
  ucp_ep_print_info(endpoint, stream);
  std::fclose(stream);
  const std::string printed(text, bytes);
  std::free(text);
  std::size_t first = printed.find("lane[0]:");
  if (first != std::string::npos) first = printed.find(':', first + std::strlen("lane[0]:"));
  const std::size_t end = first == std::string::npos ? first : printed.find_first_of(". ", ++first);
  return end == std::string::npos ? "UCX" : printed.substr(first, end - first);
}

/// Whether a transport may lack remote reads: UCX would emulate them by more messages. Also where UCX does
/// not say which transport it is.
bool is_emulated_over(const std::string& way) {
  return way.starts_with("tcp") || way.starts_with("ud_") || way == "UCX";
}

void append(Bytes& bytes, const void* data, std::size_t size) {
  const auto* first = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), first, first + size);
}

/// For each rail: the length of its worker's address, then the address.
std::vector<std::span<const std::byte>> worker_addresses(std::span<const std::byte> address) {
  std::vector<std::span<const std::byte>> all;
  while (!address.empty()) {
    std::size_t bytes = 0;
    if (address.size() >= sizeof(bytes)) std::memcpy(&bytes, address.data(), sizeof(bytes));
    if (bytes == 0 || bytes > address.size() - sizeof(bytes))
      throw Error(ErrorCode::kInternal, "A peer's UCX address is cut off.");
    all.push_back(address.subspan(sizeof(bytes), bytes));
    address = address.subspan(sizeof(bytes) + bytes);
  }
  return all;
}

}  // namespace

bool is_of_this_process(ucs_status_t status) noexcept {
  return status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE;
}

// Not from the heap: between its blocks, which come and go with communicators, it would keep most of them.
Slots allocate_slots(std::size_t bytes) {
  const std::size_t mapped = std::max<std::size_t>(bytes, 1);
  void* const slots = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (slots == MAP_FAILED)
    throw system_error(loom::format("Allocating {} bytes for network slots failed", bytes), errno);
  return Slots(static_cast<std::byte*>(slots), [mapped](std::byte* memory) { ::munmap(memory, mapped); });
}

std::size_t rails_of(const Bytes& address) {
  return worker_addresses(address).size();
}

/// Under the lock, around what UCX may do with memory of GPUs. `used` is declared before the lock: what goes
/// with the last one who has a GPU waits for the program's kernels, which may wait for messages.
class Transport::InContext {
 public:
  InContext(const std::weak_ptr<device::cuda::Gpu>& gpu, std::shared_ptr<device::cuda::Gpu>& used) {
    used = gpu.lock();
    if (used && used->is_alive()) context_.emplace(used->driver(), used->owner());
  }

 private:
  std::optional<device::cuda::Driver::CurrentContext> context_;
};

/// One of UCX's workers, with the devices that it may use.
struct Transport::Rail {
  Rail(Transport& transport, const std::string& net_devices, bool can_sleep);
  ~Rail();
  Rail(const Rail&) = delete;
  Rail& operator=(const Rail&) = delete;

  void open_worker(bool can_sleep);

  Transport& transport;
  const std::string net_devices;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  Bytes address;
  int event_fd = -1;  ///< -1: it has none
};

Transport::Rail::Rail(Transport& owner, const std::string& devices, bool can_sleep)
    : transport(owner), net_devices(devices) {
  require(kNeedsOfWorker);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | (can_sleep ? UCP_FEATURE_WAKEUP : 0);
  params.name = "loom";
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK)
    throw unreachable("UCX could not read its settings (UCX_* in the environment)", status);
  if (!devices.empty()) status = ucp_config_modify(config, "NET_DEVICES", devices.c_str());
  if (status == UCS_OK) status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  if (status != UCS_OK)
    throw unreachable("UCX could not start (see UCX_TLS, UCX_NET_DEVICES and coll_loom_net_devices)", status);
  try {
    open_worker(can_sleep);
  } catch (...) {
    if (worker != nullptr) ucp_worker_destroy(worker);
    ucp_cleanup(context);
    throw;
  }
}

void Transport::Rail::open_worker(bool can_sleep) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // mutex_ serializes
  ucs_status_t status = ucp_worker_create(context, &params, &worker);
  if (status != UCS_OK) throw unreachable("UCX could not create a worker", status);

  if (can_sleep && ucp_worker_get_efd(worker, &event_fd) != UCS_OK) event_fd = -1;

  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = on_message;
  handler.arg = this;
  status = ucp_worker_set_am_recv_handler(worker, &handler);
  if (status != UCS_OK) throw unreachable("UCX could not set up active messages", status);

  ucp_address_t* own = nullptr;
  std::size_t bytes = 0;
  status = ucp_worker_get_address(worker, &own, &bytes);
  if (status != UCS_OK) throw unreachable("UCX has no address for its worker", status);
  append(address, &bytes, sizeof(bytes));
  append(address, own, bytes);
  ucp_worker_release_address(worker, own);
}

Transport::Rail::~Rail() {
  ucp_worker_destroy(worker);
  ucp_cleanup(context);
}

Transport::Transport(const TransportOptions& options)
    : can_sleep_(options.can_sleep), rendezvous_(options.rendezvous) {
  // A list of devices to leave out (^) stays one rail: UCX may use all the others.
  std::vector<std::string> listed = listed_devices(options.net_devices);
  if (listed.empty() || options.net_devices.starts_with('^')) listed = {options.net_devices};
  for (const std::string& devices : listed) {
    const Bytes& address =
        rails_.emplace_back(std::make_unique<Rail>(*this, devices, options.can_sleep))->address;
    append(address_, address.data(), address.size());
  }
  opened_with_ = rails_.size();
}

Transport::~Transport() {
  std::shared_ptr<device::cuda::Gpu> used;
  const MutexLock lock(mutex_);
  const InContext in_context(gpu_, used);
  flush();
  for (auto& [address, endpoint] : endpoints_) close(*endpoint);
  for (const auto& endpoint : broken_) close(*endpoint);
  rails_.clear();
}

/// What peers may still need of a program's last calls: closing by force may discard it.
void Transport::flush() noexcept {
  constexpr std::chrono::milliseconds kMostTime{200};
  std::vector<void*> requests;
  for (const auto& [address, endpoint] : endpoints_)
    for (const Endpoint::Pair& pair : endpoint->eps_) {
      // One that has sent nothing may still wait for a peer that is not there any more.
      if (endpoint->status() != UCS_OK || !endpoint->has_sent_) continue;
      const ucp_request_param_t param{};
      void* const request = ucp_ep_flush_nbx(pair.ep, &param);
      if (!UCS_PTR_IS_PTR(request)) continue;
      try {
        requests.push_back(request);
      } catch (const std::bad_alloc&) {
        ucp_request_free(request);
      }
    }
  const auto until = std::chrono::steady_clock::now() + kMostTime;
  const auto is_done = [](void* request) { return ucp_request_check_status(request) != UCS_INPROGRESS; };
  while (!std::ranges::all_of(requests, is_done) && std::chrono::steady_clock::now() < until)
    for (const auto& rail : rails_) ucp_worker_progress(rail->worker);
  for (void* const request : requests) ucp_request_free(request);  // once it has ended, where it has not
}

/// By force, which completes everything outstanding with an error.
void Transport::close(Endpoint& endpoint) noexcept {
  for (const auto& [worker, ep] : endpoint.eps_) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* const request = ucp_ep_close_nbx(ep, &param);
    if (!UCS_PTR_IS_PTR(request)) continue;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker);
    ucp_request_free(request);
  }
}

/// Of processes that have gone, for the most part. Those that links still use are closed later.
void Transport::forget_broken_endpoints() {
  for (auto known = endpoints_.begin(); known != endpoints_.end();) {
    const bool is_broken = known->second->status() != UCS_OK;
    if (is_broken) broken_.push_back(known->second);
    known = is_broken ? endpoints_.erase(known) : std::next(known);
  }
  std::erase_if(broken_, [this](const auto& endpoint) {
    const bool forgets = endpoint.use_count() == 1;
    if (forgets) close(*endpoint);
    return forgets;
  });
}

RailId Transport::rail_over(const std::string& device) {
  const MutexLock lock(mutex_);
  const auto known = std::ranges::find(rails_, device, [](const auto& rail) { return rail->net_devices; });
  if (known != rails_.end()) return static_cast<RailId>(known - rails_.begin());
  rails_.push_back(std::make_unique<Rail>(*this, device, can_sleep_));
  return static_cast<RailId>(rails_.size() - 1);
}

const Bytes& Transport::address_of(RailId rail) const {
  const MutexLock lock(mutex_);
  return rail == kAllRails ? address_ : rails_.at(static_cast<std::size_t>(rail))->address;
}

bool Transport::takes_gpu_memory(RailId rail) const {
  const MutexLock lock(mutex_);
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return std::ranges::all_of(rails(rail), [&](const std::unique_ptr<Rail>& each) {
    return ucp_context_query(each->context, &attributes) == UCS_OK &&
           (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
  });
}

void Transport::work_in_context_of(std::weak_ptr<device::cuda::Gpu> gpu) {
  const MutexLock lock(mutex_);
  gpu_ = std::move(gpu);
}

std::span<const std::unique_ptr<Transport::Rail>> Transport::rails(RailId rail) const {
  const std::span all(rails_);
  return rail == kAllRails ? all.first(opened_with_) : all.subspan(static_cast<std::size_t>(rail), 1);
}

std::shared_ptr<Endpoint> Transport::connect(const Bytes& address, const std::string& peer, RailId rail) {
  std::shared_ptr<device::cuda::Gpu> used;
  const MutexLock lock(mutex_);
  const std::pair key(rail, std::string(reinterpret_cast<const char*>(address.data()), address.size()));
  {
    const InContext in_context(gpu_, used);
    forget_broken_endpoints();
  }
  if (const auto known = endpoints_.find(key); known != endpoints_.end()) return known->second;
  const auto theirs = worker_addresses(address);
  const std::span<const std::unique_ptr<Rail>> mine = this->rails(rail);
  const std::size_t rails = std::min(theirs.size(), mine.size());
  if (rails == 0) throw Error(ErrorCode::kInternal, "A peer's UCX address is empty.");
  require(kNeedsOfConnection * static_cast<int>(rails));
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->eps_.reserve(rails);
  const auto place = endpoints_.emplace(key, endpoint).first;
  std::string ways;
  bool emulated = false;
  try {
    for (std::size_t i = 0; i < rails; ++i) {
      ucp_ep_params_t params{};
      params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
      params.address = reinterpret_cast<const ucp_address_t*>(theirs[i].data());
      params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      params.err_handler = {on_endpoint_error, &endpoint->error_};
      ucp_ep_h ep = nullptr;
      if (const ucs_status_t status = ucp_ep_create(mine[i]->worker, &params, &ep); status != UCS_OK) {
        const std::string& devices = mine[i]->net_devices;
        throw unreachable(loom::format("UCX finds no transport to {}{} (see UCX_TLS, UCX_NET_DEVICES and "
                                       "coll_loom_net_devices)",
                                       peer, devices.empty() ? "" : loom::format(" over \"{}\"", devices)),
                          status);
      }
      endpoint->eps_.push_back({mine[i]->worker, ep});
      const std::string way = way_of(ep);
      emulated |= is_emulated_over(way);
      ways += (ways.empty() ? "" : ",") + way;
    }
  } catch (...) {
    close(*endpoint);
    endpoints_.erase(place);
    throw;
  }
  endpoint->way_ = ways;
  endpoint->sends_eagerly_ =
      rendezvous_ == Rendezvous::kNever || (rendezvous_ == Rendezvous::kWhereDirect && emulated);
  return endpoint;
}

InboxId Transport::open(Inbox& inbox) {
  const MutexLock lock(mutex_);
  // UCX's ports are open to whoever reaches them: numbers that nobody outside the job knows.
  InboxId id = 0;
  while (id == 0 || inboxes_.contains(id)) id = random_word();
  inboxes_.emplace(id, &inbox);
  return id;
}

void Transport::close(InboxId id) noexcept {
  const MutexLock lock(mutex_);
  inboxes_.erase(id);
}

ucs_status_t Transport::on_message(void* arrived_on, const void* header, std::size_t header_bytes, void* data,
                                   std::size_t bytes, const ucp_am_recv_param_t* param) {
  MessageHeader message;
  if (header_bytes != sizeof(message)) return UCS_OK;
  std::memcpy(&message, header, sizeof(message));
  auto& rail = *static_cast<Rail*>(arrived_on);
  Transport& self = rail.transport;
  self.mutex_.is_held();
  // The data are here as a whole, or still at their sender and `data` describes them.
  if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)
    return self.fetch(rail, data, bytes, message.inbox, message.word);
  if (const auto inbox = self.inboxes_.find(message.inbox); inbox != self.inboxes_.end())
    inbox->second->take(message.word, {static_cast<const std::byte*>(data), bytes});
  return UCS_OK;
}

/// Returns what the handler of messages has to: anything but UCS_INPROGRESS lets go of the descriptor, and of
/// the sender.
ucs_status_t Transport::fetch(Rail& rail, void* descriptor, std::size_t bytes, InboxId id, Word word) {
  const auto inbox = inboxes_.find(id);
  if (inbox == inboxes_.end()) return UCS_OK;
  const Place place = inbox->second->place(word, bytes);
  if (!place.slots) return UCS_OK;
  std::unique_ptr<Fetched> fetched(new (std::nothrow) Fetched{*this, id, word, place});
  if (!fetched) {  // no exception may leave UCX's callback
    inbox->second->lose(UCS_ERR_NO_MEMORY);
    return UCS_ERR_NO_MEMORY;  // which the sender is told
  }
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* user_data) {
    const std::unique_ptr<Fetched> done(static_cast<Fetched*>(user_data));
    done->transport.mutex_.is_held();  // UCX calls back from what this class calls
    done->transport.end_fetch(done->inbox, done->word, status);
    ucp_request_free(request);
  };
  param.user_data = fetched.get();
  param.memory_type = memory_type(place.on_gpu);
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(rail.worker, descriptor, place.slots.get(), bytes, &param);
  if (UCS_PTR_IS_PTR(request))
    fetched.release();  // done in the callback
  else
    end_fetch(id, word, UCS_PTR_STATUS(request));
  return UCS_INPROGRESS;
}

void Transport::end_fetch(InboxId id, Word word, ucs_status_t status) noexcept {
  const auto inbox = inboxes_.find(id);
  if (inbox == inboxes_.end()) return;
  if (status == UCS_OK)
    inbox->second->arrive(word);
  else
    inbox->second->lose(status);
}

ucs_status_t Transport::send(const Endpoint& to, InboxId inbox, Word word, const std::byte* data,
                             std::size_t bytes, const std::shared_ptr<Outbox>& outbox,
                             bool is_for_a_live_peer) {
  std::shared_ptr<device::cuda::Gpu> used;
  const MutexLock lock(mutex_);
  const InContext in_context(gpu_, used);
  if (to.status() != UCS_OK) return to.status();
  std::unique_ptr<Pending> pending(new Pending{{inbox, word}, outbox, is_for_a_live_peer});
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    const std::unique_ptr<Pending> done(static_cast<Pending*>(user_data));
    if (status != UCS_OK && (!done->is_for_a_live_peer || is_of_this_process(status)))
      done->outbox->error.store(status, std::memory_order_relaxed);
    done->outbox->pending.fetch_sub(1, std::memory_order_relaxed);
    ucp_request_free(request);
  };
  param.user_data = pending.get();
  if (outbox->is_fetched && bytes > 0)
    param.flags = UCP_AM_SEND_FLAG_RNDV;
  else if (to.sends_eagerly_ || outbox->is_sent_along || bytes <= kMostSentAlong)
    param.flags = UCP_AM_SEND_FLAG_EAGER;
  else if (rendezvous_ == Rendezvous::kAlways)
    param.flags = UCP_AM_SEND_FLAG_RNDV;
  param.memory_type = memory_type(outbox->on_gpu && bytes > 0);
  // Slots by turns, so that both ends know which take which; of words any may overtake any other.
  const ucp_ep_h ep = to.eps_[bytes > 0 ? word.step % to.eps_.size() : 0].ep;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(ep, kMessageId, &pending->header, sizeof(pending->header), data, bytes, &param);
  if (UCS_PTR_IS_ERR(request)) return UCS_PTR_STATUS(request);
  if (request != nullptr) {  // done in the callback, which runs under the lock
    pending.release();
    outbox->pending.fetch_add(1, std::memory_order_relaxed);
  }
  to.has_sent_ = true;
  bytes_sent_.fetch_add(sizeof(MessageHeader) + bytes, std::memory_order_relaxed);
  return UCS_OK;
}

void Transport::wait(std::chrono::microseconds most) noexcept {
  constexpr std::size_t kMostEvents = 16;
  std::array<pollfd, kMostEvents> events{};
  std::size_t armed = 0;
  {
    std::shared_ptr<device::cuda::Gpu> used;
    const MutexLock lock(mutex_);
    const InContext in_context(gpu_, used);
    for (const auto& rail : rails_) {
      if (rail->event_fd < 0 || armed == kMostEvents) continue;
      const ucs_status_t status = ucp_worker_arm(rail->worker);
      if (status == UCS_ERR_BUSY) return;  // there is something already
      if (status == UCS_OK) events[armed++] = {.fd = rail->event_fd, .events = POLLIN, .revents = 0};
    }
  }
  const timespec limit{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(most).count()};
  ::ppoll(events.data(), armed, &limit, nullptr);
}

unsigned Transport::progress(Inbox* waiting) {
  std::shared_ptr<device::cuda::Gpu> used;
  if (!mutex_.try_lock()) return 0;
  const MutexLock lock(mutex_, std::adopt_lock);
  const InContext in_context(gpu_, used);
  if (waiting != nullptr) waiting->waited_for_ = true;
  unsigned events = 0;
  for (const auto& rail : rails_) events += ucp_worker_progress(rail->worker);
  if (waiting != nullptr) waiting->waited_for_ = false;
  return events;
}

}  // namespace loom::ucx_transport
