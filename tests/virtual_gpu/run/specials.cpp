// specials.cpp -- registers that say where and when a thread runs.
#include <chrono>

#include "tests/virtual_gpu/run/handlers.hpp"

namespace virtual_gpu::run::detail {
namespace {

using T = SpecialThread;

struct Row {
  std::string_view name;
  Special value;
};
constexpr Row kSpecials[] = {
    {"%tid.x", [](const T& t) -> Slot { return t.index % t.block.x; }},
    {"%tid.y", [](const T& t) -> Slot { return t.index / t.block.x % t.block.y; }},
    {"%tid.z", [](const T& t) -> Slot { return t.index / t.block.x / t.block.y; }},
    {"%ntid.x", [](const T& t) -> Slot { return t.block.x; }},
    {"%ntid.y", [](const T& t) -> Slot { return t.block.y; }},
    {"%ntid.z", [](const T& t) -> Slot { return t.block.z; }},
    {"%ctaid.x", [](const T& t) -> Slot { return t.in_grid.x; }},
    {"%ctaid.y", [](const T& t) -> Slot { return t.in_grid.y; }},
    {"%ctaid.z", [](const T& t) -> Slot { return t.in_grid.z; }},
    {"%nctaid.x", [](const T& t) -> Slot { return t.grid.x; }},
    {"%nctaid.y", [](const T& t) -> Slot { return t.grid.y; }},
    {"%nctaid.z", [](const T& t) -> Slot { return t.grid.z; }},
    {"%laneid", [](const T& t) -> Slot { return t.index % kLanes; }},
    {"%warpid", [](const T& t) -> Slot { return t.index / kLanes; }},
    {"%nwarpid", [](const T& t) -> Slot { return t.warps; }},
    {"%smid",  // as if there were enough of them
     [](const T& t) { return t.in_grid.x + Slot{t.grid.x} * (t.in_grid.y + Slot{t.grid.y} * t.in_grid.z); }},
    {"%clock", [](const T& t) { return t.clock; }},
    {"%clock64", [](const T& t) { return t.clock; }},
    {"%globaltimer",
     [](const T&) {
       const auto now = std::chrono::system_clock::now().time_since_epoch();
       return static_cast<Slot>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
     }},
    {"%lanemask_eq", [](const T& t) { return Slot{1} << t.index % kLanes; }},
    {"%lanemask_le", [](const T& t) { return (Slot{2} << t.index % kLanes) - 1; }},
    {"%lanemask_lt", [](const T& t) { return (Slot{1} << t.index % kLanes) - 1; }},
    {"%lanemask_ge", [](const T& t) { return 0 - (Slot{1} << t.index % kLanes); }},
    {"%lanemask_gt", [](const T& t) { return 0 - (Slot{2} << t.index % kLanes); }},
    {"%dynamic_smem_size", [](const T& t) -> Slot { return t.dynamic_shared_bytes; }},
};

}  // namespace

Special find_special(std::string_view name) {
  const Row* const row = find_row(kSpecials, name);
  return row == nullptr ? nullptr : row->value;
}

}  // namespace virtual_gpu::run::detail
