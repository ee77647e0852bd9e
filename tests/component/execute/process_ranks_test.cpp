// Ranks as processes, through the C face as Open MPI's glue uses it: what happens to the others when one dies
// or forks.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "component/core.h"

namespace {

constexpr int kMaxRanks = 8;
constexpr std::size_t kMaxGather = 64 * 1024;

/// In memory that all rank processes share.
struct Agreement {
  pthread_barrier_t barrier;
  std::byte gathered[kMaxRanks][kMaxGather];
};

struct RankProcess {
  Agreement* agreement;
  int rank, size;
  loom_comm* comm = nullptr;

  void meet() { pthread_barrier_wait(&agreement->barrier); }
  int allreduce(std::vector<float>& values) {
    return perform(LOOM_ALLREDUCE, values.data(), values.data(), values.size(), LOOM_FLOAT);
  }
  int perform(loom_collective collective, const void* in, void* out, std::uint64_t count, loom_type type) {
    loom_call call = {};
    call.collective = static_cast<loom::device::Collective>(collective);
    call.in = static_cast<const std::byte*>(in);
    call.out = static_cast<std::byte*>(out);
    call.count = count;
    call.type = static_cast<loom::device::Type>(type);
    call.op = loom::device::Op::kSum;
    return loom_perform(comm, &call);
  }
};

std::string last_message;             // of this rank process
bool dies_when_it_waits = false;      // this rank process
bool prefers_single_copy = false;     // all of them
int (*advance_requests)() = nullptr;  // in place of the MPI library's progress loop

/// Of so many ranks, from[i] the i-th of them; from nullptr: rank i.
bool gather(RankProcess& self, const void* in, void* out, std::size_t bytes, int ranks,
            const int* from = nullptr) {
  if (bytes > kMaxGather) return false;
  std::memcpy(self.agreement->gathered[self.rank], in, bytes);
  self.meet();
  for (int i = 0; i < ranks; ++i)
    std::memcpy(static_cast<std::byte*>(out) + static_cast<std::size_t>(i) * bytes,
                self.agreement->gathered[from != nullptr ? from[i] : i], bytes);
  self.meet();
  return true;
}

loom_exchanged exchange(void* context, const loom_exchange* wanted, const loom_watch*) {
  auto& self = *static_cast<RankProcess*>(context);
  const std::size_t n = wanted->words;
  if (n == 0) {
    const int ranks = wanted->peers != nullptr ? wanted->peer_count : self.size;
    return gather(self, wanted->in, wanted->out, wanted->bytes_per_rank, ranks, wanted->peers)
               ? LOOM_EXCHANGED
               : LOOM_EXCHANGE_FAILED;
  }
  std::vector<std::uint64_t> all(n * static_cast<std::size_t>(self.size));
  if (!gather(self, wanted->in, all.data(), n * sizeof(all[0]), self.size)) return LOOM_EXCHANGE_FAILED;
  auto* const out = static_cast<std::uint64_t*>(wanted->out);
  std::fill_n(out, n, 0);
  for (std::size_t i = 0; i < all.size(); ++i) out[i % n] = std::max(out[i % n], all[i]);
  return LOOM_EXCHANGED;
}

/// What a rank does; an empty string, or what was wrong.
using Body = std::function<std::string(RankProcess&)>;

std::string run_rank(RankProcess& self, bool own_host, double timeout_s, const Body& body) {
  ::alarm(60);  // a hang ends as a failure
  if (own_host) {
    const std::string name = "host" + std::to_string(self.rank);
    if (::unshare(CLONE_NEWUTS) != 0 || ::sethostname(name.c_str(), name.size()) != 0)
      return "cannot name the host";
  }
  loom_runtime runtime{};
  runtime.show = [](loom_message, const char* where, const char* cause) {
    last_message = std::string(where) + ": " + cause;
  };
  runtime.log = [](const char*) {};
  runtime.progress = [] {
    if (dies_when_it_waits) ::raise(SIGKILL);
  };
  runtime.register_progress = [](int (*callback)(void), bool) { advance_requests = callback; };
  runtime.unregister_progress = [](int (*)(void)) {};
  runtime.parameters.lane_bytes = 4 << 20;
  if (prefers_single_copy) runtime.parameters.tune = "all:single_copy";
  runtime.parameters.timeout_s = timeout_s;
  loom_initialize(&runtime);
  const loom_bootstrap bootstrap{&self,   self.rank,   self.size, exchange, nullptr,
                                 nullptr, "TEST_COMM", false,     false,    nullptr};
  if (loom_comm_create(&bootstrap, &self.comm) != LOOM_SUCCESS) return "no communicator: " + last_message;
  std::string wrong = body(self);
  loom_comm_destroy(self.comm);
  loom_finalize();
  return wrong;
}

/// Runs the ranks as processes and expects each to end well, save those that `killed` names, which end by
/// SIGKILL.
void run_processes(int size, bool hosts, const std::vector<int>& killed, const Body& body,
                   double timeout_s = 0) {
  if (hosts && ::geteuid() != 0) GTEST_SKIP() << "skipped: giving each rank a host name needs root";
  void* memory =
      ::mmap(nullptr, sizeof(Agreement), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* agreement = static_cast<Agreement*>(memory);
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&agreement->barrier, &shared, static_cast<unsigned>(size));

  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      RankProcess self{agreement, rank, size};
      const std::string wrong = run_rank(self, hosts, timeout_s, body);
      if (!wrong.empty()) std::fprintf(stderr, "rank %d: %s\n", rank, wrong.c_str());
      ::_exit(wrong.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    ::waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
    if (std::find(killed.begin(), killed.end(), rank) != killed.end()) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "rank " << rank << " ended with status " << status;
    }
  }
  ::munmap(memory, sizeof(Agreement));
}

std::string expect_failure_after_death(RankProcess& self, std::size_t count, const char* cause) {
  std::vector<float> values(count, 1.0F);
  if (const int result = self.allreduce(values); result != LOOM_SUCCESS)
    return "the first call failed: " + last_message;
  self.meet();  // all are through with the first call
  if (self.rank == 1) ::raise(SIGKILL);
  const int result = self.allreduce(values);
  if (result != LOOM_ERR_PEER_FAILED)
    return "result " + std::to_string(result) + ", message: " + last_message;
  if (last_message.find(cause) == std::string::npos) return "the message names no cause: " + last_message;
  if (self.allreduce(values) != LOOM_ERR_PEER_FAILED) return "the communicator came back to life";
  return {};
}

class DeadRank : public ::testing::TestWithParam<std::size_t> {};

TEST_P(DeadRank, FailsTheCallOnAllOthersOfItsHostWithItsName) {
  run_processes(4, false, {1},
                [&](RankProcess& self) { return expect_failure_after_death(self, GetParam(), ""); });
}

TEST(DeadRank, IsNamedByTheOnlyOtherOne) {
  run_processes(2, false, {1},
                [&](RankProcess& self) { return expect_failure_after_death(self, 4, "rank 1 (process "); });
}

INSTANTIATE_TEST_SUITE_P(Counts, DeadRank, ::testing::Values(4, 500000),
                         [](const auto& test) { return std::to_string(test.param); });

// The dead rank has told where its buffer is; whoever reads it then finds no process.
TEST(DeadRank, IsNamedByTheOneThatReadsItsMemory) {
  prefers_single_copy = true;
  run_processes(2, false, {1}, [](RankProcess& self) -> std::string {
    std::vector<float> values(4), all(200'000);
    if (self.allreduce(values) != LOOM_SUCCESS) return "the first call failed: " + last_message;
    self.meet();
    dies_when_it_waits = self.rank == 1;
    if (self.rank == 0) ::usleep(300'000);
    const int result =
        self.perform(LOOM_ALLGATHER, all.data() + self.rank * 100'000, all.data(), 400'000, LOOM_UINT8);
    if (result != LOOM_ERR_PEER_FAILED)
      return "result " + std::to_string(result) + ", message: " + last_message;
    if (last_message.find(": rank 1 (process ") == std::string::npos)
      return "nobody is named: " + last_message;
    return {};
  });
  prefers_single_copy = false;
}

// Whoever waits on the lane of a request, and the requests that had not been started.
TEST(DeadRank, FailsPersistentCallsThatMayStartInAnyOrder) {
  for (const std::uint64_t count : {4, 50'000})
    run_processes(3, false, {1}, [&](RankProcess& self) -> std::string {
      struct Sum {
        std::vector<float> values;
        loom_request* request = nullptr;
        int result = LOOM_DECLINED;
        bool done = false;
      } sums[2];
      for (Sum& sum : sums) {
        sum.values.assign(count, 1.0F);
        loom_call call = {};
        call.in = reinterpret_cast<const std::byte*>(sum.values.data());
        call.out = reinterpret_cast<std::byte*>(sum.values.data());
        call.collective = loom::device::Collective::kAllreduce;
        call.type = loom::device::Type::kFloat;
        call.count = count;
        const auto done = [](void* context, int result) {
          static_cast<Sum*>(context)->result = result;
          static_cast<Sum*>(context)->done = true;
        };
        if (loom_request_create(self.comm, &call, LOOM_PERSISTENT_ANY_ORDER, done, &sum, &sum.request) !=
            LOOM_SUCCESS)
          return "no request: " + last_message;
      }
      self.meet();
      if (self.rank == 1) ::raise(SIGKILL);
      for (Sum& sum : sums) {
        loom_request_start(sum.request);
        while (!sum.done) advance_requests();
        if (sum.result == LOOM_SUCCESS) return "a call without one rank has ended well";
        loom_request_destroy(sum.request);
      }
      std::vector<float> values(4);
      return self.allreduce(values) == LOOM_SUCCESS ? "the communicator came back to life" : "";
    });
}

TEST(DeadRank, FailsTheCallOnAllOtherHosts) {
  ::setenv("UCX_TLS", "tcp,self", 1);
  run_processes(4, true, {1}, [](RankProcess& self) { return expect_failure_after_death(self, 500000, ""); });
}

TEST(DeadRank, IsNamedByTheOnlyOtherHost) {
  ::setenv("UCX_TLS", "tcp,self", 1);
  run_processes(2, true, {1}, [](RankProcess& self) {
    return expect_failure_after_death(self, 500000, "rank 1 (process ");
  });
}

TEST(LateRank, IsNamedByThoseWhoGiveUpWaitingForIt) {
  ::setenv("UCX_TLS", "tcp,self", 1);
  for (const bool hosts : {false, true}) {
    run_processes(
        2, hosts, {},
        [](RankProcess& self) -> std::string {
          std::vector<float> values(500000, 1.0F);
          if (self.allreduce(values) != LOOM_SUCCESS) return "the first call failed: " + last_message;
          if (self.rank == 1) ::usleep(800'000);
          const int result = self.allreduce(values);
          if (self.rank == 1)
            return result == LOOM_ERR_PEER_FAILED ? "" : "the late rank was told " + std::to_string(result);
          if (result != LOOM_ERR_TIMEOUT)
            return "result " + std::to_string(result) + ", message: " + last_message;
          if (last_message.find("rank 1 (process ") == std::string::npos)
            return "nobody is named: " + last_message;
          ::usleep(800'000);  // the late one hears of it before this process ends
          return {};
        },
        0.3);
  }
}

TEST(ForkedChild, LeavesTheNetworkToItsParentWhenItExits) {
  ::setenv("UCX_TLS", "tcp,self", 1);
  run_processes(2, true, {}, [&](RankProcess& self) -> std::string {
    std::vector<float> values(500000, 1.0F);
    if (self.allreduce(values) != LOOM_SUCCESS) return "the call before the fork failed: " + last_message;
    const pid_t child = ::fork();
    if (child == 0) std::exit(0);
    if (child < 0) return "no child";
    ::waitpid(child, nullptr, 0);
    for (int i = 0; i < 20; ++i) {
      values.assign(values.size(), 1.0F);
      if (self.allreduce(values) != LOOM_SUCCESS) return "a call after the fork failed: " + last_message;
      if (values.front() != 2.0F || values.back() != 2.0F) return "a wrong sum";
    }
    self.meet();  // nobody leaves before all are through
    return {};
  });
}

}  // namespace
