// protocols.hpp -- a model of device/steps/move.hpp: how one message crosses one link by Simple, LL and
// LL128, with slots as they are there. Each is a type with
//
//   words(bytes)
//       how long a slot of so many bytes of data is, in words
//   write(memory, slot, data, bytes, step)
//       the producer; never waits
//   try_read(memory, slot, data, bytes, step)
//       the consumer: false while step is not all there; then call again
//
// `step` numbers the messages of a link from 1; a slot holds an older message, or zeros, before. Memory is
// how words are reached, each in the order that the step code has for it: HostMemory here, stores that are
// delayed and torn in protocols_test.cpp. There the flag of Simple lies in front of the data.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/schedule/divide_up.hpp"
#include "device/steps/memory.hpp"

namespace loom::device::steps::model {

enum class Order {
  kPlain,    ///< not atomic: may tear; nobody looks at the same time
  kRelaxed,  ///< whole, in no order with others
  kRelease,  ///< a store that is seen after all earlier ones
  kAcquire   ///< a load that comes before all later ones
};

/// Words in memory that two threads or processes share.
struct HostMemory {
  static void store(Word* at, Word value, Order order) noexcept {
    if (order == Order::kPlain)
      *at = value;
    else
      std::atomic_ref(*at).store(
          value, order == Order::kRelease ? std::memory_order_release : std::memory_order_relaxed);
  }
  static Word load(const Word* at, Order order) noexcept {
    if (order == Order::kPlain) return *at;
    // atomic_ref<const T> comes with C++26.
    return std::atomic_ref(*const_cast<Word*>(at))
        .load(order == Order::kAcquire ? std::memory_order_acquire : std::memory_order_relaxed);
  }
};

/// Word i of the data, its end filled with zeros.
inline Word data_word(const std::byte* data, std::size_t bytes, std::size_t i) {
  Word word = 0;
  const std::size_t at = i * sizeof(Word);
  if (at == bytes) return word;  // without data there may be no pointer to any
  std::memcpy(&word, data + at, bytes - at < sizeof(Word) ? bytes - at : sizeof(Word));
  return word;
}
inline void put_data_word(std::byte* data, std::size_t bytes, std::size_t i, Word word) {
  const std::size_t at = i * sizeof(Word);
  if (at == bytes) return;
  std::memcpy(data + at, &word, bytes - at < sizeof(Word) ? bytes - at : sizeof(Word));
}

/// Data words and the one flag that covers them.
template <class Memory>
void write_flagged(Memory& memory, Word* line, const std::byte* data, std::size_t bytes, std::size_t first,
                   std::size_t data_words, Word* flag, Word step) {
  for (std::size_t i = 0; i < data_words; ++i)
    memory.store(line + i, data_word(data, bytes, first + i), Order::kPlain);
  memory.store(flag, step, Order::kRelease);
}
template <class Memory>
bool try_read_flagged(Memory& memory, const Word* line, std::byte* data, std::size_t bytes, std::size_t first,
                      std::size_t data_words, const Word* flag, Word step) {
  if (memory.load(flag, Order::kAcquire) != step) return false;
  for (std::size_t i = 0; i < data_words; ++i)
    put_data_word(data, bytes, first + i, memory.load(line + i, Order::kPlain));
  return true;
}

struct Simple {
  static constexpr std::size_t words(std::size_t bytes) { return 1 + divide_up(bytes, sizeof(Word)); }

  template <class Memory>
  static void write(Memory& memory, Word* slot, const std::byte* data, std::size_t bytes, Word step) {
    write_flagged(memory, slot + 1, data, bytes, 0, words(bytes) - 1, slot, step);
  }
  template <class Memory>
  static bool try_read(Memory& memory, const Word* slot, std::byte* data, std::size_t bytes, Word step) {
    return try_read_flagged(memory, slot + 1, data, bytes, 0, words(bytes) - 1, slot, step);
  }
};

struct LL {
  /// The upper half of a word is its flag: the step's lower half. A message of no bytes is one word.
  static constexpr std::size_t words(std::size_t bytes) { return bytes == 0 ? 1 : divide_up(bytes, 4); }

  template <class Memory>
  static void write(Memory& memory, Word* slot, const std::byte* data, std::size_t bytes, Word step) {
    for (std::size_t i = 0; i < words(bytes); ++i)
      memory.store(slot + i, data_word(data, bytes, i / 2) >> (i % 2 * 32) << 32 >> 32 | step << 32,
                   Order::kRelaxed);
  }
  /// What has been read before a word was missing is read again.
  template <class Memory>
  static bool try_read(Memory& memory, const Word* slot, std::byte* data, std::size_t bytes, Word step) {
    for (std::size_t i = 0; i < words(bytes); ++i) {
      const Word word = memory.load(slot + i, Order::kRelaxed);
      if (word >> 32 != (step & 0xffffffffU)) return false;
      const std::size_t at = i * 4;
      if (at < bytes) std::memcpy(data + at, &word, bytes - at < 4 ? bytes - at : 4);
    }
    return true;
  }
};

/// 15 words of data and a flag in a line of 128 bytes; fewer words make for fewer interleavings.
template <std::size_t kDataWords>
struct FlaggedLines {
  static constexpr std::size_t kLineWords = kDataWords + 1;
  static constexpr std::size_t lines(std::size_t bytes) {
    return bytes == 0 ? 1 : divide_up(bytes, kDataWords * sizeof(Word));
  }
  static constexpr std::size_t words(std::size_t bytes) { return lines(bytes) * kLineWords; }

  template <class Memory>
  static void write(Memory& memory, Word* slot, const std::byte* data, std::size_t bytes, Word step) {
    for (std::size_t line = 0; line < lines(bytes); ++line) {
      Word* const first = slot + line * kLineWords;
      write_flagged(memory, first, data, bytes, line * kDataWords, data_words(bytes, line),
                    first + kDataWords, step);
    }
  }
  template <class Memory>
  static bool try_read(Memory& memory, const Word* slot, std::byte* data, std::size_t bytes, Word step) {
    for (std::size_t line = 0; line < lines(bytes); ++line) {
      const Word* const first = slot + line * kLineWords;
      if (!try_read_flagged(memory, first, data, bytes, line * kDataWords, data_words(bytes, line),
                            first + kDataWords, step))
        return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t data_words(std::size_t bytes, std::size_t line) {
    const std::size_t left = divide_up(bytes, sizeof(Word)) - line * kDataWords;
    return left < kDataWords ? left : kDataWords;
  }
};
using LL128 = FlaggedLines<15>;
static_assert(LL128::kLineWords * sizeof(Word) == 128);

}  // namespace loom::device::steps::model
