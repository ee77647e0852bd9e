// Tries the protocols of the step code in a model of memory: the producer's stores become visible in every
// order that their memory orders allow, plain ones in halves, and each load of the consumer may see any
// moment that its order allows.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "device/link/step_flag.hpp"
#include "tests/device/steps/protocols.hpp"

namespace loom::device::steps::model {
namespace {

/// A store, or a half of one, on its way.
struct Store {
  Word* at;
  Word value, mask;
  bool release;
};

struct Weaknesses {
  bool tears_words = false;      ///< 8-byte atomic stores become visible in halves
  bool ignores_release = false;  ///< release stores are relaxed
  bool ignores_acquire = false;  ///< acquire loads are relaxed
};

/// Notes what the producer stores.
struct Recorder {
  Weaknesses weaknesses;
  std::vector<Store> stores;

  void store(Word* at, Word value, Order order) {
    constexpr Word kLow = 0xffffffffU;
    const bool release = order == Order::kRelease && !weaknesses.ignores_release;
    if (order == Order::kPlain || weaknesses.tears_words) {
      stores.push_back({at, value, kLow, release});
      stores.push_back({at, value, ~kLow, release});
    } else {
      stores.push_back({at, value, ~Word{0}, release});
    }
  }
};

/// One run of the consumer: its n-th load sees memory after choices[n] of the stores; choices grows on
/// demand.
struct Viewer {
  const std::vector<Store>& visible;  ///< in the order in which they become so
  std::vector<std::size_t>& choices;
  const std::map<const Word*, Word>& before;
  Weaknesses weaknesses;
  std::size_t loads = 0, acquired = 0;
  std::map<const Word*, std::size_t> seen = {};  ///< a second load of a word sees no earlier value

  Word load(const Word* at, Order order) {
    if (loads == choices.size()) choices.push_back(0);
    const std::size_t when = std::max({choices[loads], acquired, seen[at]});
    choices[loads++] = when;
    seen[at] = when;
    if (order == Order::kAcquire && !weaknesses.ignores_acquire) acquired = when;
    Word value = before.at(at);
    for (std::size_t i = 0; i < when; ++i)
      if (visible[i].at == at) value = (value & ~visible[i].mask) | (visible[i].value & visible[i].mask);
    return value;
  }
};

/// The next sequence of choices, each in [0, last]; false after the last one.
bool next_choices(std::vector<std::size_t>& choices, std::size_t last) {
  while (!choices.empty() && choices.back() == last) choices.pop_back();
  if (choices.empty()) return false;
  ++choices.back();
  return true;
}

bool allowed(const std::vector<Store>& stores, const std::vector<std::size_t>& order) {
  for (std::size_t i = 0; i < order.size(); ++i)
    for (std::size_t j = i + 1; j < order.size(); ++j)
      if (order[j] < order[i] && stores[order[i]].release) return false;  // overtook what it releases
  return true;
}

struct Outcome {
  std::size_t runs = 0, complete = 0, wrong = 0;
};

/// Message `step` of `bytes` bytes over what message `step - 1` has left in the slot.
template <class Protocol>
Outcome explore(std::size_t bytes, Weaknesses weaknesses) {
  const Word step = 7;
  std::vector<Word> slot(Protocol::words(bytes));
  std::vector<std::byte> old_data(bytes, std::byte{0x11}), data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(0xa0 + i);
  HostMemory host;
  Protocol::write(host, slot.data(), old_data.data(), bytes, step - 1);
  std::map<const Word*, Word> before;
  for (const Word& word : slot) before[&word] = word;
  Recorder recorder{weaknesses, {}};
  Protocol::write(recorder, slot.data(), data.data(), bytes, step);

  Outcome outcome;
  std::vector<std::size_t> order(recorder.stores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  do {
    if (!allowed(recorder.stores, order)) continue;
    std::vector<Store> visible;
    for (const std::size_t i : order) visible.push_back(recorder.stores[i]);
    std::vector<std::size_t> choices;
    do {
      Viewer viewer{visible, choices, before, weaknesses};
      std::vector<std::byte> got(bytes);
      const bool read = Protocol::try_read(viewer, slot.data(), got.data(), bytes, step);
      choices.resize(viewer.loads);
      ++outcome.runs;
      outcome.complete += read;
      outcome.wrong += read && got != data;
      const bool all_seen =
          std::all_of(choices.begin(), choices.end(), [&](std::size_t c) { return c == visible.size(); });
      if (all_seen) {
        EXPECT_TRUE(read) << "everything is visible, and the message is not";
      }
    } while (next_choices(choices, visible.size()));
  } while (std::next_permutation(order.begin(), order.end()));
  return outcome;
}

/// Two data words in a line keep the model small; the code is LL128's.
using SmallLines = FlaggedLines<2>;

template <class Protocol>
void expect_right(const char* name, std::initializer_list<std::size_t> sizes) {
  std::size_t runs = 0;
  for (const std::size_t bytes : sizes) {
    const Outcome outcome = explore<Protocol>(bytes, {});
    EXPECT_EQ(outcome.wrong, 0U) << name << ", " << bytes << " bytes";
    EXPECT_GT(outcome.complete, 0U);
    runs += outcome.runs;
  }
  std::printf("%s: %zu runs\n", name, runs);
}

TEST(Protocols, NeverGiveWrongDataInAnyInterleavingWithDelayedAndTornStores) {
  expect_right<Simple>("Simple", {0, 1, 8, 12, 16});
  expect_right<LL>("LL", {0, 1, 4, 7, 8, 12, 16});
  expect_right<SmallLines>("LL128", {0, 5, 16, 20});
}

TEST(Protocols, WouldFailWithoutTheOrdersThatTheyState) {
  EXPECT_GT(explore<Simple>(16, {.ignores_release = true}).wrong, 0U);
  EXPECT_GT(explore<Simple>(16, {.ignores_acquire = true}).wrong, 0U);
  EXPECT_GT(explore<SmallLines>(16, {.ignores_release = true}).wrong, 0U);
  EXPECT_GT(explore<SmallLines>(16, {.ignores_acquire = true}).wrong, 0U);
  EXPECT_GT(explore<LL>(8, {.tears_words = true}).wrong, 0U);
}

TEST(LL, NeedsNoOrderAtAll) {
  EXPECT_EQ(explore<LL>(16, {.ignores_release = true, .ignores_acquire = true}).wrong, 0U);
}

/// Two threads and a FIFO of slots: what the thread sanitizer watches.
template <class Protocol>
void stream(std::size_t bytes) {
  constexpr Word kMessages = 3000, kSlots = 3;
  std::vector<std::vector<Word>> slots(kSlots, std::vector<Word>(Protocol::words(bytes)));
  StepFlag consumed;
  HostMemory memory;
  const auto byte_of = [](Word step, std::size_t i) { return static_cast<std::byte>(step * 31 + i); };
  std::jthread producer([&] {
    std::vector<std::byte> data(bytes);
    for (Word step = 1; step <= kMessages; ++step) {
      while (consumed.value() + kSlots < step) std::this_thread::yield();
      for (std::size_t i = 0; i < bytes; ++i) data[i] = byte_of(step, i);
      Protocol::write(memory, slots[step % kSlots].data(), data.data(), bytes, step);
    }
  });
  std::vector<std::byte> data(bytes);
  std::size_t wrong = 0;
  for (Word step = 1; step <= kMessages; ++step) {
    while (!Protocol::try_read(memory, slots[step % kSlots].data(), data.data(), bytes, step))
      std::this_thread::yield();
    for (std::size_t i = 0; i < bytes; ++i) wrong += data[i] != byte_of(step, i);
    consumed.publish(step);
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(Protocols, CarryMessagesBetweenThreads) {
  for (const std::size_t bytes : {1UL, 8UL, 60UL, 121UL, 1000UL}) {
    stream<Simple>(bytes);
    stream<LL>(bytes);
    stream<LL128>(bytes);
  }
}

}  // namespace
}  // namespace loom::device::steps::model
