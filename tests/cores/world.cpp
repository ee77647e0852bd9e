#include "tests/cores/world.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <system_error>

#include "base/error.hpp"
#include "base/format.hpp"
#include "tests/device/host/fiber.hpp"

namespace loom::cores {
namespace {

using device::Fiber;

constexpr std::size_t kMemoryBytes = std::size_t{16} << 30;  // reserved, and used as far as it is touched
constexpr std::size_t kPageBytes = 4096;

}  // namespace

World::World(std::vector<Core> cores, const Costs& costs)
    : cores_(std::move(cores)), costs_(costs), ranks_(cores_.size()) {
  if (ranks_.size() > kMostRanks)
    throw Error(ErrorCode::kBadInput, "The model is for 256 ranks at the most.");
  void* const memory = ::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  memory_ = static_cast<std::byte*>(memory);
}

World::~World() {
  ::munmap(memory_, kMemoryBytes);
}

std::byte* World::allocate(std::size_t bytes) {
  std::byte* const at = memory_ + used_;
  used_ += (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (used_ > kMemoryBytes) throw Error(ErrorCode::kBadInput, "The model has no more shared memory.");
  pages_.resize(used_ / kLineBytes / kLinesPerPage);
  return at;
}

World::Line& World::line(std::size_t index) {
  auto& page = pages_[index / kLinesPerPage];
  if (!page) page = std::make_unique<std::array<Line, kLinesPerPage>>();
  return (*page)[index % kLinesPerPage];
}

Counts World::run(const std::function<void(int)>& body) {
  std::vector<std::unique_ptr<Fiber>> fibers;
  double begin = 0;
  for (const Rank& rank : ranks_) begin = std::max({begin, rank.clock, rank.stored_at});
  counts_ = {};
  ++run_;
  for (int rank = 0; rank < ranks(); ++rank) {
    fibers.push_back(std::make_unique<Fiber>([&body, rank] { body(rank); }));
    Rank& own = ranks_[static_cast<std::size_t>(rank)];
    own.clock = own.stored_at = begin;
    own.waits = 0;
    own.goes_on = own.has_slept = false;
    own.lines = 0;
    ready_.insert({begin, rank});
  }
  int done = 0;
  current_ = this;
  try {
    while (!ready_.empty()) {
      running_ = ready_.begin()->second;
      ready_.erase(ready_.begin());
      Fiber& fiber = *fibers[static_cast<std::size_t>(running_)];
      fiber.resume();
      if (fiber.done()) ++done;
    }
  } catch (...) {
    current_ = nullptr;
    ready_.clear();
    awaiting_.clear();
    throw;
  }
  current_ = nullptr;
  running_ = -1;
  if (done < ranks())
    throw Error(ErrorCode::kInternal, loom::format("{} ranks wait for ever.", ranks() - done));
  for (const Rank& rank : ranks_) {
    counts_.ns = std::max(counts_.ns, rank.clock - begin);
    counts_.waits = std::max(counts_.waits, rank.waits);
    counts_.most_lines = std::max(counts_.most_lines, rank.lines);
  }
  return counts_;
}

void World::read(const void* from, std::size_t bytes) {
  access(from, bytes, Access::kRead);
}
void World::write(const void* to, std::size_t bytes) {
  access(to, bytes, Access::kWrite);
}

void World::access(const void* at, std::size_t bytes, Access access) {
  if (bytes == 0 || !is_shared(at)) return;
  const auto first = static_cast<std::size_t>(static_cast<const std::byte*>(at) - memory_);
  const std::size_t last = (first + bytes - 1) / kLineBytes;
  for (std::size_t index = first / kLineBytes; index <= last; ++index)
    if (access == Access::kRead || access == Access::kLook)
      load(index, access == Access::kLook);
    else
      store(index, access == Access::kPublish);
}

/// Ranks whose clocks are behind go first.
void World::take_turn() {
  const std::pair mine(ranks_[static_cast<std::size_t>(running_)].clock, running_);
  if (ready_.empty() || mine < *ready_.begin()) return;
  ready_.insert(mine);
  Fiber::stop();
}

bool World::is_in_stream(Rank& rank, std::size_t index) const {
  for (std::size_t& next : rank.streams)
    if (next == index) {
      ++next;
      return true;
    }
  rank.streams[rank.next_stream++ % rank.streams.size()] = index + 1;
  return false;
}

void World::load(std::size_t index, bool is_look) {
  const auto self = static_cast<std::size_t>(running_);
  Rank& rank = ranks_[self];
  if (is_look) rank.looked_at = index;
  if (line(index).holders[self]) return;
  take_turn();
  Line& it = line(index);
  if (it.writer < 0) {  // nobody has ever written it
    it.holders.set(self);
    return;
  }
  const Core &mine = cores_[self], &writers = cores_[static_cast<std::size_t>(it.writer)];
  const auto copy_in = [&](int cache) { return std::ranges::find(it.copies, cache, &Copy::cache); };
  auto copy = copy_in(mine.cache);
  const bool is_near = copy != it.copies.end();
  if (!is_near) copy = copy_in(writers.cache);
  const double full = latency(is_near ? Distance::kSameCache : distance(mine, writers));
  const bool in_stream = is_in_stream(rank, index);
  const double share = in_stream ? 1 / costs_.stream : rank.goes_on ? 1 / costs_.misses : 1;
  const double asked = rank.clock - full * (1 - share);
  const double answered = std::max({asked, it.ready_at, copy->free_at});
  const bool waited = rank.has_slept || it.ready_at > asked;
  rank.has_slept = false;
  copy->free_at = answered + costs_.served;
  rank.clock = std::max(rank.clock, answered + full);
  if (!is_near) it.copies.push_back({mine.cache, rank.clock});
  it.holders.set(self);
  rank.goes_on = !waited;
  if (it.writer == running_) return;  // it has moved to a copy of another core and back
  ++rank.lines;
  ++counts_.lines[static_cast<std::size_t>(distance(mine, writers))];
  if (!is_near && mine.numa_node != writers.numa_node) counts_.numa_bytes += kLineBytes;
  if (is_look && waited && it.run == run_) rank.waits = std::max(rank.waits, it.waits + 1);
}

void World::store(std::size_t index, bool is_flag) {
  const auto self = static_cast<std::size_t>(running_);
  Rank& rank = ranks_[self];
  const auto is_mine = [&](const Line& it) {
    return it.writer == running_ && it.holders.count() == 1 && it.holders[self];
  };
  if (!is_mine(line(index))) take_turn();
  Line& it = line(index);
  double full = 0;
  if (!is_mine(it)) {
    if (it.writer >= 0) {
      const Core& writers = cores_[static_cast<std::size_t>(it.writer)];
      if (it.writer != running_ && !it.holders[self] && writers.numa_node != cores_[self].numa_node)
        counts_.numa_bytes += kLineBytes;
      Cores others = it.holders;
      others.set(static_cast<std::size_t>(it.writer));
      others.reset(self);
      for (std::size_t other = 0; other < ranks_.size(); ++other)
        if (others[other]) full = std::max(full, latency(distance(cores_[self], cores_[other])));
    }
    it.holders.reset();
    it.holders.set(self);
    it.writer = running_;
    it.copies.assign(1, {cores_[self].cache, 0});
  }
  it.ready_at = rank.stored_at = std::max(rank.clock + full, rank.stored_at + full / costs_.stream);
  it.copies.front().free_at = it.ready_at;
  if (is_flag) {
    it.waits = rank.waits;
    it.run = run_;
  }
  if (!it.is_awaited) return;
  it.is_awaited = false;
  const auto awaiting = awaiting_.find(index);
  for (const int sleeper : awaiting->second) {
    double& clock = ranks_[static_cast<std::size_t>(sleeper)].clock;
    clock = std::max(clock, rank.clock);
    ready_.insert({clock, sleeper});
  }
  awaiting_.erase(awaiting);
}

void World::wait() {
  const auto self = static_cast<std::size_t>(running_);
  const std::size_t index = ranks_[self].looked_at;
  Line& it = line(index);
  ranks_[self].goes_on = false;
  ranks_[self].has_slept = true;
  if (!it.holders[self]) return;
  it.is_awaited = true;
  awaiting_[index].push_back(running_);
  Fiber::stop();
}

void World::spend(double ns) {
  ranks_[static_cast<std::size_t>(running_)].clock += ns;
}

}  // namespace loom::cores
