// cpu_mask.hpp -- sets of CPUs as masks: "0000ffff,00000000" (sysfs, NCCL) and "0x0000ffff,0x0" (hwloc) in
// one form.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loom::topo {

/// Groups of 8 lower-case hexadecimal digits with commas, the highest CPUs first, without leading empty
/// groups; "" for no CPUs. Takes both notations; nullopt for anything else.
std::optional<std::string> cpu_mask(std::string_view text);

/// The CPUs of a mask that cpu_mask() made, ascending.
std::vector<int> cpus_of(std::string_view mask);

/// The mask of these CPUs (not negative), in the same form.
std::string mask_of(const std::vector<int>& cpus);

/// The mask as hwloc writes it: "0x0000ffff,0x00000000"; "0x0" for none.
std::string to_hwloc_mask(std::string_view mask);

/// "0-15,32-47".
std::string to_cpu_list(std::string_view mask);

}  // namespace loom::topo
