#include "ucx_transport/transport.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "tests/ucx_transport/break_connections.hpp"

namespace loom::ucx_transport {
namespace {

constexpr std::size_t kBytes = 128 * 1024;

TEST(Transport, WaitsItsTimeWhereNothingCanWakeIt) {
  Transport transport;
  const auto began = std::chrono::steady_clock::now();
  transport.wait(std::chrono::milliseconds(20));
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(20));
}

/// Takes messages of kBytes, and lets them be fetched unless it has no room.
class Taker final : public Inbox {
 public:
  explicit Taker(bool has_room = true) : room_(has_room ? allocate_slots(kBytes) : Slots()) {}
  void take(Word, std::span<const std::byte> data) noexcept override {
    ++taken;
    last.assign(data.begin(), data.end());
  }
  Place place(Word, std::size_t bytes) noexcept override {
    ++asked;
    return bytes <= kBytes ? Place{room_} : Place{};
  }
  void arrive(Word) noexcept override {
    ++arrived;
    last.assign(room_.get(), room_.get() + kBytes);
  }
  void lose(ucs_status_t) noexcept override { ++lost; }

  int taken = 0, asked = 0, arrived = 0, lost = 0;
  Bytes last;
  std::weak_ptr<std::byte> room() const { return room_; }

 private:
  Slots room_;
};

class TwoTransports : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("UCX_TLS", "tcp,self", 1); }

  void open(Rendezvous rendezvous, const std::string& from = {}, const std::string& to = {}) {
    sender_ = std::make_unique<Transport>(TransportOptions{.net_devices = from, .rendezvous = rendezvous});
    receiver_ = std::make_unique<Transport>(TransportOptions{.net_devices = to, .rendezvous = rendezvous});
    endpoint_ = sender_->connect(receiver_->address(), "the receiver");
    receiver_->connect(sender_->address(), "the sender");  // as both ends of a link do
    outbox_->slots = allocate_slots(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) outbox_->slots.get()[i] = static_cast<std::byte>(i % 251);
  }
  void send(InboxId inbox, std::size_t bytes = kBytes, std::uint64_t step = 1) {
    ASSERT_EQ(sender_->send(*endpoint_, inbox, {.step = step}, outbox_->slots.get(), bytes, outbox_), UCS_OK);
  }
  template <class Condition>
  bool comes_true(Condition&& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition() && std::chrono::steady_clock::now() < end) {
      sender_->progress();
      receiver_->progress();
    }
    return condition();
  }
  /// Stops there: the fetch has begun, and not ended, for the sender does not answer meanwhile.
  bool is_asked_by(const Taker& taker) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (taker.asked == 0 && std::chrono::steady_clock::now() < end) {
      receiver_->progress();
      if (taker.asked == 0) sender_->progress();
    }
    return taker.asked == 1 && taker.arrived == 0;
  }
  bool is_what_was_sent(const Bytes& data) const {
    return data.size() == kBytes && std::memcmp(data.data(), outbox_->slots.get(), kBytes) == 0;
  }

  std::unique_ptr<Transport> sender_, receiver_;
  std::shared_ptr<Endpoint> endpoint_;
  std::shared_ptr<Outbox> outbox_ = std::make_shared<Outbox>();
};

TEST_F(TwoTransports, WakeWhenSomethingComes) {
  sender_ = std::make_unique<Transport>();
  receiver_ = std::make_unique<Transport>(TransportOptions{.can_sleep = true});
  endpoint_ = sender_->connect(receiver_->address(), "the receiver");
  receiver_->connect(sender_->address(), "the sender");
  outbox_->slots = allocate_slots(kBytes);
  Taker taker;
  const InboxId inbox = receiver_->open(taker);
  send(inbox, 8);
  ASSERT_TRUE(comes_true([&] { return taker.taken == 1; }));  // connects
  constexpr std::chrono::milliseconds kMost(900);
  bool woke = false;
  for (int message = 2; message < 12 && !woke; ++message) {
    while (receiver_->progress() > 0) {
    }
    std::thread late([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      send(inbox, 8);
      sender_->progress();
    });
    const auto began = std::chrono::steady_clock::now();
    receiver_->wait(kMost);
    const auto slept = std::chrono::steady_clock::now() - began;
    woke = slept > std::chrono::milliseconds(10) && slept < kMost;  // not before it was sent
    late.join();
    ASSERT_TRUE(comes_true([&] { return taker.taken == message; }));
  }
  EXPECT_TRUE(woke) << "of ten messages none has ended the wait";
  receiver_->close(inbox);
}

TEST_F(TwoTransports, SendAlongOverSockets) {
  for (const Rendezvous rendezvous : {Rendezvous::kWhereDirect, Rendezvous::kNever}) {
    open(rendezvous);
    Taker taker;
    const InboxId inbox = receiver_->open(taker);
    send(inbox);
    ASSERT_TRUE(comes_true([&] { return taker.taken == 1; }));
    EXPECT_EQ(taker.asked, 0);
    EXPECT_TRUE(is_what_was_sent(taker.last));
    receiver_->close(inbox);
  }
}

/// Whoever reaches UCX's ports may send anything; it comes to nobody.
TEST_F(TwoTransports, GiveInboxesNumbersThatNobodyGuesses) {
  open(Rendezvous::kNever);
  Taker taker, other;
  const InboxId inbox = receiver_->open(taker), next = receiver_->open(other);
  EXPECT_GT(inbox, 1000U);
  EXPECT_GT(std::max(inbox, next) - std::min(inbox, next), 1000U);
  for (const InboxId guessed : {InboxId{0}, InboxId{1}, inbox + 1, inbox ^ 1, next - 1}) send(guessed, 8);
  send(inbox, 8);
  ASSERT_TRUE(comes_true([&] { return taker.taken > 0; }));
  EXPECT_EQ(taker.taken, 1);
  EXPECT_EQ(other.taken, 0);
}

TEST_F(TwoTransports, TakeAsManyDevicesAsBothHave) {
  struct Devices {
    const char *from, *to;
    std::size_t rails;
    const char* way;
  };
  for (const auto& [from, to, rails, way] :
       {Devices{"lo", "lo", 1, "tcp/lo"}, Devices{"lo,lo", "lo", 1, "tcp/lo"},
        Devices{"lo", "lo,lo", 1, "tcp/lo"}, Devices{"lo,lo,lo", "lo,lo,lo", 3, "tcp/lo,tcp/lo,tcp/lo"}})
    for (const Rendezvous rendezvous : {Rendezvous::kNever, Rendezvous::kAlways}) {
      open(rendezvous, from, to);
      EXPECT_EQ(endpoint_->rails(), rails);
      EXPECT_EQ(endpoint_->way(), way);
      EXPECT_EQ(rails_of(sender_->address()), (std::strlen(from) + 1) / 3);
      Taker taker;
      const InboxId inbox = receiver_->open(taker);
      for (std::uint64_t step = 1; step <= 7; ++step) {
        send(inbox, kBytes, step);
        ASSERT_TRUE(comes_true([&] { return taker.taken + taker.arrived == static_cast<int>(step); }));
        EXPECT_TRUE(is_what_was_sent(taker.last));
      }
      receiver_->close(inbox);
    }
  EXPECT_THROW(sender_->connect(Bytes(9, std::byte{1}), "nobody"), Error);
}

TEST_F(TwoTransports, SendOverARailThatIsOpenedLater) {
  open(Rendezvous::kNever);
  const Bytes address = receiver_->address();
  const RailId from = sender_->rail_over("lo"), to = receiver_->rail_over("lo");
  EXPECT_EQ(receiver_->address(), address) << "not among those that others take in turn";
  EXPECT_EQ(rails_of(receiver_->address_of(to)), 1);
  EXPECT_NE(receiver_->address_of(to), address);
  EXPECT_EQ(sender_->rail_over("lo"), from);
  const std::shared_ptr<Endpoint> usual = endpoint_;
  endpoint_ = sender_->connect(receiver_->address_of(to), "the receiver", from);
  EXPECT_EQ(endpoint_->way(), "tcp/lo");
  EXPECT_EQ(endpoint_->rails(), 1);
  EXPECT_EQ(sender_->connect(receiver_->address_of(to), "the receiver", from), endpoint_);
  EXPECT_EQ(sender_->connect(address, "the receiver"), usual);
  Taker taker;
  const InboxId inbox = receiver_->open(taker);
  send(inbox);
  ASSERT_TRUE(comes_true([&] { return taker.taken == 1; }));
  EXPECT_TRUE(is_what_was_sent(taker.last));
  receiver_->close(inbox);
}

TEST_F(TwoTransports, TakeARailThatIsOpenAlready) {
  open(Rendezvous::kNever, "lo", "lo");
  EXPECT_EQ(sender_->rail_over("lo"), 0);
  EXPECT_EQ(sender_->address_of(0), sender_->address());
}

TEST_F(TwoTransports, FetchStraightToThePlace) {
  open(Rendezvous::kAlways);
  Taker taker;
  const InboxId inbox = receiver_->open(taker);
  send(inbox);
  ASSERT_TRUE(comes_true([&] { return taker.arrived == 1 && outbox_->pending == 0; }));
  EXPECT_EQ(taker.asked, 1);
  EXPECT_TRUE(is_what_was_sent(taker.last));
  for (const std::size_t bytes : {std::size_t{0}, kMostSentAlong}) send(inbox, bytes);
  ASSERT_TRUE(comes_true([&] { return taker.taken == 2; }));
  EXPECT_EQ(taker.asked, 1) << "what is short is not fetched";
  EXPECT_EQ(outbox_->error, UCS_OK);
  receiver_->close(inbox);
}

TEST_F(TwoTransports, LetGoOfWhatNobodyTakes) {
  open(Rendezvous::kAlways);
  Taker taker(false);
  const InboxId inbox = receiver_->open(taker);
  send(inbox);
  EXPECT_TRUE(comes_true([&] { return taker.asked == 1 && outbox_->pending == 0; })) << "no room";
  receiver_->close(inbox);
  send(inbox);
  EXPECT_TRUE(comes_true([&] { return outbox_->pending == 0; })) << "a closed inbox";
  EXPECT_EQ(taker.taken, 0);
}

TEST_F(TwoTransports, KeepThePlaceOfWhatIsBeingFetched) {
  open(Rendezvous::kAlways);
  auto taker = std::make_unique<Taker>();
  const std::weak_ptr<std::byte> room = taker->room();
  const InboxId inbox = receiver_->open(*taker);
  send(inbox);
  ASSERT_TRUE(is_asked_by(*taker));
  receiver_->close(inbox);
  taker.reset();
  EXPECT_FALSE(room.expired());
  EXPECT_TRUE(comes_true([&] { return room.expired() && outbox_->pending == 0; }));
}

TEST_F(TwoTransports, EndInTheMiddleOfAFetch) {
  open(Rendezvous::kAlways);
  Taker taker;
  const InboxId inbox = receiver_->open(taker);
  send(inbox);
  ASSERT_TRUE(is_asked_by(taker));
  receiver_->close(inbox);
  receiver_.reset();
  for (int i = 0; i < 1000; ++i) sender_->progress();
  sender_.reset();
  EXPECT_EQ(taker.arrived, 0);
}

/// While a failed communicator's links still have it.
TEST_F(TwoTransports, MakeAConnectionAnewOnceItIsBroken) {
  open(Rendezvous::kNever);
  Taker taker;
  const InboxId inbox = receiver_->open(taker);
  send(inbox, 8);
  ASSERT_TRUE(comes_true([&] { return taker.taken == 1; }));
  const std::shared_ptr<Endpoint> before = endpoint_;
  const std::shared_ptr<Endpoint> back = receiver_->connect(sender_->address(), "the sender");
  break_connections();
  ASSERT_TRUE(comes_true([&] { return before->status() != UCS_OK && back->status() != UCS_OK; }));

  endpoint_ = sender_->connect(receiver_->address(), "the receiver");
  receiver_->connect(sender_->address(), "the sender");
  EXPECT_NE(endpoint_, before);
  EXPECT_EQ(endpoint_->status(), UCS_OK);
  EXPECT_EQ(sender_->connect(receiver_->address(), "the receiver"), endpoint_);
  send(inbox, 8, 2);
  EXPECT_TRUE(comes_true([&] { return taker.taken == 2; }));
  receiver_->close(inbox);
}

}  // namespace
}  // namespace loom::ucx_transport
