#include "tests/virtual_gpu/driver/kernel_time.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "tests/virtual_gpu/memory/arrivals.hpp"
#include "tests/virtual_gpu/memory/words.hpp"

namespace virtual_gpu {
namespace {

class TimedView final : public memory::View {
 public:
  TimedView(GridTime& time, const memory::Space& space, std::unique_ptr<memory::View> view)
      : time_(time), clock_(time.clock), regions_(space), view_(std::move(view)), at_(time.begin) {}

  /// The values first: whoever sees one sees the time that was written before it.
  void load(const memory::Form& form, std::span<const memory::Access> lanes) override {
    view_->load(form, lanes);
    const Ns before = at_;
    const bool is_weak = form.order == memory::Order::kWeak;
    for (const memory::Access& lane : lanes) {
      const memory::Region& region = regions_.find(lane.thread, lane.address, form.bytes, false);
      if (is_weak)
        move(region.place, time_.gpu, form.bytes);
      else if (region.arrivals != nullptr && region.place != memory::Region::kNowhere)
        look(form, region, lane);
    }
    if (is_weak) return;
    if (at_ > before)
      looks_ = 0;
    else
      rest();
  }
  void store(const memory::Form& form, std::span<const memory::Access> lanes) override {
    looks_ = 0;
    ++stores_;
    const bool releases = form.order == memory::Order::kRelease;
    if (releases || (form.order != memory::Order::kWeak && waiting_bytes_ >= kRound)) settle(releases);
    for (const memory::Access& lane : lanes) {
      const memory::Region& region = regions_.find(lane.thread, lane.address, form.bytes, true);
      move(time_.gpu, region.place, form.bytes);
      if (form.order != memory::Order::kWeak) tell(form, region, lane);
    }
    view_->store(form, lanes);
  }
  std::uint64_t update(const memory::Form& form, unsigned thread, std::uint64_t address, Change change,
                       std::uint64_t a, std::uint64_t b) override {
    settle(true);
    const memory::Region region = regions_.find(thread, address, form.bytes, true);
    const memory::Form relaxed{form.bytes, memory::Order::kRelaxed, form.scope};
    tell(relaxed, region, {thread, address, nullptr});
    const std::uint64_t old = view_->update(form, thread, address, change, a, b);
    if (region.arrivals != nullptr) look(relaxed, region, {thread, address, nullptr});
    return old;
  }
  void fence(unsigned thread, memory::Scope scope) override {
    if (scope != memory::Scope::kBlock) settle(true);
    view_->fence(thread, scope);
  }
  void meet(std::span<const unsigned> threads) override { view_->meet(threads); }
  void finish() override {
    view_->finish();
    settle(true);
    machine::raise(time_.end, at_);
  }

 private:
  /// What a large block has on its way at once.
  static constexpr std::uint64_t kRound = 16 * 1024;
  struct Flow {
    std::size_t from, to;
    std::uint64_t bytes;
  };

  void move(std::size_t from, std::size_t to, std::size_t bytes) {
    if (from == memory::Region::kNowhere || to == memory::Region::kNowhere) return;
    waiting_bytes_ += bytes;
    const auto flow =
        std::ranges::find_if(flows_, [&](const Flow& each) { return each.from == from && each.to == to; });
    if (flow != flows_.end())
      flow->bytes += bytes;
    else
      flows_.push_back({from, to, bytes});
  }

  void settle(bool releases) {
    if (flows_.empty()) return;
    Ns passed = at_, loading = 0, storing = 0;
    for (const Flow& flow : flows_) {
      passed = std::max(passed, clock_.carry(flow.from, flow.to, flow.bytes, at_));
      Ns& latency = flow.to == time_.gpu ? loading : storing;
      latency = std::max(latency, clock_.latency(flow.from, flow.to));
    }
    at_ = passed + loading + (releases ? storing : 0);
    flows_.clear();
    waiting_bytes_ = 0;
  }

  static memory::Arrivals& line_of(const memory::Region& region, std::uint64_t address) {
    return region.arrivals[(address - region.begin) / memory::kLineBytes];
  }
  static std::uint64_t word_at(const std::byte* at, std::size_t bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, bytes);
    return word;
  }
  static bool is_word(const memory::Form& form, memory::Order order) {
    return form.order == order && form.bytes <= sizeof(std::uint64_t);
  }

  void tell(const memory::Form& form, const memory::Region& region, const memory::Access& lane) {
    if (region.place == memory::Region::kNowhere) return;
    const Ns there = at_ + clock_.latency(time_.gpu, region.place);
    // The program may look at it with the CPU, which asks nobody.
    if (region.path == memory::Path::kHost) clock_.wait_until(there);
    if (region.arrivals == nullptr) return;
    if (!is_word(form, memory::Order::kRelease)) return line_of(region, lane.address).note(there);
    std::array<std::byte, sizeof(std::uint64_t)> before{};
    memory::load_words(before.data(), memory::host_of(region, lane.address), form.bytes);
    line_of(region, lane.address)
        .note_release(lane.address % memory::kLineBytes, word_at(before.data(), form.bytes),
                      word_at(lane.data, form.bytes), there);
  }
  void look(const memory::Form& form, const memory::Region& region, const memory::Access& lane) {
    memory::Arrivals& line = line_of(region, lane.address);
    const Ns latency = clock_.latency(region.place, time_.gpu);
    if (!is_word(form, memory::Order::kAcquire)) return take_on(line.latest(), latency);
    Look& last = looked_[lane.address];
    const std::uint64_t value = word_at(lane.data, form.bytes);
    const auto seen = line.find(lane.address % memory::kLineBytes, value, at_ - latency,
                                last.stores == stores_ ? last.number : memory::Arrivals::kNone);
    last = {seen.number, stores_};
    if (seen.value != value) std::memcpy(lane.data, &seen.value, form.bytes);
    take_on(seen.at, latency);
  }
  void take_on(Ns there, Ns latency) {
    if (there + latency <= at_) return;
    settle(false);
    at_ = std::max(at_, there + latency);
  }
  /// A kernel that has looked in vain for so many times may leave. That they take this machine long to come
  /// by is not to be a reason.
  void rest() {
    constexpr unsigned kPatience = 1024, kLooks = 16;
    if (++looks_ > kPatience && looks_ % kLooks == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  GridTime& time_;
  machine::VirtualClock& clock_;
  memory::Regions regions_;
  std::unique_ptr<memory::View> view_;
  Ns at_;
  std::vector<Flow> flows_;  ///< what has been loaded and stored since settle()
  std::uint64_t waiting_bytes_ = 0;
  unsigned looks_ = 0;  ///< in vain, one after the other
  /// By address: which release the block has seen when it looked last, and how often it had stored by then.
  struct Look {
    std::int64_t number = memory::Arrivals::kNone;
    std::uint64_t stores = 0;
  };
  std::map<std::uint64_t, Look> looked_;
  std::uint64_t stores_ = 0;
};

}  // namespace

std::unique_ptr<memory::View> timed_view(GridTime& time, const memory::Space& space,
                                         std::unique_ptr<memory::View> view) {
  return std::make_unique<TimedView>(time, space, std::move(view));
}

}  // namespace virtual_gpu
