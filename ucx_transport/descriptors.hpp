#pragma once

namespace loom::ucx_transport {

// UCX 1.13 opens 7 for a worker over TCP, and listens; the rest is for what the program opens meanwhile.
inline constexpr int kDescriptorsOfWorker = 24;

/// Throws Error (kUnreachable) where this process may open fewer file descriptors than that. UCX must not run
/// out of them: when an accept() fails or a start is abandoned half-way, it ends the process (1.13:
/// assertions in its TCP transport and its progress thread).
void require_descriptors(int needed);

}  // namespace loom::ucx_transport
