#include "tests/virtual_gpu/memory/words.hpp"

#include <cstring>
#include <thread>

#include "base/format.hpp"

namespace virtual_gpu::memory {
namespace {

/// Calls body<Word>() with the widest word of which `bytes` are a multiple.
template <class Body>
auto by_word(std::size_t bytes, Body&& body) {
  if (bytes % 8 == 0) return body.template operator()<std::uint64_t>();
  if (bytes % 4 == 0) return body.template operator()<std::uint32_t>();
  if (bytes % 2 == 0) return body.template operator()<std::uint16_t>();
  return body.template operator()<std::uint8_t>();
}
template <class Word>
std::atomic_ref<Word> word_at(const std::byte* host) {
  return std::atomic_ref(*const_cast<Word*>(reinterpret_cast<const Word*>(host)));
}

std::atomic_ref<std::uint64_t> bits_of(std::uint64_t* words, std::size_t offset) {
  return std::atomic_ref(words[offset / 64]);
}
/// Calls body(offset, mask) for each word of the map that has bits of these bytes; until it returns false.
template <class Body>
bool for_each_word(std::size_t offset, std::size_t bytes, Body&& body) {
  for (const std::size_t end = offset + bytes; offset < end;) {
    const std::size_t first = offset % 64, count = std::min(end - offset, 64 - first);
    const std::uint64_t mask = (count == 64 ? ~0ULL : (1ULL << count) - 1) << first;
    if (!body(offset, mask)) return false;
    offset += count;
  }
  return true;
}

}  // namespace

void WrittenMap::mark(std::size_t offset, std::size_t bytes) {
  for_each_word(offset, bytes, [&](std::size_t at, std::uint64_t mask) {
    const auto bits = bits_of(words_, at);
    if ((bits.load(std::memory_order_relaxed) & mask) != mask) bits.fetch_or(mask, std::memory_order_relaxed);
    return true;
  });
}
bool WrittenMap::all_written(std::size_t offset, std::size_t bytes) const {
  return for_each_word(offset, bytes, [&](std::size_t at, std::uint64_t mask) {
    return (bits_of(words_, at).load(std::memory_order_relaxed) & mask) == mask;
  });
}

// Acquire and release cost nothing on x86; which orders a kernel asked for is up to the models.
void load_words(std::byte* to, const std::byte* host, std::size_t bytes) {
  by_word(bytes, [&]<class Word>() {
    for (std::size_t i = 0; i < bytes; i += sizeof(Word)) {
      const Word word = word_at<Word>(host + i).load(std::memory_order_acquire);
      std::memcpy(to + i, &word, sizeof(Word));
    }
  });
}
void store_words(std::byte* host, const std::byte* from, std::size_t bytes) {
  by_word(bytes, [&]<class Word>() {
    for (std::size_t i = 0; i < bytes; i += sizeof(Word)) {
      Word word;
      std::memcpy(&word, from + i, sizeof(Word));
      word_at<Word>(host + i).store(word, std::memory_order_release);
    }
  });
}
void load_row(std::span<const Access> lanes, const std::byte* host, std::size_t bytes) {
  by_word(bytes, [&]<class Word>() {
    for (const Access& lane : lanes)
      for (std::size_t i = 0; i < bytes; i += sizeof(Word), host += sizeof(Word)) {
        const Word word = word_at<Word>(host).load(std::memory_order_acquire);
        std::memcpy(lane.data + i, &word, sizeof(Word));
      }
  });
}
void store_row(std::byte* host, std::span<const Access> lanes, std::size_t bytes) {
  by_word(bytes, [&]<class Word>() {
    for (const Access& lane : lanes)
      for (std::size_t i = 0; i < bytes; i += sizeof(Word), host += sizeof(Word)) {
        Word word;
        std::memcpy(&word, lane.data + i, sizeof(Word));
        word_at<Word>(host).store(word, std::memory_order_release);
      }
  });
}
std::uint64_t update_word(std::byte* host, std::size_t bytes, View::Change change, std::uint64_t a,
                          std::uint64_t b) {
  return by_word(bytes, [&]<class Word>() -> std::uint64_t {
    const auto word = word_at<Word>(host);
    Word old = word.load();
    while (!word.compare_exchange_weak(old, static_cast<Word>(change(old, a, b)))) {
    }
    return old;
  });
}

namespace {

void flush(const Regions::Found& found) {
  if (found.loaded != nullptr) found.loaded->fetch_add(found.loaded_here, std::memory_order_relaxed);
  if (found.stored != nullptr) found.stored->fetch_add(found.stored_here, std::memory_order_relaxed);
}

}  // namespace

void Regions::forget_all() {
  for (const Found& found : found_) flush(found);
  found_.clear();
}

Regions::Found& Regions::search(unsigned thread, std::uint64_t address, std::size_t bytes, bool stores) {
  if (address % bytes != 0)
    throw Error(Error::Kind::kMisaligned, thread, loom::format("{:#x} is no multiple of {}", address, bytes));
  if (const std::uint64_t now = space_.generation(); now != generation_) {
    forget_all();
    generation_ = now;
  }
  auto at = std::find_if(found_.begin(), found_.end(),
                         [&](const Region& region) { return address - region.begin < region.bytes; });
  if (at == found_.end()) {
    const Region region = space_.find(address);
    if (address - region.begin >= region.bytes)
      throw Error(Error::Kind::kForeignAddress, thread, loom::format("there is no memory at {:#x}", address));
    constexpr std::size_t kMost = 16;
    if (found_.size() == kMost) {
      flush(found_.back());
      found_.pop_back();
    }
    at = found_.insert(found_.begin(), Found(region));
  } else if (at != found_.begin()) {
    std::iter_swap(at, std::prev(at));
    --at;
  }
  if (at->bytes - (address - at->begin) < bytes)
    throw Error(Error::Kind::kForeignAddress, thread,
                loom::format("{} bytes at {:#x} end behind the memory there", bytes, address));
  if (stores && !at->writable)
    throw Error(Error::Kind::kReadOnly, thread, loom::format("{:#x} is mapped for loads alone", address));
  return *at;
}

void expect_written(const Region& region, unsigned thread, std::uint64_t address, std::size_t bytes) {
  if (region.written != nullptr && !region.written->all_written(address - region.begin, bytes))
    throw Error(Error::Kind::kNeverWritten, thread,
                loom::format("{} bytes at {:#x} were never written", bytes, address));
}

std::vector<std::uint64_t> whole_lines(Regions& regions, const Form& form, std::span<const Access> lanes,
                                       bool stores) {
  std::vector<std::uint64_t> result;
  if (lanes.size() * form.bytes < kLineBytes) return result;
  struct Line {
    std::uint64_t begin;
    std::array<std::uint64_t, 2> covered;  ///< by byte
  };
  std::vector<Line> lines;
  const std::uint64_t bytes = (std::uint64_t{1} << form.bytes) - 1;
  for (const Access& access : lanes) {
    const std::uint64_t begin = access.address / kLineBytes * kLineBytes, offset = access.address - begin;
    if (offset % form.bytes != 0) continue;  // an error, which who loads or stores it finds
    auto at = std::ranges::find(lines, begin, &Line::begin);
    if (at == lines.end()) at = lines.insert(at, {begin, {}});
    at->covered[offset / 64] |= bytes << offset % 64;
  }
  for (const Line& line : lines) {
    if ((line.covered[0] & line.covered[1]) != ~std::uint64_t{0}) continue;
    const Region& region = regions.find(lanes.front().thread, line.begin, kLineBytes, stores);
    if (keeps_lines_whole(region.path)) result.push_back(line.begin);
  }
  return result;
}

namespace {

std::atomic<std::uint32_t>& lock_of(const Region& region, std::uint64_t line) {
  static LineLocks ours;
  LineLocks& locks = region.locks != nullptr ? *region.locks : ours;
  const auto host = reinterpret_cast<std::uintptr_t>(host_of(region, line));
  return locks.locks[host / kLineBytes % LineLocks::kCount];
}

}  // namespace

LineGuard::LineGuard(const Region& region, std::uint64_t line) : lock_(lock_of(region, line)) {
  // A process that ended while it held the lock does not give it back.
  constexpr int kMostTries = 1'000'000;
  for (int i = 0; lock_.exchange(1, std::memory_order_acquire) != 0 && i < kMostTries; ++i)
    std::this_thread::yield();
}
LineGuard::~LineGuard() {
  lock_.store(0, std::memory_order_release);
}

}  // namespace virtual_gpu::memory
