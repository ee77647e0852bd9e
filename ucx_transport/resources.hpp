// resources.hpp -- what UCX must not run out of: where it gets no descriptor or no memory half-way, it ends
// the process (1.13: assertions in its TCP transport and its progress thread, null pointers in ucp_init).
#pragma once

#include <cstddef>

namespace loom::ucx_transport {

struct Needs {
  int descriptors = 0;
  std::size_t bytes = 0;  ///< of address space

  Needs operator*(int times) const { return {descriptors * times, bytes * static_cast<std::size_t>(times)}; }
};

// UCX 1.13 opens 7 descriptors for a worker over TCP, and listens; the rest is for what the program opens
// meanwhile. It maps 20 MiB, and the stack of a thread.
inline constexpr Needs kNeedsOfWorker{.descriptors = 24, .bytes = std::size_t{64} << 20};
// Over TCP a descriptor for each direction, and as many for peers that connect to this worker meanwhile.
inline constexpr Needs kNeedsOfConnection{.descriptors = 8, .bytes = std::size_t{1} << 20};

/// Throws Error where this process may not have so much more: kUnreachable, of memory kOutOfMemory.
void require(const Needs& needs);

}  // namespace loom::ucx_transport
