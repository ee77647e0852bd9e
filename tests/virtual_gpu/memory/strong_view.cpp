// strong_view.cpp -- every access takes place at once. The host's memory is as strong as x86 has it, which is
// stronger than any GPU; only that lines stay whole has to be seen to.
#include <algorithm>
#include <cstring>

#include "tests/virtual_gpu/memory/words.hpp"

namespace virtual_gpu::memory {
namespace {

class StrongView final : public View {
 public:
  explicit StrongView(const Space& space) : regions_(space) {}

  void load(const Form& form, std::span<const Access> lanes) override {
    if (lanes.size() > 1 && is_one(lanes)) {  // a poll, most often
      load(form, lanes.first(1));
      for (const Access& lane : lanes.subspan(1)) std::memcpy(lane.data, lanes.front().data, form.bytes);
      return;
    }
    access(form, lanes, false, [&](Regions::Found& region, std::span<const Access> row) {
      const std::uint64_t address = row.front().address, bytes = row.size() * form.bytes;
      region.loaded_here += bytes;
      if (region.written != nullptr && !region.written->all_written(address - region.begin, bytes))
        for (const Access& lane : row) expect_written(region, lane.thread, lane.address, form.bytes);
      load_row(row, host_of(region, address), form.bytes);
    });
  }
  void store(const Form& form, std::span<const Access> lanes) override {
    if (form.order == Order::kRelease) std::atomic_thread_fence(std::memory_order_seq_cst);
    access(form, lanes, true, [&](Regions::Found& region, std::span<const Access> row) {
      const std::uint64_t address = row.front().address, bytes = row.size() * form.bytes;
      region.stored_here += bytes;
      store_row(host_of(region, address), row, form.bytes);
      if (region.written != nullptr) region.written->mark(address - region.begin, bytes);
      if (region.on_store != nullptr) (*region.on_store)();
    });
  }
  std::uint64_t update(const Form& form, unsigned thread, std::uint64_t address, Change change,
                       std::uint64_t a, std::uint64_t b) override {
    Regions::Found& region = regions_.find(thread, address, form.bytes, true);
    region.loaded_here += form.bytes;
    region.stored_here += form.bytes;
    expect_written(region, thread, address, form.bytes);
    return update_word(host_of(region, address), form.bytes, change, a, b);
  }
  void fence(unsigned, Scope) override { std::atomic_thread_fence(std::memory_order_seq_cst); }
  void meet(std::span<const unsigned>) override {}
  void finish() override {}

 private:
  static std::uint64_t line_of(std::uint64_t address) { return address / kLineBytes * kLineBytes; }

  /// Calls body(region, row) for rows of lanes whose bytes lie side by side in one line.
  template <class Body>
  void access(const Form& form, std::span<const Access> lanes, bool stores, Body&& body) {
    if (is_row(form, lanes)) {
      while (!lanes.empty()) {
        const std::uint64_t address = lanes.front().address, left = line_of(address) + kLineBytes - address;
        const auto row = lanes.first(std::min<std::size_t>(lanes.size(), left / form.bytes));
        access_row(form, row, stores, body);
        lanes = lanes.subspan(row.size());
      }
      return;
    }
    const auto whole = whole_lines(regions_, form, lanes, stores);
    for (const std::uint64_t line : whole) {
      Regions::Found& region = regions_.find(lanes.front().thread, line, kLineBytes, stores);
      const LineGuard guard(region, line);
      for (std::size_t i = 0; i < lanes.size(); ++i)
        if (line_of(lanes[i].address) == line) body(region, lanes.subspan(i, 1));
    }
    for (std::size_t i = 0; i < lanes.size(); ++i)
      if (std::find(whole.begin(), whole.end(), line_of(lanes[i].address)) == whole.end())
        access_lane(form, lanes.subspan(i, 1), stores, body);
  }

  static bool is_one(std::span<const Access> lanes) {
    return std::ranges::all_of(lanes, [&](const Access& lane) { return lane.address == lanes[0].address; });
  }
  /// What most accesses are. Misaligned ones are none: who looks at each lane finds the error.
  static bool is_row(const Form& form, std::span<const Access> lanes) {
    std::uint64_t next = lanes.front().address;
    if (next % form.bytes != 0) return false;
    for (const Access& lane : lanes) {
      if (lane.address != next) return false;
      next += form.bytes;
    }
    return true;
  }
  template <class Body>
  void access_row(const Form& form, std::span<const Access> row, bool stores, Body& body) {
    const std::uint64_t address = row.front().address, bytes = row.size() * form.bytes;
    Regions::Found& region = regions_.find(row.front().thread, address, form.bytes, stores);
    if (region.bytes - (address - region.begin) < bytes) {
      for (std::size_t i = 0; i < row.size(); ++i) access_lane(form, row.subspan(i, 1), stores, body);
    } else if (bytes == kLineBytes && keeps_lines_whole(region.path)) {
      const LineGuard guard(region, address);
      body(region, row);
    } else {
      body(region, row);
    }
  }
  template <class Body>
  void access_lane(const Form& form, std::span<const Access> lane, bool stores, Body& body) {
    body(regions_.find(lane.front().thread, lane.front().address, form.bytes, stores), lane);
  }

  Regions regions_;
};

}  // namespace

std::unique_ptr<View> strong_view(const Space& space) {
  return std::make_unique<StrongView>(space);
}

}  // namespace virtual_gpu::memory
