// strong_view.cpp -- every access takes place at once. The host's memory is as strong as x86 has it, which is
// stronger than any GPU; only that lines stay whole has to be seen to.
#include "tests/virtual_gpu/memory/words.hpp"

namespace virtual_gpu::memory {
namespace {

class StrongView final : public View {
 public:
  explicit StrongView(const Space& space) : regions_(space) {}

  void load(const Form& form, std::span<const Access> lanes) override {
    access(form, lanes, false, [&](Regions::Found& region, const Access& lane) {
      region.loaded_here += form.bytes;
      expect_written(region, lane.thread, lane.address, form.bytes);
      load_words(lane.data, host_of(region, lane.address), form.bytes);
    });
  }
  void store(const Form& form, std::span<const Access> lanes) override {
    if (form.order == Order::kRelease) std::atomic_thread_fence(std::memory_order_seq_cst);
    access(form, lanes, true, [&](Regions::Found& region, const Access& lane) {
      region.stored_here += form.bytes;
      store_words(host_of(region, lane.address), lane.data, form.bytes);
      if (region.written != nullptr) region.written->mark(lane.address - region.begin, form.bytes);
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
  template <class Body>
  void access(const Form& form, std::span<const Access> lanes, bool stores, Body&& body) {
    const auto whole = whole_lines(regions_, form, lanes, stores);
    const auto line_of = [](const Access& lane) { return lane.address / kLineBytes * kLineBytes; };
    for (const std::uint64_t line : whole) {
      Regions::Found& region = regions_.find(lanes.front().thread, line, kLineBytes, stores);
      const LineGuard guard(region, line);
      for (const Access& lane : lanes)
        if (line_of(lane) == line) body(region, lane);
    }
    for (const Access& lane : lanes)
      if (std::find(whole.begin(), whole.end(), line_of(lane)) == whole.end())
        body(regions_.find(lane.thread, lane.address, form.bytes, stores), lane);
  }

  Regions regions_;
};

}  // namespace

std::unique_ptr<View> strong_view(const Space& space) {
  return std::make_unique<StrongView>(space);
}

}  // namespace virtual_gpu::memory
