#include "component/links/layout.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <utility>

namespace loom {
namespace {

/// Calls body(number) with a reference to each number of the layout.
void for_each_number(Layout& layout, const std::function<void(std::size_t&)>& body) {
  body(layout.protocol_version);
  for (device::FifoShape& fifo : layout.fifos)
    for (std::size_t* number :
         {&fifo.slot_bytes, &fifo.slot_count, &fifo.releases_per_credit, &fifo.bytes_per_credit})
      body(*number);
  for (std::size_t& number : layout.banks) body(number);
  for (std::size_t& number : layout.forms) body(number);
}

TEST(Layout, ChangesItsHashWithAnyOfItsNumbers) {
  Layout layout;
  std::set<std::uint64_t> hashes{layout.hash()};
  std::size_t numbers = 0;
  for_each_number(layout, [&](std::size_t& number) {
    for (const std::size_t changed : {number + 1, number - 1, number ^ std::size_t{1} << 40}) {
      const std::size_t before = std::exchange(number, changed);
      EXPECT_TRUE(hashes.insert(layout.hash()).second) << "number " << numbers << ": " << changed;
      number = before;
    }
    ++numbers;
  });
  EXPECT_EQ(layout.hash(), kLayout);
  EXPECT_EQ(sizeof(Layout), numbers * sizeof(std::uint64_t)) << "it has more than these numbers";
}

TEST(Layout, ChangesItsHashWhereNumbersChangePlaces) {
  Layout layout;
  std::swap(layout.forms.front(), layout.forms.back());
  EXPECT_NE(layout.hash(), kLayout);
}

TEST(Layout, ListsTheFifosOfEveryKindOfLink) {
  const Layout layout;
  std::set<std::size_t> slots;
  for (const device::FifoShape& fifo : layout.fifos) slots.insert(fifo.slot_bytes);
  EXPECT_EQ(slots, (std::set{kSharedFifo.slot_bytes, kNetFifo.slot_bytes, leader_fifo(2).slot_bytes,
                             leader_fifo(16).slot_bytes, kTreeFifo.slot_bytes, kPairwiseFifo.slot_bytes}));
}

TEST(Layout, HasTheFifosAndBanksOfAnyNumberOfHostsAndRanks) {
  const Layout layout;
  for (const int hosts : {17, 18, 33, 1000})
    for (std::size_t kind = 0; kind < kLinkKinds; ++kind) {
      const device::FifoShape& listed = layout.fifos[(kind + 1) * Layout::kHostCounts];
      const device::FifoShape fifo = kLinkSpecs[kind].fifo(hosts);
      EXPECT_EQ(fifo.slot_count, listed.slot_count) << hosts << " hosts, kind " << kind;
      EXPECT_EQ(fifo.slot_bytes, listed.slot_bytes);
      EXPECT_EQ(fifo.releases_per_credit, listed.releases_per_credit);
      EXPECT_EQ(fifo.bytes_per_credit, listed.bytes_per_credit);
    }
  for (const int ranks : {128, 129, 1000}) EXPECT_EQ(banks_of_hosts(ranks), layout.banks.back());
}

}  // namespace
}  // namespace loom
