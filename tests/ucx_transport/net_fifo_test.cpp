// Two ends of a link, of two transports in this process: each progresses when the test says so.
#include "ucx_transport/net_fifo.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace loom::ucx_transport {
namespace {

using device::CallFamily;
using device::CallNote;
using device::Collective;
using device::Consumer;
using device::FifoShape;

constexpr FifoShape kShape{.slot_bytes = 4096, .slot_count = 4, .releases_per_credit = 2};
constexpr std::byte kUntouched{0xee};

class NetFifo : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("UCX_TLS", "tcp,self", 1);
    from_.emplace();
    to_.emplace();
    slots_ = allocate_slots(kShape.slot_count * kShape.slot_bytes);
    std::memset(slots_.get(), static_cast<int>(kUntouched), kShape.slot_count * kShape.slot_bytes);
    send_.emplace(*from_, kShape, "the receiver");
    receive_.emplace(*to_, kShape, "the sender", Place{slots_});
    send_->connect(to_->address(), receive_->inbox());
    receive_->connect(from_->address(), send_->inbox());
    enter(100);
  }

  static CallNote note(std::size_t bytes) {
    return {Collective::kAllreduce, CallFamily::kBetweenHosts, bytes};
  }
  void enter(std::size_t bytes) {
    send_->enter(note(bytes));
    receive_->enter(note(bytes));
  }
  /// Whether there was room for it.
  bool publish(std::byte value, std::size_t bytes) {
    std::byte* const slot = send_->try_acquire();
    if (slot == nullptr) return false;
    std::memset(slot, static_cast<int>(value), bytes);
    send_->publish(bytes);
    return true;
  }
  template <class Condition>
  static bool comes_true(Condition&& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition() && std::chrono::steady_clock::now() < end) {
    }
    return condition();
  }
  /// What the receiver finds wrong with the next slot. Nothing is consumed.
  std::optional<ErrorCode> failure_of_consuming(std::size_t bytes) {
    const auto take = [](const std::byte*) { FAIL(); };
    std::optional<ErrorCode> failure;
    comes_true([&] {
      from_->progress();
      try {
        receive_->try_consume(bytes, Consumer(take));
      } catch (const Error& error) {
        failure = error.code();
      }
      return failure.has_value();
    });
    return failure;
  }
  /// Sent, and in a slot of the receiver.
  bool arrives(std::byte value, std::size_t bytes) {
    const std::uint64_t before = receive_->arrived();
    return publish(value, bytes) && comes_true([&] {
             from_->progress();
             to_->progress();
             return receive_->arrived() > before;
           });
  }
  bool is_untouched() const {
    for (std::size_t i = 0; i < kShape.slot_count * kShape.slot_bytes; ++i)
      if (slots_.get()[i] != kUntouched) return false;
    return true;
  }

  std::optional<Transport> from_, to_;
  Slots slots_;
  std::optional<NetSendLink> send_;
  std::optional<NetRecvLink> receive_;
};

TEST_F(NetFifo, RefusesAReleaseOfSlotsThatItHasNotSent) {
  ASSERT_TRUE(arrives(std::byte{1}, 8));
  const auto endpoint = to_->connect(from_->address(), "the sender");
  const auto outbox = std::make_shared<Outbox>();
  ASSERT_EQ(to_->send(*endpoint, send_->inbox(), {.step = 2}, nullptr, 0, outbox), UCS_OK);
  std::optional<Error> refused;
  EXPECT_TRUE(comes_true([&] {
    to_->progress();
    try {
      send_->released();
    } catch (const Error& error) {
      refused = error;
    }
    return refused.has_value();
  }));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), ErrorCode::kInternal);
  EXPECT_STREQ(refused->what(), "A message from the receiver fits no slot.");
}

/// By then nobody may be reading it.
TEST_F(NetFifo, RefusesASecondMessageForASlot) {
  ASSERT_TRUE(arrives(std::byte{1}, 8));
  const std::byte* const slot = receive_->try_receive();
  ASSERT_NE(slot, nullptr);
  const auto endpoint = from_->connect(to_->address(), "the receiver");
  const auto outbox = std::make_shared<Outbox>();
  outbox->slots = allocate_slots(kShape.slot_bytes);
  ASSERT_EQ(from_->send(*endpoint, receive_->inbox(), {.step = 1, .note = note(100).word()},
                        outbox->slots.get(), 8, outbox),
            UCS_OK);
  ASSERT_TRUE(publish(std::byte{2}, 8));  // behind it
  ASSERT_TRUE(comes_true([&] {
    from_->progress();
    to_->progress();
    return receive_->arrived() == 2;
  }));
  EXPECT_EQ(slot[0], std::byte{1});
  receive_->release();
  ASSERT_NE(receive_->try_receive(), nullptr);
  receive_->release();
  EXPECT_EQ(failure_of_consuming(8), ErrorCode::kInternal);
}

/// As a process that frees its communicators and ends at once: nothing waits for the others where MPI ends by
/// sessions.
TEST_F(NetFifo, ReceivesWhatCameBeforeTheSenderWent) {
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(publish(static_cast<std::byte>(i), 8));
  ASSERT_TRUE(comes_true([&] {
    to_->progress();  // so that they are connected
    return send_->is_flushed() && receive_->arrived() > 0;
  }));
  send_.reset();
  from_.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (int i = 1; i <= 3; ++i) {
    std::byte got{};
    const auto take = [&](const std::byte* data) { got = data[0]; };
    ASSERT_TRUE(receive_->try_consume(8, Consumer(take))) << i;  // at the first look: nothing else comes
    EXPECT_EQ(got, static_cast<std::byte>(i));
    EXPECT_TRUE(comes_true([&] { return receive_->is_flushed(); })) << i;
  }
  receive_->settle();
  EXPECT_TRUE(comes_true([&] { return receive_->is_flushed(); }));
  std::optional<ErrorCode> failure;
  EXPECT_TRUE(comes_true([&] {
    try {
      receive_->try_receive();
    } catch (const Error& error) {
      failure = error.code();
    }
    return failure.has_value();
  })) << "the sender has gone";
  EXPECT_EQ(failure, ErrorCode::kPeerFailed);
}

/// UCX still has them where the two are not connected yet.
TEST_F(NetFifo, SendsWhatIsLeftWhenTheSenderGoes) {
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(publish(static_cast<std::byte>(i), 8));
  ASSERT_FALSE(send_->is_flushed());
  {
    std::jthread other([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) to_->progress();
    });
    send_.reset();
    from_.reset();
  }
  EXPECT_TRUE(comes_true([&] {
    to_->progress();
    return receive_->arrived() == 3;
  }));
}

TEST_F(NetFifo, HearsOfTheReleasesOfAReceiverThatWent) {
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(arrives(static_cast<std::byte>(i), 8));
  for (int i = 1; i <= 3; ++i) {
    ASSERT_NE(receive_->try_receive(), nullptr);
    receive_->release();
  }
  receive_->settle();
  ASSERT_TRUE(comes_true([&] { return receive_->is_flushed(); }));
  receive_.reset();
  to_.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(send_->released(), 3U);
  EXPECT_TRUE(send_->is_flushed());
  EXPECT_NE(send_->try_acquire(), nullptr);
}

TEST_F(NetFifo, ConsumesWhatComesWhileItLooksWithoutASlot) {
  for (int call = 0; call < 10; ++call) {
    const auto value = static_cast<std::byte>(call);
    ASSERT_TRUE(publish(value, kShape.slot_bytes));
    std::vector<std::byte> got;
    const auto take = [&](const std::byte* data) { got.assign(data, data + kShape.slot_bytes); };
    ASSERT_TRUE(comes_true([&] {
      from_->progress();
      return got.empty() ? receive_->try_consume(kShape.slot_bytes, Consumer(take)) : true;
    }));
    ASSERT_EQ(got, std::vector(kShape.slot_bytes, value));
  }
  EXPECT_TRUE(is_untouched());
}

TEST_F(NetFifo, ConsumesOutOfTheSlotWhatHasComeBefore) {
  ASSERT_TRUE(arrives(std::byte{7}, 100));
  EXPECT_FALSE(is_untouched());
  int taken = 0;
  const auto take = [&](const std::byte* data) {
    ++taken;
    EXPECT_EQ(data, slots_.get());
    EXPECT_EQ(data[99], std::byte{7});
  };
  ASSERT_TRUE(receive_->try_consume(100, Consumer(take)));
  EXPECT_FALSE(receive_->try_consume(100, Consumer(take)));
  EXPECT_EQ(taken, 1);
}

TEST_F(NetFifo, KeepsTheOrderHoweverItIsRead) {
  std::mt19937 random(3);
  int sent = 0, got = 0;
  constexpr int kMessages = 500;
  const auto take = [&](const std::byte* data) {
    ASSERT_EQ(data[0], static_cast<std::byte>(got));
    ASSERT_EQ(data[63], static_cast<std::byte>(got));
    ++got;
  };
  ASSERT_TRUE(comes_true([&] {
    switch (random() % 4) {
      case 0:
        if (sent < kMessages && publish(static_cast<std::byte>(sent), 64)) ++sent;
        break;
      case 1:
        to_->progress();
        break;
      case 2:
        receive_->try_consume(64, Consumer(take));
        break;
      default:
        if (const std::byte* const slot = receive_->try_receive()) {
          take(slot);
          receive_->release();
        }
    }
    if (got == kMessages) receive_->settle();
    return got == kMessages && send_->released() == kMessages;
  }));
}

/// Of a wrong peer: what it says of the call fits, and its bytes are fewer.
TEST_F(NetFifo, DoesNotConsumeAShorterMessage) {
  ASSERT_TRUE(publish(std::byte{5}, 10));
  EXPECT_EQ(failure_of_consuming(kShape.slot_bytes), ErrorCode::kMismatch);
}

TEST_F(NetFifo, DoesNotConsumeALongerMessage) {
  ASSERT_TRUE(publish(std::byte{5}, 64));
  EXPECT_EQ(failure_of_consuming(10), ErrorCode::kMismatch);
}

TEST_F(NetFifo, DoesNotConsumeWhatIsPartOfAnotherCall) {
  ASSERT_TRUE(publish(std::byte{5}, 64));
  receive_->enter(note(1000));
  EXPECT_EQ(failure_of_consuming(64), ErrorCode::kMismatch);
}

}  // namespace
}  // namespace loom::ucx_transport
