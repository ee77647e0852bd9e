// Streams and events of the virtual driver: who waits for whom.
#include <vector>

#include "driver_fixture.hpp"

namespace virtual_gpu {
namespace {

class Streams : public DriverTest {
 protected:
  /// A host function that says it was there.
  int mark(void* stream, std::atomic<int>& seen) const {
    return host_function(
        stream, [](void* to) { ++*static_cast<std::atomic<int>*>(to); }, &seen);
  }
  /// Long enough for work that could start to have started.
  static void give_it_time() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
};

TEST_F(Streams, AreInOrder) {
  void* const s = stream(kNonBlocking);
  std::vector<int> order;
  struct Step {
    std::vector<int>* order;
    int number;
  };
  std::vector<Step> steps;
  for (int i = 0; i < 20; ++i) steps.push_back({&order, i});
  for (Step& step : steps)
    host_function(
        s, [](void* at) { static_cast<Step*>(at)->order->push_back(static_cast<Step*>(at)->number); }, &step);
  EXPECT_EQ(synchronize(s), kSuccess);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(order.at(static_cast<std::size_t>(i)), i);
}

TEST_F(Streams, GoOnWithoutAnybodyWhoWaits) {
  void* const s = stream(kNonBlocking);
  std::atomic<int> seen{0};
  mark(s, seen);
  while (seen == 0) std::this_thread::yield();
}

TEST_F(Streams, NonBlockingOnesIgnoreTheLegacyStream) {
  void* const s = stream(kNonBlocking);
  std::atomic<int> seen{0};
  Gate gate(*this, legacy_);
  mark(s, seen);
  EXPECT_EQ(synchronize(s), kSuccess);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(query(legacy_), kNotReady);
}

TEST_F(Streams, BlockingOnesWaitForTheLegacyStream) {
  for (void* const s : {stream(), per_thread_}) {
    std::atomic<int> seen{0};
    Gate gate(*this, legacy_);
    mark(s, seen);
    EXPECT_EQ(query(s), kNotReady);
    give_it_time();
    EXPECT_EQ(seen, 0);
    gate.open();
    EXPECT_EQ(synchronize(s), kSuccess);
    EXPECT_EQ(seen, 1);
  }
}

TEST_F(Streams, TheLegacyStreamWaitsForBlockingOnes) {
  void *const blocking = stream(), *const other = stream(kNonBlocking);
  std::atomic<int> seen{0};
  Gate gate(*this, blocking), ignored(*this, other);
  mark(nullptr, seen);
  EXPECT_EQ(query(legacy_), kNotReady);
  give_it_time();
  EXPECT_EQ(seen, 0);
  gate.open();
  EXPECT_EQ(synchronize(nullptr), kSuccess);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(query(other), kNotReady);
}

TEST_F(Streams, TheLegacyStreamOfAnotherContextDoesNotMatter) {
  void* const s = stream();
  void* other = nullptr;
  ASSERT_EQ(call("cuCtxCreate_v2", &other, 0U, 0), kSuccess);
  std::atomic<int> seen{0};
  Gate gate(*this, legacy_);  // of `other`
  call("cuCtxPushCurrent_v2", context_);
  mark(s, seen);
  EXPECT_EQ(synchronize(s), kSuccess);
  EXPECT_EQ(seen, 1);
  void* popped;
  call("cuCtxPopCurrent_v2", &popped);
  gate.open();
  EXPECT_EQ(call("cuCtxDestroy_v2", other), kSuccess);
}

TEST_F(Streams, PerThreadOnesAreEachThreadsOwn) {
  Gate gate(*this, per_thread_);
  int result = -1;
  std::thread([&] {
    call("cuCtxPushCurrent_v2", context_);
    result = query(per_thread_);
  }).join();
  EXPECT_EQ(result, kSuccess);
  EXPECT_EQ(query(per_thread_), kNotReady);
}

TEST_F(Streams, ThatAreDestroyedDoWhatIsInThem) {
  void* const s = stream(kNonBlocking);
  std::atomic<int> seen{0};
  {
    Gate gate(*this, s);
    mark(s, seen);
    EXPECT_EQ(call("cuStreamDestroy_v2", s), kSuccess);
    EXPECT_EQ(synchronize(s), kInvalidHandle);
    EXPECT_EQ(call("cuStreamDestroy_v2", s), kInvalidHandle);
    EXPECT_EQ(seen, 0);
  }
  EXPECT_EQ(call("cuCtxSynchronize"), kSuccess);
  EXPECT_EQ(seen, 1);
}

TEST_F(Streams, AreWaitedForByTheContext) {
  std::atomic<int> seen{0};
  void* const s = stream(kNonBlocking);
  for (void* each : {s, legacy_, per_thread_}) mark(each, seen);
  EXPECT_EQ(call("cuCtxSynchronize"), kSuccess);
  EXPECT_EQ(seen, 3);
}

TEST_F(Streams, HostFunctionsMustNotCallCuda) {
  struct Result {
    const Streams* test;
    int code;
  } result{this, -1};
  host_function(
      legacy_,
      [](void* at) {
        auto& into = *static_cast<Result*>(at);
        into.code = into.test->call("cuCtxSynchronize");
      },
      &result);
  EXPECT_EQ(synchronize(legacy_), kSuccess);
  EXPECT_EQ(result.code, kNotPermitted);
}

TEST_F(Streams, HandlesAndFlagsAreChecked) {
  void* out;
  EXPECT_EQ(call("cuStreamCreate", &out, 2U), kInvalidValue);
  EXPECT_EQ(call("cuEventCreate", &out, 8U), kInvalidValue);
  EXPECT_EQ(call("cuEventCreate", &out, kInterprocess), kInvalidValue) << "only without timing";
  EXPECT_EQ(synchronize(&out), kInvalidHandle);
  EXPECT_EQ(call("cuEventRecord", static_cast<void*>(&out), legacy_), kInvalidHandle);
  EXPECT_EQ(call("cuStreamWaitEvent", legacy_, static_cast<void*>(&out), 0U), kInvalidHandle);
}

TEST_F(Streams, EventsStandForWhatCameBeforeThem) {
  void *const s = stream(kNonBlocking), *const e = event();
  EXPECT_EQ(call("cuEventQuery", e), kSuccess) << "never recorded: nothing";
  std::atomic<int> seen{0};
  Gate before(*this, s);
  EXPECT_EQ(call("cuEventRecord", e, s), kSuccess);
  EXPECT_EQ(call("cuEventQuery", e), kNotReady);
  before.open();
  EXPECT_EQ(call("cuEventSynchronize", e), kSuccess);
  Gate after(*this, s);
  EXPECT_EQ(call("cuEventQuery", e), kSuccess);
  EXPECT_EQ(query(s), kNotReady);
}

TEST_F(Streams, WaitForAnEventAsItWasThen) {
  void *const first = stream(kNonBlocking), *const second = stream(kNonBlocking), *const e = event();
  std::atomic<int> seen{0};
  Gate gate(*this, first);
  call("cuEventRecord", e, first);
  EXPECT_EQ(call("cuStreamWaitEvent", second, e, 0U), kSuccess);
  mark(second, seen);
  call("cuEventRecord", e, stream(kNonBlocking));  // recorded anew: that does not change the wait
  EXPECT_EQ(call("cuEventQuery", e), kSuccess);
  give_it_time();
  EXPECT_EQ(seen, 0);
  gate.open();
  EXPECT_EQ(synchronize(second), kSuccess);
  EXPECT_EQ(seen, 1);
}

TEST_F(Streams, EventsMayBeDestroyedWhileTheyAreWaitedFor) {
  void *const first = stream(kNonBlocking), *const second = stream(kNonBlocking), *const e = event();
  std::atomic<int> seen{0};
  Gate gate(*this, first);
  call("cuEventRecord", e, first);
  call("cuStreamWaitEvent", second, e, 0U);
  EXPECT_EQ(call("cuEventDestroy_v2", e), kSuccess);
  mark(second, seen);
  give_it_time();
  EXPECT_EQ(seen, 0);
  gate.open();
  EXPECT_EQ(synchronize(second), kSuccess);
  EXPECT_EQ(seen, 1);
}

TEST_F(Streams, EventsMeasureTime) {
  void *const from = event(), *const to = event(), *const untimed = event(kDisableTiming);
  float milliseconds = -1;
  EXPECT_EQ(call("cuEventElapsedTime", &milliseconds, from, to), kInvalidHandle) << "not recorded";
  for (void* e : {from, to, untimed}) call("cuEventRecord", e, legacy_);
  EXPECT_EQ(call("cuEventElapsedTime", &milliseconds, from, untimed), kInvalidHandle);
  EXPECT_EQ(call("cuEventElapsedTime", &milliseconds, from, to), kSuccess);
  EXPECT_GE(milliseconds, 0);
  {
    Gate gate(*this, legacy_);
    call("cuEventRecord", to, legacy_);
    EXPECT_EQ(call("cuEventElapsedTime", &milliseconds, from, to), kNotReady);
    give_it_time();
  }
  EXPECT_EQ(call("cuEventElapsedTime", &milliseconds, from, to), kSuccess);
  EXPECT_GE(milliseconds, 20);
}

TEST_F(Streams, EventsBelongToTheirContext) {
  void *const mine = event(), *other = nullptr;
  ASSERT_EQ(call("cuCtxCreate_v2", &other, 0U, 0), kSuccess);
  EXPECT_EQ(call("cuEventRecord", mine, legacy_), kInvalidHandle);
  EXPECT_EQ(call("cuStreamWaitEvent", legacy_, mine, 0U), kSuccess);
  EXPECT_EQ(call("cuCtxDestroy_v2", other), kSuccess);
}

TEST_F(Streams, WriteAndWaitForWords) {
  void *const first = stream(kNonBlocking), *const second = stream(kNonBlocking);
  const Address word = allocate(8);
  std::atomic<int> seen{0};
  call("cuMemsetD32Async", word, 0U, std::size_t{2}, first);
  synchronize(first);
  EXPECT_EQ(call("cuStreamWaitValue32_v2", first, word, 7U, 1U), kSuccess);
  mark(first, seen);
  EXPECT_EQ(call("cuStreamWriteValue32_v2", second, word, 6U, 0U), kSuccess);
  synchronize(second);
  give_it_time();
  EXPECT_EQ(seen, 0);
  EXPECT_EQ(call("cuStreamWriteValue32_v2", second, word, 7U, 0U), kSuccess);
  EXPECT_EQ(synchronize(first), kSuccess);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(call("cuStreamWriteValue32_v2", second, word + 2, 7U, 0U), kInvalidValue) << "not aligned";
}

}  // namespace
}  // namespace virtual_gpu
