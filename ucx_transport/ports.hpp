// ports.hpp -- which network ports UCX can use, and what it says of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topo/discover.hpp"

namespace loom::ucx_transport {

/// The ports of this host over which UCX has a transport, in UCX's order. Opens each for a moment:
/// microseconds for Ethernet, milliseconds for InfiniBand. Empty where UCX cannot be asked: it runs in
/// another version than loom was compiled for (UCX keeps its lower layer, UCT, compatible within a minor
/// version only), or it fails.
std::vector<topo::UcxPort> ports();

/// What the user has set for UCX, by the environment or in a ucx.conf: "NET_DEVICES", "TLS". Empty: nothing,
/// so that UCX takes all; or UCX cannot be asked.
std::string setting(const char* name);
/// Whether UCX_TLS, as setting() has it, lets UCX use ports by verbs.
bool lets_use_verbs(std::string_view tls);

/// The names in a list as UCX_NET_DEVICES has it.
std::vector<std::string> listed_devices(std::string_view list);

/// UCX handles SIGSEGV and the like as soon as it is loaded: it prints its own backtrace, and may wait for a
/// debugger. This restores the default handlers, unless the user set UCX_HANDLE_ERRORS. For programs that use
/// UCX only in passing.
void leave_signals_alone();

}  // namespace loom::ucx_transport
