// names.cpp -- the names of the C interface, apart from the rest of it: tools need no more than these.
#include "component/core.h"
#include "component/select/algorithms.hpp"

const char* loom_collective_name(loom_collective collective) {
  return loom::name_of(static_cast<loom::device::Collective>(collective)).data();
}
const char* loom_algorithm_name(int algorithm) {
  return loom::name_of(static_cast<loom::Algorithm>(algorithm)).data();
}
const char* loom_fallback_name(loom_fallback reason) {
  return loom::name_of(static_cast<loom::FallbackReason>(reason)).data();
}
