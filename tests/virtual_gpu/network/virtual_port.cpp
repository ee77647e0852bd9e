// virtual_port.cpp -- makes of UCX's ports such as reach memory of the virtual GPU by themselves (GPUDirect),
// for programs that have this preloaded: UCX says so of all its memory domains and contexts, and takes memory
// of type CUDA for active messages. It never gets to see a device's address, which no CPU may use.
//
// Of a UCX that has its module for CUDA it only says so, and leaves such memory to the module: it copies
// through the driver, and its own idea of what has come is right at once.
#include <dlfcn.h>
#include <link.h>
#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "virtual_port: %s\n", what);
  std::abort();
}

/// UCX's own function.
template <class Function>
Function* next(const char* name) {
  auto* const function = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
  if (function == nullptr) die(name);
  return function;
}

/// Of the virtual driver, which the program has opened.
template <class Function>
Function* of_driver(const char* name) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  auto* const function = library == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) die(name);
  return function;
}

bool is_of_ucx(const void* code) {
  Dl_info info{};
  return ::dladdr(code, &info) != 0 && std::strstr(info.dli_fname, "/libuc") != nullptr;
}

std::uint64_t address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

struct Sent {
  std::vector<std::byte> data;
  ucp_send_nbx_callback_t done;
  void* user_data;
};

struct Received {
  std::vector<std::byte> data;
  void* to;
  ucp_am_recv_data_nbx_callback_t done;
  void* user_data;

  void write() const {
    static auto* const write =
        of_driver<int(std::uint64_t, const void*, std::size_t)>("virtual_gpu_network_write");
    if (write(address_of(to), data.data(), data.size()) != 0) die("it writes to what is no GPU's memory");
  }
};

/// Open MPI's must not seem to take such memory.
struct Contexts {
  std::mutex mutex;
  std::set<ucp_context_h> of_loom;
};
Contexts& contexts() {
  static auto* const all = new Contexts;  // never destroyed: UCX is used until the end
  return *all;
}
bool is_of_loom(ucp_context_h context) {
  const std::lock_guard lock(contexts().mutex);
  return contexts().of_loom.contains(context);
}

bool knows_cuda() {
  static const bool knows =
      ::dl_iterate_phdr(
          [](dl_phdr_info* object, std::size_t, void*) {
            return static_cast<int>(std::strstr(object->dlpi_name, "/libuct_cuda") != nullptr);
          },
          nullptr) != 0;
  return knows;
}

/// And this has to act for it.
bool is_of_gpu(const ucp_request_param_t* param) {
  return !knows_cuda() && (param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) != 0 &&
         param->memory_type == UCS_MEMORY_TYPE_CUDA;
}

}  // namespace

EXPORT ucs_status_t uct_md_query(uct_md_h domain, uct_md_attr_t* attributes) {
  static auto* const query = next<decltype(uct_md_query)>("uct_md_query");
  const ucs_status_t status = query(domain, attributes);
  if (status == UCS_OK && !is_of_ucx(__builtin_return_address(0)))
    attributes->cap.reg_mem_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
  return status;
}

/// What ucp_init() calls.
EXPORT ucs_status_t ucp_init_version(unsigned major, unsigned minor, const ucp_params_t* params,
                                     const ucp_config_t* config, ucp_context_h* out) {
  static auto* const init = next<decltype(ucp_init_version)>("ucp_init_version");
  const ucs_status_t status = init(major, minor, params, config, out);
  if (status == UCS_OK && (params->field_mask & UCP_PARAM_FIELD_NAME) != 0 &&
      std::strcmp(params->name, "loom") == 0) {
    const std::lock_guard lock(contexts().mutex);
    contexts().of_loom.insert(*out);
  }
  return status;
}

EXPORT ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t* attributes) {
  static auto* const query = next<decltype(ucp_context_query)>("ucp_context_query");
  const ucs_status_t status = query(context, attributes);
  if (status == UCS_OK && !knows_cuda() && is_of_loom(context) &&
      (attributes->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES) != 0)
    attributes->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
  return status;
}

EXPORT ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h to, unsigned id, const void* header,
                                        std::size_t header_bytes, const void* data, std::size_t bytes,
                                        const ucp_request_param_t* param) {
  static auto* const send = next<decltype(ucp_am_send_nbx)>("ucp_am_send_nbx");
  if (!is_of_gpu(param)) return send(to, id, header, header_bytes, data, bytes, param);
  static auto* const read = of_driver<int(std::uint64_t, void*, std::size_t)>("virtual_gpu_network_read");
  if ((param->flags & UCP_AM_SEND_FLAG_RNDV) == 0)
    die("memory of a GPU is sent through a buffer of the host");
  auto sent = std::make_unique<Sent>(Sent{std::vector<std::byte>(bytes), param->cb.send, param->user_data});
  if (read(address_of(data), sent->data.data(), bytes) != 0) die("it reads what is no GPU's memory");
  ucp_request_param_t ours = *param;
  ours.memory_type = UCS_MEMORY_TYPE_HOST;
  ours.user_data = sent.get();
  ours.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    const std::unique_ptr<Sent> ended(static_cast<Sent*>(user_data));
    ended->done(request, status, ended->user_data);
  };
  const ucs_status_ptr_t request = send(to, id, header, header_bytes, sent->data.data(), bytes, &ours);
  if (UCS_PTR_IS_PTR(request)) sent.release();  // its callback ends it
  return request;
}

EXPORT ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void* descriptor, void* to,
                                             std::size_t bytes, const ucp_request_param_t* param) {
  static auto* const receive = next<decltype(ucp_am_recv_data_nbx)>("ucp_am_recv_data_nbx");
  if (!is_of_gpu(param)) return receive(worker, descriptor, to, bytes, param);
  auto received = std::make_unique<Received>(
      Received{std::vector<std::byte>(bytes), to, param->cb.recv_am, param->user_data});
  ucp_request_param_t ours = *param;
  ours.memory_type = UCS_MEMORY_TYPE_HOST;
  ours.user_data = received.get();
  ours.cb.recv_am = [](void* request, ucs_status_t status, std::size_t length, void* user_data) {
    const std::unique_ptr<Received> ended(static_cast<Received*>(user_data));
    if (status == UCS_OK) ended->write();
    ended->done(request, status, length, ended->user_data);
  };
  const ucs_status_ptr_t request = receive(worker, descriptor, received->data.data(), bytes, &ours);
  if (UCS_PTR_IS_PTR(request))
    received.release();
  else if (request == nullptr)
    received->write();
  return request;
}
