// specials.cpp -- registers that say where a thread runs.
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
};

}  // namespace

Special find_special(std::string_view name) {
  const Row* const row = find_row(kSpecials, name);
  return row == nullptr ? nullptr : row->value;
}

}  // namespace virtual_gpu::run::detail
