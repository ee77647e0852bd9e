// test_space.hpp -- memory of this process as a kernel's.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "tests/virtual_gpu/memory/late_loads.hpp"

namespace virtual_gpu {

class TestSpace : public memory::Space {
 public:
  struct Kind {
    memory::Path path = memory::Path::kSameGpu;
    bool writable = true, this_gpu_only = false, tracks_written = false, watches_loads = false;
    std::atomic<std::uint64_t>*loaded = nullptr, *stored = nullptr;
    const std::function<void()>* on_store = nullptr;
  };

  /// Zeros, or for a space that tracks what is written nothing that may be loaded. Returns the address.
  std::uint64_t add(std::size_t bytes, const Kind& kind) {
    Piece& piece = *pieces_.emplace_back(std::make_unique<Piece>());
    piece.lines.resize(bytes / sizeof(Line) + 1);
    piece.region = {.begin = next_,
                    .bytes = bytes,
                    .host = piece.lines.front().bytes,
                    .path = kind.path,
                    .writable = kind.writable,
                    .this_gpu_only = kind.this_gpu_only,
                    .on_store = kind.on_store,
                    .loaded = kind.loaded,
                    .stored = kind.stored};
    if (kind.tracks_written) {
      piece.bits.resize(memory::WrittenMap::words_for(bytes));
      piece.written = std::make_unique<memory::WrittenMap>(piece.bits.data());
      piece.region.written = piece.written.get();
    }
    if (kind.watches_loads) {
      piece.late = std::make_unique<memory::LateLoads>(bytes);
      piece.region.late = piece.late.get();
    }
    next_ += (bytes / 4096 + 2) * 4096;
    return piece.region.begin;
  }
  std::uint64_t add(std::size_t bytes) { return add(bytes, Kind{}); }

  memory::Region find(std::uint64_t address) const override {
    const auto behind =
        std::upper_bound(pieces_.begin(), pieces_.end(), address,
                         [](std::uint64_t at, const auto& piece) { return at < piece->region.begin; });
    if (behind == pieces_.begin()) return {};
    const memory::Region& region = (*std::prev(behind))->region;
    return address - region.begin < region.bytes ? region : memory::Region{};
  }
  std::uint64_t generation() const noexcept override { return 1; }

  std::byte* host(std::uint64_t address) const {
    const memory::Region region = find(address);
    return region.host + (address - region.begin);
  }
  template <class T>
  T get(std::uint64_t address) const {
    T value;
    std::memcpy(&value, host(address), sizeof(T));
    return value;
  }
  template <class T>
  void put(std::uint64_t address, const T& value) {
    std::memcpy(host(address), &value, sizeof(T));
  }

 private:
  struct alignas(4096) Line {
    std::byte bytes[4096]{};
  };
  struct Piece {
    memory::Region region;
    std::vector<Line> lines;
    std::vector<std::uint64_t> bits;
    std::unique_ptr<memory::WrittenMap> written;
    std::unique_ptr<memory::LateLoads> late;
  };
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::uint64_t next_ = 0x7000'0000'0000;
};

}  // namespace virtual_gpu
