// path_type.hpp -- types of paths in what nodes tell each other.
#pragma once

#include "base/bytes.hpp"
#include "topo/paths.hpp"

namespace loom::connect {

inline topo::PathType get_path_type(ByteReader& reader) {
  constexpr int kTypes = static_cast<int>(topo::PathType::kDis) + 1;
  return static_cast<topo::PathType>(reader.get_below<std::uint8_t>(kTypes, "a path type is unknown"));
}

}  // namespace loom::connect
