// weak_view.cpp -- memory as weak as PTX allows, by rules that a random order of events keeps:
//
// Stores wait in a buffer, by line. Their thread sees them, and who has met it since, or somebody who had.
// They leave at any time and in any order, whole or sector by sector, except that stores to the same bytes
// keep theirs.
//
// Before a release or a fence, what the thread sees of them leaves. A fence at the GPU's scope lets go what
// no other GPU or process reaches; so does a release whose scope leaves out who reaches the word. At the
// block's scope all threads of the block see them. A release or an acquire is as good as one at system scope
// if its scope has all that reach the word: who synchronises so passes on what he knows, wherever that lies.
//
// Weak loads, and those of a scope that leaves out who stores there, may find a sector as the block has
// loaded it before, unless the thread has acquired since, itself or through a barrier. What was loaded once
// may be loaded again at any time, early for the next who asks. All others read memory.
//
// Lines that the lanes of one instruction cover stay whole on paths that keep them so. Weak loads alone take
// each sector by itself. Lanes need not load at once, even if they are together: whoever has seen a flag
// loads again what others have loaded.
//
// Loads that come late have no value yet, so they are not run but judged, in memory that says so
// (late_loads.hpp).
//
// What it does not have: loads that overtake earlier ones to memory that was never loaded before, and atomics
// that wait. Too weak is a fence at the GPU's scope before a relaxed store, for who passes on what lies
// elsewhere.
#include <algorithm>
#include <bitset>
#include <cstring>
#include <random>
#include <thread>
#include <unordered_map>

#include "tests/virtual_gpu/memory/late_loads.hpp"
#include "tests/virtual_gpu/memory/words.hpp"

namespace virtual_gpu::memory {
namespace {

constexpr std::size_t kSectorBytes = 32;
using Bytes = std::bitset<kLineBytes>;

std::uint64_t line_of(std::uint64_t address) {
  return address / kLineBytes * kLineBytes;
}
std::uint64_t sector_of(std::uint64_t address) {
  return address / kSectorBytes * kSectorBytes;
}

/// Of an aligned word of these bytes that starts there; 0: it is not among them.
std::size_t widest_word(const Bytes& bytes, std::size_t at) {
  for (std::size_t width = 8; width > 0; width /= 2) {
    if (at % width != 0) continue;
    std::size_t there = 0;
    while (there < width && bytes[at + there]) ++there;
    if (there == width) return width;
  }
  return 0;
}

/// Stores that wait.
struct Waiting {
  std::uint64_t line = 0;
  unsigned thread = 0;         ///< one of those whose they are
  Threads by, seen_by;         ///< whose they are; who sees them
  bool whole = false;          ///< they leave together
  bool strong = true;          ///< all of them, at a scope that has all who reach the line
  std::uint64_t acquired = 0;  ///< when their thread last did, by the clock of LateLoads
  Bytes bytes;                 ///< which of the line
  std::array<std::byte, kLineBytes> data{};

  /// Whether the other one's come behind these, as these threads know.
  bool come_before(const Waiting& other) const { return line == other.line && (seen_by & other.by).any(); }
};

/// A sector as it was loaded.
struct Loaded {
  std::array<std::byte, kSectorBytes> data{};
  std::uint64_t time = 0;
};

class WeakView final : public View {
 public:
  WeakView(const Space& space, unsigned threads, std::uint64_t seed)
      : regions_(space), random_(seed), acquired_(threads) {
    constexpr unsigned kRates[] = {2, 16, 128};
    leaves_each_ = kRates[random_() % std::size(kRates)];
  }

  void load(const Form& form, std::span<const Access> lanes) override;
  void store(const Form& form, std::span<const Access> lanes) override;
  std::uint64_t update(const Form& form, unsigned thread, std::uint64_t address, Change change,
                       std::uint64_t a, std::uint64_t b) override;
  void fence(unsigned thread, Scope scope) override {
    publish(thread, scope);
    acquire(thread, scope);
  }
  void meet(std::span<const unsigned> threads) override;
  void finish() override {
    late_.end_all();
    while (!waiting_.empty()) leave(random_() % waiting_.size(), Bytes().set());
  }

 private:
  /// When a thread last acquired what others have released, at either scope.
  struct Acquired {
    std::uint64_t gpu = 0, system = 0;
    std::uint64_t of_late_loads = 0;  ///< at system scope, by their clock
  };
  static constexpr std::size_t kMostWaiting = 64, kMostLoaded = 4096;

  bool one_in(unsigned n) { return random_() % n == 0; }
  void some_leave();
  void load_early(unsigned thread);
  void load_at_once(const Form& form, std::span<const Access> lanes);
  void leave(std::size_t index, Bytes which);
  void expect_loads_ended(const Waiting& going, const Bytes& which);
  void put(const Access& lane, std::size_t bytes, bool strong);
  void publish(unsigned thread, Scope scope);
  void acquire(unsigned thread, Scope scope);
  void read(const Form& form, const Access& lane, const std::byte* line);
  void read_weakly(const Region& region, const Form& form, const Access& lane);
  void write_memory(unsigned thread, std::uint64_t address, const std::byte* from, std::size_t bytes);
  Bytes overlay(unsigned thread, std::uint64_t address, std::size_t bytes, std::byte* to) const;
  static bool is_strong(const Form& form, const Region& region) {
    return form.order != Order::kWeak && suffices(form.scope, region);
  }
  static bool suffices(Scope scope, const Region& region) {
    return scope == Scope::kSystem || (scope == Scope::kGpu && region.this_gpu_only);
  }

  Regions regions_;
  std::mt19937_64 random_;
  unsigned leaves_each_;          ///< so many accesses
  std::vector<Waiting> waiting_;  ///< in order of program for those of one thread
  std::unordered_map<std::uint64_t, Loaded> loaded_;
  std::uint64_t time_ = 0;
  std::vector<Acquired> acquired_;  ///< by thread
  OpenLoads late_;
};

void WeakView::some_leave() {
  if (waiting_.empty() || !one_in(leaves_each_)) return;
  const std::size_t index = random_() % waiting_.size();
  Bytes which;
  const std::size_t first = random_() % (kLineBytes / kSectorBytes) * kSectorBytes;
  for (std::size_t i = 0; i < kSectorBytes; ++i) which.set(first + i);
  leave(index, one_in(2) ? which : Bytes().set());
}

/// These bytes of a line go to memory. Earlier stores to them would come first: nobody sees them any more.
void WeakView::leave(std::size_t index, Bytes which) {
  const Waiting going = waiting_[index];
  if (going.whole) which.set();
  which &= going.bytes;
  for (std::size_t i = 0; i <= index; ++i)
    if (i == index || waiting_[i].come_before(going)) waiting_[i].bytes &= ~which;
  std::erase_if(waiting_, [](const Waiting& stores) { return stores.bytes.none(); });

  if (which.none()) return;
  expect_loads_ended(going, which);
  const auto write = [&] {
    for (std::size_t at = 0, bytes; at < kLineBytes; at += std::max<std::size_t>(bytes, 1)) {
      bytes = widest_word(which, at);
      if (bytes > 0) write_memory(going.thread, going.line + at, going.data.data() + at, bytes);
    }
  };
  if (!going.whole) return write();
  const Region region = regions_.find(going.thread, going.line, kLineBytes, true);
  const LineGuard guard(region, going.line);
  write();
}

void WeakView::expect_loads_ended(const Waiting& going, const Bytes& which) {
  std::size_t at = 0;
  while (!which[at]) ++at;
  const Region& region = regions_.find(going.thread, going.line + at, 1, true);
  for (; at < kLineBytes && region.late != nullptr; ++at) {
    if (!which[at]) continue;
    if (!region.late->store(going.line + at - region.begin, going.acquired, going.strong))
      throw Error(
          Error::Kind::kUnordered, going.thread,
          "a store and a load by others race: the load is not released and acquired before the store");
    at |= LateLoads::kBytes - 1;
  }
}

void WeakView::write_memory(unsigned thread, std::uint64_t address, const std::byte* from,
                            std::size_t bytes) {
  const Region& region = regions_.find(thread, address, bytes, true);
  store_words(host_of(region, address), from, bytes);
  if (region.written != nullptr) region.written->mark(address - region.begin, bytes);
  const auto loaded = loaded_.find(sector_of(address));
  if (loaded != loaded_.end()) std::memcpy(loaded->second.data.data() + address % kSectorBytes, from, bytes);
  if (region.on_store != nullptr) (*region.on_store)();
}

/// What the thread sees of stores that wait, the latest first.
Bytes WeakView::overlay(unsigned thread, std::uint64_t address, std::size_t bytes, std::byte* to) const {
  Bytes found;
  const std::uint64_t line = line_of(address);
  for (auto stores = waiting_.rbegin(); stores != waiting_.rend(); ++stores) {
    if (stores->line != line || !stores->seen_by[thread]) continue;
    for (std::size_t i = 0; i < bytes; ++i) {
      const std::size_t at = address - line + i;
      if (!stores->bytes[at] || found[i]) continue;
      to[i] = stores->data[at];
      found.set(i);
    }
  }
  return found;
}

void WeakView::load(const Form& form, std::span<const Access> lanes) {
  some_leave();
  if (form.order != Order::kWeak && one_in(32)) load_early(lanes.front().thread);
  if (lanes.size() > 1 && form.order != Order::kWeak && one_in(4)) {
    const std::size_t first = 1 + random_() % (lanes.size() - 1);
    load_at_once(form, lanes.first(first));
    std::this_thread::yield();
    load_at_once(form, lanes.subspan(first));
  } else {
    load_at_once(form, lanes);
  }
}

/// What will be loaded later may be on its way already.
void WeakView::load_early(unsigned thread) {
  for (auto& [sector, loaded] : loaded_) {
    load_words(loaded.data.data(), host_of(regions_.find(thread, sector, kSectorBytes, false), sector),
               kSectorBytes);
    loaded.time = ++time_;
  }
}

void WeakView::load_at_once(const Form& form, std::span<const Access> lanes) {
  std::vector<std::uint64_t> whole;
  if (form.order != Order::kWeak) whole = whole_lines(regions_, form, lanes, false);
  std::vector<std::array<std::byte, kLineBytes>> lines(whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const Region region = regions_.find(lanes.front().thread, whole[i], kLineBytes, false);
    const LineGuard guard(region, whole[i]);
    load_words(lines[i].data(), host_of(region, whole[i]), kLineBytes);
  }
  for (const Access& lane : lanes) {
    const auto line = std::find(whole.begin(), whole.end(), line_of(lane.address));
    const std::byte* const snapshot =
        line == whole.end() ? nullptr : lines[static_cast<std::size_t>(line - whole.begin())].data();
    read(form, lane, snapshot);
  }
  if (form.order != Order::kAcquire) return;
  for (const Access& lane : lanes)
    if (suffices(form.scope, regions_.find(lane.thread, lane.address, form.bytes, false)))
      acquire(lane.thread, Scope::kSystem);
}

/// `line`: the whole line as the instruction has read it, or nullptr.
void WeakView::read(const Form& form, const Access& lane, const std::byte* line) {
  Regions::Found& region = regions_.find(lane.thread, lane.address, form.bytes, false);
  region.loaded_here += form.bytes;
  std::array<std::byte, 16> own{};
  const Bytes found = overlay(lane.thread, lane.address, form.bytes, own.data());
  if (found.count() < form.bytes) {
    for (std::size_t i = 0; i < form.bytes; ++i)
      if (!found[i]) expect_written(region, lane.thread, lane.address + i, 1);
    if (!is_strong(form, region)) {
      read_weakly(region, form, lane);
    } else {
      if (line != nullptr)
        std::memcpy(lane.data, line + lane.address % kLineBytes, form.bytes);
      else
        load_words(lane.data, host_of(region, lane.address), form.bytes);
      // What was seen once is not followed by what was there before.
      if (const auto loaded = loaded_.find(sector_of(lane.address)); loaded != loaded_.end())
        std::memcpy(loaded->second.data.data() + lane.address % kSectorBytes, lane.data, form.bytes);
    }
  }
  for (std::size_t i = 0; i < form.bytes; ++i)
    if (found[i]) lane.data[i] = own[i];
  if (region.late != nullptr) late_.add(region, lane.address, lane.thread, is_strong(form, region));
}

void WeakView::read_weakly(const Region& region, const Form& form, const Access& lane) {
  const std::uint64_t sector = sector_of(lane.address);
  if (sector < region.begin || region.bytes - (sector - region.begin) < kSectorBytes) {
    load_words(lane.data, host_of(region, lane.address), form.bytes);
    return;
  }
  if (loaded_.size() > kMostLoaded) loaded_.clear();
  Loaded& loaded = loaded_[sector];
  const Acquired& acquired = acquired_[lane.thread];
  const std::uint64_t since =
      region.this_gpu_only ? std::max(acquired.gpu, acquired.system) : acquired.system;
  if (loaded.time <= since || one_in(4)) {
    load_words(loaded.data.data(), host_of(region, sector), kSectorBytes);
    loaded.time = ++time_;
  }
  std::memcpy(lane.data, loaded.data.data() + lane.address % kSectorBytes, form.bytes);
}

void WeakView::store(const Form& form, std::span<const Access> lanes) {
  some_leave();
  for (const Access& lane : lanes)
    regions_.find(lane.thread, lane.address, form.bytes, true).stored_here += form.bytes;
  std::vector<std::uint64_t> whole;
  if (form.order != Order::kRelease) whole = whole_lines(regions_, form, lanes, true);
  for (const std::uint64_t line : whole) {
    Waiting& together = waiting_.emplace_back();
    together.line = line;
    together.thread = lanes.front().thread;
    together.whole = true;
    together.strong = is_strong(form, regions_.find(lanes.front().thread, line, kLineBytes, true));
    together.acquired = acquired_[lanes.front().thread].of_late_loads;
    together.bytes.set();
    for (const Access& lane : lanes) {
      if (line_of(lane.address) != line) continue;
      together.by.set(lane.thread);
      std::memcpy(together.data.data() + (lane.address - line), lane.data, form.bytes);
    }
    together.seen_by = together.by;
  }
  for (const Access& lane : lanes) {
    const Region region = regions_.find(lane.thread, lane.address, form.bytes, true);
    const bool releases = form.order == Order::kRelease, to_all = releases && suffices(form.scope, region);
    if (releases) publish(lane.thread, to_all ? Scope::kSystem : form.scope);
    if (to_all)
      write_memory(lane.thread, lane.address, lane.data, form.bytes);
    else if (std::find(whole.begin(), whole.end(), line_of(lane.address)) == whole.end())
      put(lane, form.bytes, is_strong(form, region));
    if (releases && form.scope == Scope::kBlock) publish(lane.thread, form.scope);
  }
  while (waiting_.size() > kMostWaiting) leave(random_() % waiting_.size(), Bytes().set());
}

/// Joins what the thread has stored to the line last, if that is its alone.
void WeakView::put(const Access& lane, std::size_t bytes, bool strong) {
  const std::uint64_t line = line_of(lane.address);
  const Threads alone = Threads().set(lane.thread);
  const auto latest = std::find_if(waiting_.rbegin(), waiting_.rend(), [&](const Waiting& stores) {
    return stores.line == line && stores.seen_by[lane.thread];
  });
  const bool joins = latest != waiting_.rend() && !latest->whole && latest->seen_by == alone;
  Waiting& stores = joins ? *latest : waiting_.emplace_back();
  stores.line = line;
  stores.thread = lane.thread;
  stores.by = stores.seen_by = alone;
  stores.strong &= strong;
  stores.acquired = acquired_[lane.thread].of_late_loads;
  for (std::size_t i = 0; i < bytes; ++i) {
    stores.bytes.set(lane.address - line + i);
    stores.data[lane.address - line + i] = lane.data[i];
  }
}

std::uint64_t WeakView::update(const Form& form, unsigned thread, std::uint64_t address, Change change,
                               std::uint64_t a, std::uint64_t b) {
  some_leave();
  Regions::Found& found = regions_.find(thread, address, form.bytes, true);
  found.loaded_here += form.bytes;
  found.stored_here += form.bytes;
  const Region region = found;
  const Scope scope = suffices(form.scope, region) ? Scope::kSystem : form.scope;
  if (form.order == Order::kRelease || form.order == Order::kAcquireRelease) publish(thread, scope);
  // The word's own stores come first.
  for (std::size_t i = waiting_.size(); i-- > 0;)
    if (i < waiting_.size() && waiting_[i].line == line_of(address) && waiting_[i].seen_by[thread])
      leave(i, Bytes().set());
  expect_written(region, thread, address, form.bytes);
  const std::uint64_t old = update_word(host_of(region, address), form.bytes, change, a, b);
  loaded_.erase(sector_of(address));
  if ((form.order == Order::kAcquire || form.order == Order::kAcquireRelease) && scope == Scope::kSystem)
    acquire(thread, scope);
  return old;
}

/// What the thread knows to be stored is there for all in the scope before anything that follows.
void WeakView::publish(unsigned thread, Scope scope) {
  if (scope == Scope::kBlock) {
    for (Waiting& stores : waiting_)
      if (stores.seen_by[thread]) stores.seen_by.set();
    return;
  }
  late_.end(thread, scope == Scope::kSystem);
  for (;;) {
    std::vector<std::size_t> going;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      const Waiting& stores = waiting_[i];
      std::size_t first = 0;
      while (!stores.bytes[first]) ++first;
      if (stores.seen_by[thread] && suffices(scope, regions_.find(thread, stores.line + first, 1, true)))
        going.push_back(i);
    }
    if (going.empty()) return;
    leave(going[random_() % going.size()], Bytes().set());
  }
}

void WeakView::acquire(unsigned thread, Scope scope) {
  if (scope == Scope::kBlock) return;
  acquired_[thread].gpu = ++time_;
  if (scope != Scope::kSystem) return;
  acquired_[thread].system = time_;
  acquired_[thread].of_late_loads = LateLoads::now();
}

void WeakView::meet(std::span<const unsigned> threads) {
  Acquired latest;
  for (const unsigned thread : threads) {
    latest.gpu = std::max(latest.gpu, acquired_[thread].gpu);
    latest.system = std::max(latest.system, acquired_[thread].system);
    latest.of_late_loads = std::max(latest.of_late_loads, acquired_[thread].of_late_loads);
  }
  Threads all;
  for (const unsigned thread : threads) {
    acquired_[thread] = latest;
    all.set(thread);
  }
  for (Waiting& stores : waiting_)
    if ((stores.seen_by & all).any()) stores.seen_by |= all;
  late_.meet(all);
}

}  // namespace

std::unique_ptr<View> weak_view(const Space& space, unsigned threads, std::uint64_t seed) {
  return std::make_unique<WeakView>(space, threads, seed);
}

}  // namespace virtual_gpu::memory
