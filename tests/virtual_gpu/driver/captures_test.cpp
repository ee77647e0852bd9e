// Stream capture of the virtual driver, above all what it forbids.
#include "driver_fixture.hpp"

namespace virtual_gpu {
namespace {

class Captures : public DriverTest {
 public:
  int begin(void* stream, CaptureMode mode = CaptureMode::kGlobal) const {
    return call("cuStreamBeginCapture_v2", stream, mode);
  }
  int end(void* stream, std::size_t* nodes = nullptr) const {
    void* graph = nullptr;
    const int result = call("cuStreamEndCapture", stream, &graph);
    EXPECT_EQ(graph != nullptr, result == kSuccess);
    if (graph == nullptr) return result;
    if (nodes != nullptr) call("cuGraphGetNodes", graph, static_cast<void**>(nullptr), nodes);
    EXPECT_EQ(call("cuGraphDestroy", graph), kSuccess);
    return result;
  }
  CaptureStatus status(void* stream) const {
    CaptureStatus status{};
    EXPECT_EQ(call("cuStreamIsCapturing", stream, &status), kSuccess);
    return status;
  }
  int allocate_some() const {
    Address address;
    return call("cuMemAlloc_v2", &address, std::size_t{64});
  }
  int fill(void* stream) const { return call("cuMemsetD8Async", memory_, '\1', std::size_t{64}, stream); }
  /// In another thread, with the context current.
  template <class Body>
  int elsewhere(Body&& body) const {
    int result = -1;
    std::thread([&] {
      call("cuCtxPushCurrent_v2", context_);
      result = body();
    }).join();
    return result;
  }
  Address memory_ = allocate(64);
};

TEST_F(Captures, RecordAndDoNothing) {
  void* const s = stream(kNonBlocking);
  call("cuMemsetD8_v2", memory_, '\5', std::size_t{64});
  EXPECT_EQ(begin(s), kSuccess);
  EXPECT_EQ(status(s), CaptureStatus::kActive);
  EXPECT_EQ(fill(s), kSuccess);
  EXPECT_EQ(fill(s), kSuccess);
  std::size_t nodes = 0;
  EXPECT_EQ(end(s, &nodes), kSuccess);
  EXPECT_EQ(nodes, 2U);
  EXPECT_EQ(status(s), CaptureStatus::kNone);
  EXPECT_EQ(cuda_.read(reinterpret_cast<std::byte*>(memory_), 1).at(0), std::byte{5});
}

TEST_F(Captures, BeginAndEndInTheSameStream) {
  void *const s = stream(), *const other = stream(kNonBlocking);
  EXPECT_EQ(begin(legacy_), kCaptureUnsupported);
  EXPECT_EQ(end(s), kCaptureUnmatched);
  EXPECT_EQ(begin(s), kSuccess);
  EXPECT_EQ(begin(s), kInvalidValue);
  EXPECT_EQ(end(other), kCaptureUnmatched);
  EXPECT_EQ(end(s), kSuccess);
}

TEST_F(Captures, EndInTheSameThreadUnlessRelaxed) {
  void* const s = stream();
  begin(s, CaptureMode::kThreadLocal);
  EXPECT_EQ(elsewhere([&] { return end(s); }), kCaptureWrongThread);
  EXPECT_EQ(end(s), kSuccess);
  begin(s, CaptureMode::kRelaxed);
  EXPECT_EQ(elsewhere([&] { return end(s); }), kSuccess);
}

TEST_F(Captures, ForbidToWaitForTheStream) {
  void* const s = stream(kNonBlocking);
  for (const auto& wait : {+[](const Captures&t, void*of) { return t.synchronize(of); },
                           +[](const Captures&t, void*of) { return t.query(of); },
                           +[](const Captures&t, void*) { return t.call("cuCtxSynchronize"); }}) {
    begin(s, CaptureMode::kRelaxed);
    EXPECT_EQ(wait(*this, s), kCaptureUnsupported);
    EXPECT_EQ(status(s), CaptureStatus::kInvalidated);
    EXPECT_EQ(fill(s), kCaptureInvalidated);
    EXPECT_EQ(end(s), kCaptureInvalidated);
    EXPECT_EQ(fill(s), kSuccess);
  }
}

TEST_F(Captures, ForbidTheLegacyStreamWhereTheirStreamBlocks) {
  void *const blocking = stream(), *const other = stream(kNonBlocking);
  for (const auto& use : {+[](const Captures& t) { return t.fill(nullptr); },
                          +[](const Captures& t) { return t.query(nullptr); },
                          +[](const Captures& t) { return t.synchronize(nullptr); }}) {
    begin(blocking, CaptureMode::kRelaxed);
    EXPECT_EQ(elsewhere([&] { return use(*this); }), kCaptureImplicit) << "in any thread and any mode";
    EXPECT_EQ(end(blocking), kCaptureInvalidated);
    begin(other, CaptureMode::kRelaxed);
    EXPECT_LE(elsewhere([&] { return use(*this); }), kNotReady);
    EXPECT_EQ(end(other), kSuccess);
  }
}

TEST_F(Captures, AskingTheLegacyStreamLeavesThemAlone) {
  void* const blocking = stream();
  begin(blocking);
  CaptureStatus found{};
  EXPECT_EQ(call("cuStreamIsCapturing", legacy_, &found), kCaptureImplicit);
  EXPECT_EQ(end(blocking), kSuccess);
}

TEST_F(Captures, ForbidUnsafeCallsByTheirMode) {
  struct Case {
    CaptureMode mode;
    bool here, elsewhere;  // forbidden
  };
  for (const Case& each :
       {Case{CaptureMode::kGlobal, true, true}, Case{CaptureMode::kThreadLocal, true, false},
        Case{CaptureMode::kRelaxed, false, false}}) {
    SCOPED_TRACE(static_cast<int>(each.mode));
    void* const s = stream(kNonBlocking);
    const auto expected = [](bool forbidden) { return forbidden ? kCaptureUnsupported : kSuccess; };
    begin(s, each.mode);
    EXPECT_EQ(allocate_some(), expected(each.here));
    EXPECT_EQ(end(s), each.here ? kCaptureInvalidated : kSuccess);
    begin(s, each.mode);
    EXPECT_EQ(elsewhere([&] { return allocate_some(); }), expected(each.elsewhere));
    EXPECT_EQ(end(s), each.elsewhere ? kCaptureInvalidated : kSuccess);
  }
}

TEST_F(Captures, AreHeededByThreadsAsTheseWish) {
  void* const s = stream(kNonBlocking);
  for (const auto mine : {CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    begin(s);
    EXPECT_EQ(elsewhere([&] {
                CaptureMode mode = mine;
                EXPECT_EQ(call("cuThreadExchangeStreamCaptureMode", &mode), kSuccess);
                EXPECT_EQ(mode, CaptureMode::kGlobal) << "what it was";
                return allocate_some();
              }),
              kSuccess);
    EXPECT_EQ(end(s), kSuccess);
  }
  CaptureMode mode = CaptureMode::kRelaxed;
  call("cuThreadExchangeStreamCaptureMode", &mode);
  begin(s);
  EXPECT_EQ(allocate_some(), kSuccess);
  EXPECT_EQ(end(s), kSuccess);
  call("cuThreadExchangeStreamCaptureMode", &mode);
  EXPECT_EQ(mode, CaptureMode::kRelaxed);
}

TEST_F(Captures, TakeInStreamsThatWaitForThem) {
  void *const first = stream(kNonBlocking), *const second = stream(kNonBlocking), *const fork = event(),
              *const join = event();
  begin(first);
  fill(first);
  EXPECT_EQ(call("cuEventRecord", fork, first), kSuccess);
  EXPECT_EQ(call("cuStreamWaitEvent", second, fork, 0U), kSuccess);
  EXPECT_EQ(status(second), CaptureStatus::kActive);
  fill(second);
  EXPECT_EQ(end(second), kCaptureUnmatched);
  call("cuEventRecord", join, second);
  call("cuStreamWaitEvent", first, join, 0U);
  std::size_t nodes = 0;
  EXPECT_EQ(end(first, &nodes), kSuccess);
  EXPECT_EQ(nodes, 2U);
  EXPECT_EQ(status(second), CaptureStatus::kNone);
}

TEST_F(Captures, EndOnlyWhereAllIsJoined) {
  void *const first = stream(kNonBlocking), *const second = stream(kNonBlocking), *const fork = event();
  begin(first);
  call("cuEventRecord", fork, first);
  call("cuStreamWaitEvent", second, fork, 0U);
  fill(second);
  EXPECT_EQ(end(first), kCaptureUnjoined);
  EXPECT_EQ(status(second), CaptureStatus::kNone);
}

// A stream takes part in one capture after the other, each with nodes of its own.
TEST_F(Captures, TakeInAStreamAgain) {
  void *const first = stream(kNonBlocking), *const second = stream(kNonBlocking), *const fork = event(),
              *const join = event();
  for (const int before : {100, 0}) {
    begin(first);
    for (int i = 0; i < before; ++i) fill(first);
    call("cuEventRecord", fork, first);
    call("cuStreamWaitEvent", second, fork, 0U);
    call("cuEventRecord", join, second);
    call("cuStreamWaitEvent", first, join, 0U);
    fill(first);
    std::size_t nodes = 0;
    EXPECT_EQ(end(first, &nodes), kSuccess);
    EXPECT_EQ(nodes, static_cast<std::size_t>(before) + 1);
  }
  EXPECT_EQ(call("cuStreamWaitEvent", second, join, 0U), kCapturedEvent) << "of a capture that has ended";
  EXPECT_EQ(status(second), CaptureStatus::kNone);
}

TEST_F(Captures, LetGoTheStreamsOfOtherGpus) {
  void *const first = stream(kNonBlocking), *const fork = event(), *const second = cuda_.context(1);
  call("cuCtxPushCurrent_v2", second);
  void *const other = stream(kNonBlocking), *const join = event();
  call("cuCtxPushCurrent_v2", context_);
  begin(first);
  call("cuEventRecord", fork, first);
  EXPECT_EQ(call("cuStreamWaitEvent", other, fork, 0U), kSuccess);
  EXPECT_EQ(status(other), CaptureStatus::kActive);
  call("cuEventRecord", join, other);
  call("cuStreamWaitEvent", first, join, 0U);
  EXPECT_EQ(end(first), kSuccess);
  EXPECT_EQ(status(other), CaptureStatus::kNone);
}

TEST_F(Captures, NeverTakeInTheLegacyStream) {
  void *const s = stream(kNonBlocking), *const e = event();
  begin(s);
  call("cuEventRecord", e, s);
  EXPECT_EQ(call("cuStreamWaitEvent", legacy_, e, 0U), kCaptureImplicit);
  EXPECT_EQ(end(s), kCaptureInvalidated);
}

TEST_F(Captures, KeepToThemselves) {
  void *const first = stream(kNonBlocking), *const second = stream(kNonBlocking), *const e = event(),
              *const outside = event();
  call("cuEventRecord", outside, second);
  begin(first);
  begin(second);
  call("cuEventRecord", e, first);
  EXPECT_EQ(call("cuStreamWaitEvent", second, e, 0U), kCaptureMerge);
  EXPECT_EQ(end(second), kSuccess);
  EXPECT_EQ(call("cuEventQuery", e), kCapturedEvent);
  EXPECT_EQ(end(first), kCaptureInvalidated);
  begin(first);
  EXPECT_EQ(call("cuStreamWaitEvent", first, outside, 0U), kCaptureIsolation);
  EXPECT_EQ(end(first), kCaptureInvalidated);
}

}  // namespace
}  // namespace virtual_gpu
