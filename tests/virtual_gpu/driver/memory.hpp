// memory.hpp -- making and freeing allocations, for all entry points that do.
#pragma once

#include "tests/virtual_gpu/driver/driver.hpp"

namespace virtual_gpu {

/// Makes the file's memory an allocation where the program has an address for it. kOutOfMemory: there are no
/// addresses. context: nullptr for none.
Result add_allocation(Driver& d, std::shared_ptr<MemoryFile> file, Kind kind, Context* context,
                      Ordinal device, AllocationPtr& out);

/// The allocation that memory management of kind `kinds` has made there; else nullptr.
template <class... Kinds>
AllocationPtr find_begin(const Driver& d, Address address, Kinds... kinds) {
  const AllocationPtr found = d.memory.at(address);
  return found != nullptr && ((found->kind == kinds) || ...) ? found : nullptr;
}

}  // namespace virtual_gpu
