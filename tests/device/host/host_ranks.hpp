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
  /// The ranks have been through so many rounds and exchanges.
  void go_on_from(std::uint64_t rounds, std::uint64_t exchanges, bool runs_far) {
    constexpr std::uint64_t kLines = ImmediateArea::kLines;
    const std::uint64_t stride = runs_far ? 1 : line_stride(kLines);
    exchanges_before = exchanges;
    for (const auto& of_rank : cico) of_rank->flags.filled.publish(rounds);
    for (const auto& area : areas)
      for (std::uint64_t exchange = exchanges - kLines + 1; exchange <= exchanges; ++exchange)
        area->line[exchange * stride % kLines].published.publish(exchange << ExchangeTag::kBits);
  }
  template <class Owned>
  static auto pointers(const std::vector<std::unique_ptr<Owned>>& owned) {
    std::vector<Owned*> result;
    for (const auto& each : owned) result.push_back(each.get());
    return result;
  }
  std::uint64_t exchanges_before = 0;
  std::vector<std::unique_ptr<ImmediateArea>> areas;
  std::vector<std::unique_ptr<CicoBuffer>> cico;
};

}  // namespace loom::device
