#include "ucx_transport/ports.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace loom::ucx_transport {
namespace {

bool is_up(const std::filesystem::path& interface) {
  std::string state;
  return std::getline(std::ifstream(interface / "operstate") >> std::ws, state) && state == "up";
}

TEST(Ports, AreThoseOfThisMachine) {
  const std::vector<topo::UcxPort> found = ports();
  const std::filesystem::path ethernet = "/sys/class/net", verbs = "/sys/class/infiniband";
  for (const topo::UcxPort& port : found)
    EXPECT_TRUE(std::filesystem::exists(ethernet / port.name) || std::filesystem::exists(verbs / port.name))
        << port.name;

  int expected = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ethernet)) {
    const std::string name = entry.path().filename();
    if (!std::filesystem::exists(entry.path() / "device") || !is_up(entry.path())) continue;
    ++expected;
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const auto& port) { return port.name == name; }))
        << name;
  }
  if (expected == 0) GTEST_SKIP() << "no network card is up";
}

TEST(UcxSettings, AreThoseOfTheUser) {
  ::unsetenv("UCX_NET_DEVICES");
  EXPECT_EQ(setting("NET_DEVICES"), "");
  ::setenv("UCX_NET_DEVICES", "mlx5_0:1,eth0", 1);
  EXPECT_EQ(setting("NET_DEVICES"), "mlx5_0:1,eth0");
  ::setenv("UCX_NET_DEVICES", "all", 1);
  EXPECT_EQ(setting("NET_DEVICES"), "");
  ::unsetenv("UCX_NET_DEVICES");
  EXPECT_EQ(setting("NO_SUCH_SETTING"), "");
}

TEST(UcxSettings, MayLeaveNoVerbs) {
  for (const char* tls : {"", "all", "rc,sm,self", "self,ud_verbs", "dc_x", "ib,tcp", "^tcp", "\\rc_mlx5"})
    EXPECT_TRUE(lets_use_verbs(tls)) << tls;
  for (const char* tls : {"tcp", "tcp,self,sm", "self", "^ib", "^sm,ib"})
    EXPECT_FALSE(lets_use_verbs(tls)) << tls;
}

}  // namespace
}  // namespace loom::ucx_transport
