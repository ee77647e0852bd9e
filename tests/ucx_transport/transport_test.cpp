#include "ucx_transport/transport.hpp"

#include <gtest/gtest.h>

namespace loom::ucx_transport {
namespace {

TEST(Transport, WaitsItsTimeWhereNothingCanWakeIt) {
  Transport transport;
  const auto began = std::chrono::steady_clock::now();
  transport.wait(std::chrono::milliseconds(20));
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace loom::ucx_transport
