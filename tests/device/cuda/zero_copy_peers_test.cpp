// A call by zero_copy that ends early, and the kernels of other ranks, which write to this rank's buffers.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda/images.hpp"
#include "device/cuda/zero_copy_executor.hpp"
#include "tests/device/cuda/gpu_world.hpp"

namespace loom::device::cuda {
namespace {

using std::chrono::seconds;

/// A process that does nothing, as another rank's.
class OtherProcess {
 public:
  OtherProcess() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const int fd : {1, 2}) ::close(fd);  // whoever reads the test's output waits for them
    while (::getppid() != 1) ::pause();
    ::_exit(0);
  }
  ~OtherProcess() { die(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  ProcessId id() const { return as_seen_here({pid_, 1}); }
  void stop() { ::kill(pid_, SIGSTOP); }
  void die() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_;
};

/// A rank whose calls end once another one, of another process as far as the first one knows, has said that
/// it is ready: so that one's kernels may be at work.
class EarlyEnds : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_kernels()) GTEST_SKIP() << "skipped: this build has no kernels";
    for (auto* links : {&own_, &others_}) links->emplace(gpu_, GpuLinks::Form{.channels = 0}, 2);
    std::vector<GpuLinks::Handle> handles = {own_->handle(), others_->handle()};
    handles[1].process = other_.id();
    own_->connect(handles, 0);
    others_->connect(handles, 1);
  }
  /// In a lane of its own.
  void begin_call() {
    Begun& begun = calls_.emplace_back();
    begun.lane.emplace(own_->stream_of_lanes(), own_->launch_words(), std::span<std::byte* const>(), 0,
                       std::vector<ZeroCopyBoard*>{&begun.boards->own, &begun.boards->other}, 0);
    const Call call{.collective = Collective::kAllreduce,
                    .in = buffer_.at(),
                    .out = buffer_.at(),
                    .count = 1000,
                    .type = Type::kInt32};
    begun.executor = std::make_unique<ZeroCopyExecutor>(*own_, *begun.lane, call, &mark_);
    while (begun.boards->own.ready.value() == 0) begun.executor->advance();
    begun.boards->other.ready.publish(1);
  }
  void end_kernels_of_other() {
    for (const Begun& begun : calls_) begun.boards->other.done.publish(1);
  }
  std::chrono::steady_clock::duration time_to_end() {
    const auto began = std::chrono::steady_clock::now();
    for (Begun& begun : calls_) begun.executor.reset();
    return std::chrono::steady_clock::now() - began;
  }

  OtherProcess other_;

 private:
  struct Boards {
    ZeroCopyBoard own, other;
  };
  struct Begun {
    std::unique_ptr<Boards> boards = std::make_unique<Boards>();
    std::optional<ZeroCopyLinks> lane;
    std::unique_ptr<ZeroCopyExecutor> executor;
  };

  Gpus gpus_;
  std::shared_ptr<Gpu> gpu_ = std::make_shared<Gpu>(gpus_.driver(), gpus_.owner());
  Buffer buffer_{gpus_, *gpu_, Ints(1000, 1)};
  ProgramMark mark_{gpus_.driver(), gpus_.owner()};
  std::optional<GpuLinks> own_, others_;
  std::list<Begun> calls_;
};

TEST_F(EarlyEnds, WaitForTheKernelOfARankThatLives) {
  begin_call();
  std::jthread later([&] {
    std::this_thread::sleep_for(seconds(3));
    end_kernels_of_other();
  });
  EXPECT_GE(time_to_end(), seconds(3));
}

/// Its kernels have gone with it, or it cannot say that they have ended.
TEST_F(EarlyEnds, WaitOnceForAllKernelsOfARankThatIsDead) {
  other_.die();
  for (int lane = 0; lane < 4; ++lane) begin_call();
  const auto took = time_to_end();
  EXPECT_GT(took, seconds(1));
  EXPECT_LT(took, seconds(4));
}

TEST_F(EarlyEnds, DoNotWaitLongForARankThatIsStopped) {
  other_.stop();
  begin_call();
  const auto took = time_to_end();
  EXPECT_GT(took, seconds(1));
  EXPECT_LT(took, seconds(4));
}

}  // namespace
}  // namespace loom::device::cuda
