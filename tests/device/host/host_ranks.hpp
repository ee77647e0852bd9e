// host_ranks.hpp -- what ranks of one host have in common, for ranks that are threads.
#pragma once

#include <memory>
#include <vector>

#include "device/host/cico_executor.hpp"
#include "device/host/immediate_exchange.hpp"

namespace loom::device {

/// All ranks of a communicator in one process.
struct Host {
  explicit Host(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      areas.push_back(std::make_unique<ImmediateArea>());
      cico.push_back(std::make_unique<CicoBuffer>());
    }
  }
  template <class Owned>
  static auto pointers(const std::vector<std::unique_ptr<Owned>>& owned) {
    std::vector<Owned*> result;
    for (const auto& each : owned) result.push_back(each.get());
    return result;
  }
  std::vector<std::unique_ptr<ImmediateArea>> areas;
  std::vector<std::unique_ptr<CicoBuffer>> cico;
};

}  // namespace loom::device
