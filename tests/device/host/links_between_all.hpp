// links_between_all.hpp -- links between ranks that are threads of one process.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "device/host/exchange_executor.hpp"
#include "device/link/shared_fifo.hpp"

namespace loom::device {

/// A link each way between every two positions.
class LinksBetweenAll {
 public:
  /// first: slots that have been filled and consumed before.
  LinksBetweenAll(int size, const FifoShape& shape, std::uint64_t first = 0)
      : size_(size), links_(static_cast<std::size_t>(size * size)) {
    for (int from = 0; from < size; ++from)
      for (int to = 0; to < size; ++to) {
        if (from == to) continue;
        memory_.emplace_back(shared_fifo_bytes(shape) / kCacheLine + 1);
        std::byte* const fifo = memory_.back().data()->bytes;
        auto& header = *reinterpret_cast<SharedFifoHeader*>(fifo);
        header.filled.publish(first);
        header.consumed.publish(first);
        send_.push_back(std::make_unique<SharedSendLink>(fifo, shape, to));
        receive_.push_back(std::make_unique<SharedRecvLink>(fifo, shape, from));
        at(from, to).send = send_.back().get();
        at(to, from).receive = receive_.back().get();
      }
  }
  std::span<const PeerLinks> of(int position) const {
    return std::span(links_).subspan(static_cast<std::size_t>(position * size_),
                                     static_cast<std::size_t>(size_));
  }

 private:
  struct alignas(kCacheLine) Line {
    std::byte bytes[kCacheLine]{};
  };
  PeerLinks& at(int position, int other) {
    return links_[static_cast<std::size_t>(position * size_ + other)];
  }

  int size_;
  std::vector<PeerLinks> links_;
  std::vector<std::vector<Line>> memory_;
  std::vector<std::unique_ptr<SharedSendLink>> send_;
  std::vector<std::unique_ptr<SharedRecvLink>> receive_;
};

template <class Executor>
void run(Executor&& executor) {
  while (executor.advance() != RingExecutor::State::kDone) std::this_thread::yield();
}

}  // namespace loom::device
