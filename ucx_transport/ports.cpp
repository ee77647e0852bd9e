#include "ucx_transport/ports.hpp"

#include <ucp/api/ucp.h>
#include <ucs/debug/debug.h>
#include <uct/api/uct.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "base/format.hpp"

namespace loom::ucx_transport {
namespace {

template <auto kRelease>
struct Releaser {
  template <class T>
  void operator()(T* pointer) const noexcept {
    kRelease(pointer);
  }
};
template <class T, auto kRelease>
using Owner = std::unique_ptr<T, Releaser<kRelease>>;

using Async = Owner<ucs_async_context_t, ucs_async_context_destroy>;
using Worker = Owner<uct_worker, uct_worker_destroy>;
using MemoryDomain = Owner<uct_md, uct_md_close>;
using Interface = Owner<uct_iface, uct_iface_close>;
template <class T>
using Config = Owner<T, uct_config_release>;

std::vector<std::string> names_of_domains(uct_component_h component) {
  uct_component_attr_t attributes{};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct_component_query(component, &attributes) != UCS_OK) return {};
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (uct_component_query(component, &attributes) != UCS_OK) return {};
  std::vector<std::string> names;
  for (const uct_md_resource_desc_t& domain : domains) names.emplace_back(domain.md_name);
  return names;
}

MemoryDomain open_domain(uct_component_h component, const std::string& name) {
  uct_md_config_t* config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return {};
  const Config<uct_md_config_t> owner(config);
  uct_md_h domain = nullptr;
  return MemoryDomain(uct_md_open(component, name.c_str(), config, &domain) == UCS_OK ? domain : nullptr);
}

/// "mlx5_0:1" is port 1 of mlx5_0; Ethernet has no number.
topo::UcxPort named(const std::string& device) {
  topo::UcxPort port{.name = device.substr(0, device.find(':'))};
  if (port.name.size() < device.size())
    std::from_chars(device.data() + port.name.size() + 1, device.data() + device.size(), port.port);
  return port;
}

/// What transport `resource` of `domain` says of its port; a speed of 0 where it cannot be opened or does not
/// know.
topo::UcxPort ask(uct_md_h domain, uct_worker_h worker, const uct_tl_resource_desc_t& resource) {
  topo::UcxPort port = named(resource.dev_name);
  uct_iface_config_t* config = nullptr;
  if (uct_md_iface_config_read(domain, resource.tl_name, nullptr, nullptr, &config) != UCS_OK) return port;
  const Config<uct_iface_config_t> owner(config);
  uct_iface_params_t params{};
  params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
  params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
  params.mode.device.tl_name = resource.tl_name;
  params.mode.device.dev_name = resource.dev_name;
  uct_iface_h opened = nullptr;
  if (uct_iface_open(domain, worker, &params, config, &opened) != UCS_OK) return port;
  const Interface interface(opened);
  uct_iface_attr_t interface_attributes{};
  uct_md_attr_t domain_attributes{};
  if (uct_iface_query(opened, &interface_attributes) != UCS_OK ||
      uct_md_query(domain, &domain_attributes) != UCS_OK)
    return port;
  port.gpu_direct = (domain_attributes.cap.reg_mem_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
  // Of Ethernet UCX knows what sysfs says. Where sysfs is silent it takes 100 Mbit/s. Latencies are always a
  // guess.
  if (std::string_view(resource.tl_name) == "tcp") return port;
  constexpr double kBitsPerByte = 8, kMega = 1e6;  // UCX counts in bytes and seconds
  port.speed_mbps = (interface_attributes.bandwidth.dedicated + interface_attributes.bandwidth.shared) *
                    kBitsPerByte / kMega;
  port.latency_us = interface_attributes.latency.c * kMega;
  return port;
}

/// Merges what transports of one port say: the highest speed, the lowest latency, GPUDirect if any has it.
void merge(std::vector<topo::UcxPort>& ports, const topo::UcxPort& more) {
  const auto known = std::find_if(ports.begin(), ports.end(), [&](const topo::UcxPort& port) {
    return port.name == more.name && port.port == more.port;
  });
  if (known == ports.end()) {
    ports.push_back(more);
    return;
  }
  if (known->speed_mbps <= 0 || (more.speed_mbps > 0 && more.latency_us < known->latency_us))
    known->latency_us = more.latency_us;
  known->speed_mbps = std::max(known->speed_mbps, more.speed_mbps);
  known->gpu_direct |= more.gpu_direct;
}

void add_ports(std::vector<topo::UcxPort>& ports, uct_md_h domain, uct_worker_h worker) {
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (uct_md_query_tl_resources(domain, &resources, &count) != UCS_OK) return;
  const Owner<uct_tl_resource_desc_t, uct_release_tl_resource_list> owner(resources);
  for (unsigned i = 0; i < count; ++i)
    if (resources[i].dev_type == UCT_DEVICE_TYPE_NET) merge(ports, ask(domain, worker, resources[i]));
}

bool compiled_for_this_version() {
  unsigned major = 0, minor = 0, patch = 0;
  ucp_get_version(&major, &minor, &patch);
  return UCP_VERSION(major, minor) == UCP_API_VERSION;
}

}  // namespace

std::vector<topo::UcxPort> ports() {
  std::vector<topo::UcxPort> ports;
  ucs_async_context_t* async = nullptr;
  if (!compiled_for_this_version() ||
      ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async) != UCS_OK)
    return ports;
  const Async async_owner(async);
  uct_worker_h worker = nullptr;
  if (uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker) != UCS_OK) return ports;
  const Worker worker_owner(worker);

  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (uct_query_components(&components, &count) != UCS_OK) return ports;
  const Owner<uct_component_h, uct_release_component_list> components_owner(components);
  for (unsigned i = 0; i < count; ++i)
    for (const std::string& name : names_of_domains(components[i]))
      if (const MemoryDomain domain = open_domain(components[i], name))
        add_ports(ports, domain.get(), worker);
  for (topo::UcxPort& port : ports) port.fabric = topo::fabric_of(port);
  return ports;
}

std::string setting(const char* name) {
  ucp_config_t* config = nullptr;
  if (ucp_config_read(nullptr, nullptr, &config) != UCS_OK) return {};
  const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> config_owner(config, ucp_config_release);
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* const stream = ::open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  ucp_config_print(config, stream, "", UCS_CONFIG_PRINT_CONFIG);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> text_owner(text, std::free);
  std::istringstream lines(std::string(text, bytes));
  const std::string begin = loom::format("UCX_{}=", name);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(begin)) {
      const std::string value = line.substr(begin.size());
      return value == "all" ? std::string() : value;
    }
  return {};
}

bool lets_use_verbs(std::string_view tls) {
  if (tls.empty()) return true;
  const bool excludes = tls.starts_with('^');
  const std::vector<std::string> names = listed_devices(excludes ? tls.substr(1) : tls);
  if (excludes) return std::ranges::count(names, "ib") == 0;
  return std::ranges::any_of(names, [](std::string_view name) {
    if (name.starts_with('\\')) name.remove_prefix(1);  // by this name alone
    return name == "all" || name == "ib" || name.starts_with("rc") || name.starts_with("ud") ||
           name.starts_with("dc");
  });
}

std::vector<std::string> listed_devices(std::string_view list) {
  std::vector<std::string> names(1);
  for (const char c : list)
    if (c == ',')
      names.emplace_back();
    else if (c != ' ')
      names.back() += c;
  std::erase(names, "");
  return names;
}

void leave_signals_alone() {
  if (std::getenv("UCX_HANDLE_ERRORS") != nullptr) return;
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
}

}  // namespace loom::ucx_transport
