// host_memory.hpp -- what is known of an address without CUDA's driver.
#pragma once

namespace loom::device::cuda {

/// Memory that is the host's as long as it is there, whatever CUDA does: the used part of this thread's
/// stack, the static data of the program, and its heap as far as it is the program break's. False: not known.
///
/// Nothing of it can become a device's. CUDA takes addresses that are free. The segments of the program are
/// never unloaded (those of libraries may be), a stack is there while its thread runs, and the heap's end is
/// looked at each time. Addresses of other mappings are freed and used again, so nothing is remembered of
/// them. Locking such pages, or giving them to a GPU that shares the CPU's page tables, leaves them the
/// host's.
bool is_program_memory(const void* address) noexcept;

/// Whether the CPU may read the address, in a mapping that is not CUDA's. Slow: reads /proc/self/maps.
bool is_mapped_on_host(const void* address) noexcept;

}  // namespace loom::device::cuda
