// Two hosts are two transports of one process. Threads play their kernels; they know words and slots alone,
// as real ones do.
#include "ucx_transport/net_proxy.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

#include "base/error.hpp"
#include "base/format.hpp"
#include "device/steps/fifo.hpp"

namespace loom::ucx_transport {
namespace {

using device::steps::FifoForm;
using device::steps::load_acquire;
using device::steps::store_release;
using ::testing::HasSubstr;

constexpr device::FifoShape kShape{
    .slot_bytes = 24 * 1024, .slot_count = 6, .releases_per_credit = 2, .bytes_per_credit = 32 * 1024};
constexpr FifoForm kForm{.slot_bytes = kShape.slot_bytes, .slot_count = kShape.slot_count};
/// The last message before words need more than 32 bits is in the middle of a FIFO.
constexpr device::Word kNear2To32 =
    (device::Word{1} << 32) / kShape.slot_count * kShape.slot_count - 2 * kShape.slot_count;
constexpr auto kPatience = std::chrono::seconds(20);

template <class Condition>
bool polls(Condition&& condition) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Empty, full and other ones.
std::size_t length_of(device::Word message) {
  constexpr std::array<std::size_t, 7> kLengths{0, kShape.slot_bytes, 1, 4096, 0, 17 * 1024 + 3, 64};
  return kLengths[message % kLengths.size()];
}
/// Of no two messages near each other alike, nor of two links.
std::byte content(int link, device::Word message, std::size_t i) {
  return static_cast<std::byte>(i * 7 + message * 31 + static_cast<std::size_t>(link) * 101);
}

/// What a kernel and a proxy share of a sending end.
struct SendSide {
  SendSide(Transport& transport, int number, int to)
      : link_number(number),
        peer(to),
        slots(allocate_slots(kForm.bytes())),
        link(transport, kShape, loom::format("host {}", to), {slots}),
        sent(kShape.slot_count) {}
  void start_at(device::Word word) {
    filled = consumed = last = word;
    link.pass_over(word);
  }
  NetSendEnd end() {
    return {{.peer = peer, .sends = true, .filled = &filled, .consumed = &consumed, .sent = sent.data()},
            &link};
  }
  bool has_room() const { return load_acquire(&consumed) + kShape.slot_count > last; }
  /// As a kernel does. False: it has waited in vain.
  bool fill(std::size_t length) {
    if (!polls([&] { return has_room(); })) return false;
    const device::Word message = ++last;
    std::byte* const slot = slots.get() + kForm.offset_of(message);
    for (std::size_t i = 0; i < length; ++i) slot[i] = content(link_number, message, i);
    sent[(message - 1) % kShape.slot_count] = {message, length};
    store_release(&filled, message);
    return true;
  }
  bool fill() { return fill(length_of(last + 1)); }

  const int link_number;
  int peer;
  const Slots slots;
  NetSendLink link;
  device::Word filled = 0, consumed = 0;
  std::vector<device::steps::Sent> sent;
  device::Word last = 0;  ///< the kernel's own count
};

struct RecvSide {
  RecvSide(Transport& transport, int number, int from)
      : link_number(number),
        peer(from),
        slots(allocate_slots(kForm.bytes())),
        link(transport, kShape, loom::format("host {}", from), {slots}) {}
  void start_at(device::Word word) {
    filled = consumed = last = word;
    link.pass_over(word);
  }
  NetRecvEnd end() { return {{.peer = peer, .kind = kind, .filled = &filled, .consumed = &consumed}, &link}; }
  void pass_over(device::Word up_to) { store_release(&consumed, last = up_to); }
  /// False: it has waited in vain, or the data are wrong.
  bool take(std::size_t length) {
    if (!polls([&] { return load_acquire(&filled) > last; })) return false;
    const device::Word message = ++last;
    const std::byte* const slot = slots.get() + kForm.offset_of(message);
    bool right = true;
    for (std::size_t i = 0; i < length; ++i) right &= slot[i] == content(link_number, message, i);
    store_release(&consumed, message);
    return right;
  }
  bool take() { return take(length_of(last + 1)); }

  const int link_number;
  int peer;
  device::steps::LinkKind kind = device::steps::LinkKind::kRing;
  const Slots slots;
  NetRecvLink link;
  device::Word filled = 0, consumed = 0;
  device::Word last = 0;
};

struct Host {
  explicit Host(const TransportOptions& options) : transport(std::make_unique<Transport>(options)) {}
  std::unique_ptr<Transport> transport;
  std::deque<std::unique_ptr<SendSide>> sends;
  std::deque<std::unique_ptr<RecvSide>> receives;
  std::unique_ptr<NetProxy> proxy;

  /// As a process that dies does.
  void die() {
    proxy.reset();
    sends.clear();
    receives.clear();
    transport.reset();
  }
};

class TwoHosts : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("UCX_TLS", "tcp,self", 1); }

  /// `there` links from host 0 to host 1, `back` the other way; words start at `start`.
  void open(int there, int back = 0, device::Word start = 0, const TransportOptions& options = {}) {
    for (int host = 0; host < 2; ++host) hosts_.push_back(std::make_unique<Host>(options));
    for (int link = 0; link < there + back; ++link) {
      const int sender = link < there ? 0 : 1;
      Host &from = *hosts_[static_cast<std::size_t>(sender)],
           &to = *hosts_[static_cast<std::size_t>(1 - sender)];
      from.sends.push_back(std::make_unique<SendSide>(*from.transport, link, 1 - sender));
      to.receives.push_back(std::make_unique<RecvSide>(*to.transport, link, sender));
      SendSide& send = *from.sends.back();
      RecvSide& receive = *to.receives.back();
      send.link.connect(to.transport->address(), receive.link.inbox());
      receive.link.connect(from.transport->address(), send.link.inbox());
      send.start_at(start);
      receive.start_at(start);
    }
    for (const auto& host : hosts_) make_proxy(*host);
  }
  void make_proxy(Host& host) {
    std::vector<NetSendEnd> sends;
    std::vector<NetRecvEnd> receives;
    for (const auto& side : host.sends) sends.push_back(side->end());
    for (const auto& side : host.receives) receives.push_back(side->end());
    host.proxy = std::make_unique<NetProxy>(*host.transport, sends, receives);
  }

  /// Lets both proxies advance until then.
  template <class Condition>
  bool comes_true(Condition&& condition) {
    return polls([&] {
      for (const auto& host : hosts_)
        if (host->proxy) host->proxy->advance();
      return condition();
    });
  }
  /// While both proxies advance for a while.
  template <class Condition>
  bool stays(Condition&& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
    bool holds = condition();
    for (; holds && std::chrono::steady_clock::now() < until; holds = condition())
      for (const auto& host : hosts_)
        if (host->proxy) host->proxy->advance();
    return holds;
  }
  /// What host `which` throws, advancing alone. Its peer's transport progresses.
  Error error_of(std::size_t which) {
    Error found(ErrorCode::kTimeout, "No error came.");
    polls([&] {
      try {
        if (Transport* const other = hosts_[1 - which]->transport.get()) other->progress();
        hosts_[which]->proxy->advance();
        return false;
      } catch (const Error& error) {
        found = error;
        return true;
      }
    });
    return found;
  }
  SendSide& send(std::size_t link = 0) { return *hosts_[0]->sends[link]; }
  RecvSide& receive(std::size_t link = 0) { return *hosts_[1]->receives[link]; }
  NetProxy& proxy(std::size_t host) { return *hosts_[host]->proxy; }

  std::vector<std::unique_ptr<Host>> hosts_;
};

struct Way {
  const char* name;
  Rendezvous rendezvous;
  const char* devices;
  device::Word start;
};

class TwoHostsBy : public TwoHosts, public ::testing::WithParamInterface<Way> {};

TEST_P(TwoHostsBy, CarryAllMessagesOfSeveralEnds) {
  constexpr int kThere = 3, kBack = 2, kMessages = 50;
  open(kThere, kBack, GetParam().start,
       {.net_devices = GetParam().devices, .rendezvous = GetParam().rendezvous});
  std::array<std::atomic<int>, 2> running{};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  const auto play = [&](std::size_t host, auto&& step) {
    ++running[host];
    threads.emplace_back([&, host, step] {
      for (int i = 0; i < kMessages; ++i)
        if (!step()) {
          ++wrong;
          break;
        }
      --running[host];
    });
  };
  for (std::size_t host = 0; host < 2; ++host) {
    for (const auto& side : hosts_[host]->sends) play(host, [&end = *side] { return end.fill(); });
    for (const auto& side : hosts_[host]->receives) play(host, [&end = *side] { return end.take(); });
  }
  std::array<std::string, 2> errors;
  for (std::size_t host = 0; host < 2; ++host)
    threads.emplace_back([&, host] {
      try {
        NetProxy& proxy = *hosts_[host]->proxy;
        while (running[host] > 0)
          if (!proxy.advance()) std::this_thread::yield();
        if (!polls([&] { return !proxy.not_quiet(); }))
          errors[host] = "never quiet: " + proxy.standing(1 - static_cast<int>(host));
      } catch (const std::exception& error) {
        errors[host] = error.what();
      }
    });
  // Any thread may progress a transport: the engine of the process does.
  std::atomic<bool> done{false};
  std::thread engine([&] {
    for (; !done; std::this_thread::yield())
      for (const auto& host : hosts_) host->transport->progress();
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  engine.join();
  EXPECT_EQ(wrong, 0);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  const device::Word last = GetParam().start + kMessages;
  for (const auto& host : hosts_) {
    EXPECT_EQ(host->proxy->moves(), 2 * kMessages * (host->sends.size() + host->receives.size()));
    for (const auto& side : host->sends) EXPECT_EQ(side->consumed, last);
    for (const auto& side : host->receives) EXPECT_EQ(side->filled, last);
  }
}
INSTANTIATE_TEST_SUITE_P(Way, TwoHostsBy,
                         ::testing::Values(Way{"Eager", Rendezvous::kNever, "", 0},
                                           Way{"Fetched", Rendezvous::kAlways, "", 0},
                                           Way{"TwoRails", Rendezvous::kNever, "lo,lo", 0},
                                           Way{"EagerNear2To32", Rendezvous::kNever, "", kNear2To32},
                                           Way{"FetchedNear2To32", Rendezvous::kAlways, "", kNear2To32}),
                         [](const auto& test) { return test.param.name; });

TEST_F(TwoHosts, PutDataIntoTheVerySlotsAndNothingBehindThem) {
  open(1);
  std::memset(send().slots.get(), 1, kForm.bytes());
  std::memset(receive().slots.get(), 2, kForm.bytes());
  for (std::size_t message = 1; message <= kShape.slot_count; ++message) {
    ASSERT_TRUE(send().fill(100));
    ASSERT_TRUE(comes_true([&] { return receive().filled == message; }));
    const std::byte* const slot = receive().slots.get() + kForm.offset_of(message);
    EXPECT_EQ(std::memcmp(slot, send().slots.get() + kForm.offset_of(message), 100), 0);
    EXPECT_TRUE(std::all_of(slot + 100, slot + kShape.slot_bytes,
                            [](std::byte byte) { return byte == std::byte{2}; }));
  }
}

TEST_F(TwoHosts, HaveAsManyMessagesUnderWayAsThereAreSlots) {
  open(1);
  for (std::size_t i = 0; i < kShape.slot_count; ++i) ASSERT_TRUE(send().fill());
  EXPECT_TRUE(proxy(0).advance());
  EXPECT_EQ(send().link.steps(), kShape.slot_count) << "all at once, before the receiver has answered";
  ASSERT_TRUE(comes_true([&] { return receive().filled == kShape.slot_count; }));
  EXPECT_TRUE(stays([&] { return !send().has_room(); })) << "the receiver's kernel has consumed nothing";

  ASSERT_TRUE(receive().take());
  EXPECT_TRUE(stays([&] { return !send().has_room(); })) << "not told yet: fewer than a credit is for";
  ASSERT_TRUE(receive().take());
  EXPECT_TRUE(comes_true([&] { return send().consumed == 2; }));
  EXPECT_FALSE(proxy(0).advance()) << "nothing is left to move";
}

TEST_F(TwoHosts, TellTheKernelOfMessagesInOrderThoughTheyArriveInAnother) {
  open(1);
  const auto outbox = std::make_shared<Outbox>();
  outbox->slots = allocate_slots(8);
  const auto endpoint = hosts_[0]->transport->connect(hosts_[1]->transport->address(), "host 1");
  const auto arrives = [&](std::uint64_t step) {
    ASSERT_EQ(hosts_[0]->transport->send(*endpoint, receive().link.inbox(), {.step = step},
                                         outbox->slots.get(), 8, outbox),
              UCS_OK);
  };
  arrives(2);
  arrives(3);
  EXPECT_TRUE(stays([&] { return receive().filled == 0; }));
  arrives(1);
  EXPECT_TRUE(comes_true([&] { return receive().filled == 3; }));
  EXPECT_EQ(receive().link.arrived(), 3U);
}

TEST_F(TwoHosts, RefuseWordsThatAreNotWhereTheLinkIs) {
  open(1);
  send().consumed = 1;
  EXPECT_THROW(make_proxy(*hosts_[0]), Error) << "the words differ";
  send().filled = 1;
  EXPECT_THROW(make_proxy(*hosts_[0]), Error) << "the link has carried nothing";
  receive().filled = receive().consumed = 1;
  EXPECT_THROW(make_proxy(*hosts_[1]), Error);
}

/// As links of trees do in calls that do not use their direction.
TEST_F(TwoHosts, PassOverMessagesThatNoCallSends) {
  open(1);
  device::Word last = 0;
  for (const bool sender_is_first : {true, false})
    for (const device::Word jump :
         {device::Word{1}, device::Word{4}, 3 * device::Word{kShape.slot_count} + 1}) {
      for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(comes_true([&] { return send().has_room(); }));
        ASSERT_TRUE(send().fill());
        ++last;
        ASSERT_TRUE(comes_true([&] { return load_acquire(&receive().filled) == last; }));
        ASSERT_TRUE(receive().take());
      }
      last += jump;
      // A sender cannot be more than the slots ahead of what it knows to be consumed.
      const bool has_room = load_acquire(&send().consumed) + kShape.slot_count > last;
      if (!sender_is_first || !has_room) receive().pass_over(last);
      send().last = last;
      ASSERT_TRUE(comes_true([&] { return send().has_room(); }));
      ASSERT_TRUE(send().fill());
      ++last;
      if (sender_is_first && has_room) {
        ASSERT_TRUE(comes_true([&] { return send().link.steps() == last; }));
        EXPECT_TRUE(stays([&] { return load_acquire(&receive().filled) < last - 1; }))
            << "told before the receiver's kernel has passed over what comes first";
        receive().pass_over(last - 1);
      }
      ASSERT_TRUE(comes_true([&] { return load_acquire(&receive().filled) == last; }));
      ASSERT_TRUE(receive().take());
    }
  EXPECT_TRUE(polls([&] {
    const bool taken = !proxy(0).not_quiet(), told = !proxy(1).not_quiet();
    return taken && told;
  }));
}

TEST_F(TwoHosts, AreNotQuietUntilAllIsTakenAndTold) {
  open(1, 1);
  SendSide& back = *hosts_[1]->sends[0];
  RecvSide& from_back = *hosts_[0]->receives[0];
  for (std::size_t host = 0; host < 2; ++host) EXPECT_EQ(proxy(host).not_quiet(), std::nullopt);

  ASSERT_TRUE(send().fill(8));
  EXPECT_EQ(proxy(0).not_quiet(), 1) << "it publishes as well";
  ASSERT_TRUE(comes_true([&] { return receive().filled == 1; }));
  EXPECT_EQ(proxy(1).not_quiet(), std::nullopt) << "what has come may be for the next call";
  EXPECT_TRUE(stays([&] { return proxy(0).not_quiet() == 1; })) << "not consumed";
  ASSERT_TRUE(receive().take(8));
  EXPECT_TRUE(stays([&] { return proxy(0).not_quiet() == 1; })) << "not told";

  // Host 1 is not quiet itself, and yet tells host 0.
  ASSERT_TRUE(back.fill(8));
  const bool told = polls([&] {
    EXPECT_EQ(proxy(1).not_quiet(), 0);
    return !proxy(0).not_quiet();
  });
  EXPECT_TRUE(told);
  EXPECT_EQ(send().consumed, 1U);

  ASSERT_TRUE(polls([&] {
    proxy(1).advance();
    proxy(0).advance();
    return load_acquire(&from_back.filled) == 1;
  }));
  ASSERT_TRUE(from_back.take(8));
  EXPECT_TRUE(polls([&] { return !proxy(0).not_quiet() && !proxy(1).not_quiet(); }));
}

TEST_F(TwoHosts, AreNotQuietWhileUcxHoldsAWordBack) {
  open(1, 0, 0, {.rendezvous = Rendezvous::kNever});
  ASSERT_TRUE(send().fill(8));
  ASSERT_TRUE(comes_true([&] { return receive().filled == 1; }));
  // Something for nobody stops the way back: it is longer than what sockets hold.
  constexpr std::size_t kLong = 32 << 20;
  const auto outbox = std::make_shared<Outbox>();
  outbox->slots = allocate_slots(kLong);
  std::memset(outbox->slots.get(), 0, kLong);
  Transport& transport = *hosts_[1]->transport;
  const auto endpoint = transport.connect(hosts_[0]->transport->address(), "host 0");
  ASSERT_EQ(transport.send(*endpoint, 0, {.step = 1}, outbox->slots.get(), kLong, outbox), UCS_OK);

  ASSERT_TRUE(receive().take(8));
  for (int look = 0; look < 200; ++look) ASSERT_EQ(proxy(1).not_quiet(), 0);
  EXPECT_TRUE(polls([&] {
    hosts_[0]->transport->progress();
    return !proxy(1).not_quiet();
  }));
  EXPECT_TRUE(comes_true([&] { return send().consumed == 1; }));
}

TEST_F(TwoHosts, RefuseWhatNoKernelSays) {
  const auto refuse = [&](std::size_t host, auto&& say, const std::string& text) {
    hosts_.clear();
    open(1);
    // Two messages have been consumed, one is under way.
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(send().fill(8));
    ASSERT_TRUE(comes_true([&] { return receive().filled == 3; }));
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(receive().take(8));
    ASSERT_TRUE(comes_true([&] { return send().consumed == 2; }));

    say();
    const Error error = error_of(host);
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), HasSubstr(text));
    EXPECT_THAT(error.what(), HasSubstr(loom::format("link with host {}", 1 - host)));
    EXPECT_THROW(proxy(host).not_quiet(), Error);
    EXPECT_EQ(send().link.steps(), 3U);
    EXPECT_EQ(receive().link.steps(), 2U);
  };
  // As the kernel counts: the last one beyond the slots, or behind what it has said before.
  for (const device::Word filled :
       {device::Word{2} + kShape.slot_count + 1, device::Word{2}, ~device::Word{0}})
    refuse(
        0,
        [&] {
          send().sent[(filled - 1) % kShape.slot_count] = {filled, 8};
          send().filled = filled;
        },
        loom::format(": {} messages filled", filled));
  refuse(
      0, [&] { send().filled = 4; }, ": 4 messages filled, of which");
  refuse(
      1, [&] { receive().consumed = 1; }, ": 1 messages consumed");
  const auto send_too_much = [&] {
    send().sent[3] = {4, kShape.slot_bytes + 1};
    send().filled = 4;
  };
  refuse(0, send_too_much, loom::format(": {} bytes in a slot", kShape.slot_bytes + 1));
}

TEST_F(TwoHosts, RefuseWhatNoPeerSends) {
  open(1);
  const auto outbox = std::make_shared<Outbox>();
  const auto say = [&](std::size_t from, InboxId inbox, std::uint64_t step) {
    Transport& transport = *hosts_[from]->transport;
    const auto endpoint = transport.connect(hosts_[1 - from]->transport->address(), "the other");
    ASSERT_EQ(transport.send(*endpoint, inbox, {.step = step}, nullptr, 0, outbox), UCS_OK);
  };
  say(0, receive().link.inbox(), kShape.slot_count + 1);
  const Error error = error_of(1);
  EXPECT_EQ(error.code(), ErrorCode::kInternal) << error.what();
}

TEST_F(TwoHosts, SeeThatAPeerHasDisappeared) {
  for (const std::size_t dies : {0, 1}) {
    hosts_.clear();
    open(1);
    ASSERT_TRUE(send().fill(8));
    ASSERT_TRUE(comes_true([&] { return receive().filled == 1; }));
    hosts_[dies]->die();
    const std::size_t lives = 1 - dies;
    if (lives == 1) {
      EXPECT_TRUE(stays([&] { return receive().filled == 1; })) << "the kernel has what it needs";
      ASSERT_TRUE(receive().take(8));
    }
    const Error error = error_of(lives);
    EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
    EXPECT_THAT(error.what(), HasSubstr(loom::format("The connection to host {} is broken", dies)));
    EXPECT_THAT(error.what(), HasSubstr(lives == 0 ? "1 slots sent, 0 of them taken" : "1 slots received"));
  }
}

TEST_F(TwoHosts, HearThatTheOtherGaveUpOnceTheyNeedIt) {
  open(1, 1);
  ASSERT_TRUE(send().fill(8));
  ASSERT_TRUE(send().fill(8));
  proxy(0).advance();
  proxy(0).abandon();
  EXPECT_TRUE(polls([&] {
    hosts_[1]->transport->progress();
    return proxy(0).has_flushed_or_failed() && !receive().link.is_connected() &&
           !hosts_[1]->sends[0]->link.is_connected();
  }));

  EXPECT_EQ(proxy(1).not_quiet(), std::nullopt) << "nothing is needed";
  EXPECT_EQ(receive().filled, 2U) << "what came before";
  EXPECT_FALSE(proxy(1).advance());
  ASSERT_TRUE(receive().take(8));
  EXPECT_TRUE(proxy(1).advance()) << "the kernel has another message";
  EXPECT_FALSE(proxy(1).advance());
  ASSERT_TRUE(receive().take(8));
  Error error = error_of(1);
  EXPECT_EQ(error.code(), ErrorCode::kGivenUp) << "the kernel may wait for a third one";
  EXPECT_THAT(error.what(), HasSubstr("host 0"));

  ASSERT_TRUE(hosts_[1]->sends[0]->fill(8));
  EXPECT_EQ(proxy(1).not_quiet(), 0) << "published";
  EXPECT_THROW(polls([&] { return !proxy(1).not_quiet(); }), Error) << "nobody will take it";
}

TEST_F(TwoHosts, NameAPeerThatDoesNotWaitItself) {
  open(3, 1, 0, {.net_devices = "lo"});
  SendSide& back = *hosts_[1]->sends[0];
  RecvSide& from_back = *hosts_[0]->receives[0];
  // As if they led to three hosts: to the second one both ways.
  send(1).peer = from_back.peer = 2;
  send(2).peer = 3;
  make_proxy(*hosts_[0]);
  EXPECT_EQ(proxy(0).awaited(), 2) << "something may have to come from there";
  EXPECT_EQ(proxy(0).standing(4), "");
  EXPECT_EQ(proxy(0).waits(4), std::nullopt);

  for (const std::size_t link : {0, 1, 2}) ASSERT_TRUE(send(link).fill(8));
  EXPECT_TRUE(proxy(0).advance());
  EXPECT_EQ(proxy(0).standing(2), "over tcp/lo: 1 slots sent, 0 of them taken, 0 received");
  EXPECT_EQ(proxy(0).awaited(), 1);
  for (const std::size_t link : {0, 1}) receive(link).link.say_waiting();
  ASSERT_TRUE(comes_true([&] { return *proxy(0).waits(1) && send(1).link.other_waits(); }));
  EXPECT_EQ(proxy(0).waits(2), false) << "not on the way back";
  EXPECT_EQ(proxy(0).awaited(), 2);
  proxy(1).say_waiting();
  ASSERT_TRUE(comes_true([&] { return *proxy(0).waits(2) && *proxy(0).waits(3); }));
  EXPECT_EQ(proxy(0).awaited(), 1) << "all wait: the first";

  ASSERT_TRUE(back.fill(8));
  ASSERT_TRUE(comes_true([&] { return from_back.filled == 1; }));
  EXPECT_EQ(proxy(0).waits(2), false) << "it has moved";
  ASSERT_TRUE(from_back.take(8));
  EXPECT_TRUE(proxy(0).advance());
  EXPECT_EQ(proxy(0).standing(2), "over tcp/lo: 1 slots sent, 0 of them taken, 1 received");
}

/// As of rings and trees: a call goes by one of them.
TEST_F(TwoHosts, WaitAtEndsOfTheKindThatIsUsedAlone) {
  using device::steps::LinkKind;
  open(2);
  hosts_[1]->receives[1]->kind = LinkKind::kTree;
  hosts_[1]->receives[1]->peer = 7;
  make_proxy(*hosts_[1]);
  proxy(1).enter(LinkKind::kTree);
  EXPECT_EQ(proxy(1).awaited(), 7);
  proxy(1).enter(LinkKind::kPairwise);
  EXPECT_EQ(proxy(1).awaited(), std::nullopt);
  hosts_[0]->die();
  ASSERT_TRUE(comes_true([&] { return !receive(0).link.is_connected(); })) << "and no call fails";
  proxy(1).enter(LinkKind::kRing);
  EXPECT_EQ(error_of(1).code(), ErrorCode::kPeerFailed);
}

}  // namespace
}  // namespace loom::ucx_transport
