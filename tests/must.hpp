// must.hpp -- for fuzz targets: what must hold whatever the input, or the program ends as by a crash.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace loom {

inline void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace loom
