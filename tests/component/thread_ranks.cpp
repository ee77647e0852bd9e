#include "thread_ranks.hpp"

#include <algorithm>
#include <barrier>
#include <cstring>
#include <deque>
#include <exception>
#include <new>
#include <thread>

namespace loom::test {
namespace {

/// The exchanges of the ranks of one job.
struct Gatherer {
  explicit Gatherer(int size) : barrier(size), inputs(static_cast<std::size_t>(size)) {}
  std::barrier<> barrier;
  std::vector<const void*> inputs;
};

struct RankContext {
  Gatherer* gatherer;
  int rank;
};

void gather(const std::vector<const void*>& inputs, const loom_exchange& wanted) {
  auto* to = static_cast<std::byte*>(wanted.out);
  const auto take = [&](const void* input) {
    std::memcpy(to, input, wanted.bytes_per_rank);
    to += wanted.bytes_per_rank;
  };
  if (wanted.peers == nullptr)
    for (const void* input : inputs) take(input);
  else
    for (int i = 0; i < wanted.peer_count; ++i) take(inputs[static_cast<std::size_t>(wanted.peers[i])]);
}

void reduce(const std::vector<const void*>& inputs, const loom_exchange& wanted) {
  auto* out = static_cast<std::uint64_t*>(wanted.out);
  std::fill_n(out, wanted.words, 0);
  for (const void* input : inputs)
    for (std::size_t i = 0; i < wanted.words; ++i) {
      const std::uint64_t word = static_cast<const std::uint64_t*>(input)[i];
      out[i] = std::max(out[i], word);
    }
}

loom_exchanged exchange(void* context, const loom_exchange* wanted, const loom_watch*) {
  auto& [gatherer, rank] = *static_cast<RankContext*>(context);
  gatherer->inputs[static_cast<std::size_t>(rank)] = wanted->in;
  gatherer->barrier.arrive_and_wait();
  (wanted->words > 0 ? reduce : gather)(gatherer->inputs, *wanted);
  gatherer->barrier.arrive_and_wait();
  return LOOM_EXCHANGED;
}

/// Of an exchange that never comes further.
loom_standing standing(void* context) {
  const auto& [gatherer, rank] = *static_cast<RankContext*>(context);
  const int ranks = static_cast<int>(gatherer->inputs.size());
  return {.steps = rank, .awaited = (rank + 1) % ranks};
}

// loom_runtime.show has no context: one job at a time owns the transcript.
Transcript* current_transcript = nullptr;

}  // namespace

void Transcript::add(loom_message message, const std::string& where, const std::string& cause) {
  const std::lock_guard lock(mutex_);
  messages_.emplace_back(message, where + ": " + cause);
}

std::vector<std::string> Transcript::messages(loom_message message) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> found;
  for (const auto& [kind, text] : messages_)
    if (kind == message) found.push_back(text);
  return found;
}

void Transcript::add_line(const std::string& line) {
  if (on_line) on_line();
  const std::lock_guard lock(mutex_);
  lines_.push_back(line);
}

std::vector<std::string> Transcript::lines() {
  const std::lock_guard lock(mutex_);
  return lines_;
}

void Job::run(const std::function<void(Rank&)>& body) {
  current_transcript = &transcript;
  loom_runtime runtime{};
  runtime.show = [](loom_message message, const char* where, const char* cause) {
    try {
      current_transcript->add(message, where, cause);
    } catch (const std::bad_alloc&) {  // the test has taken this rank's memory away
    }
  };
  runtime.log = [](const char* line) { current_transcript->add_line(line); };
  runtime.now = now;
  runtime.parameters = parameters;

  std::deque<Gatherer> gatherers;
  for (std::size_t thread = 0; thread < threads_per_rank; ++thread) gatherers.emplace_back(ranks);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<Process>> processes(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      threads.emplace_back([&, rank, index] {
        Rank self;
        std::deque<RankContext> contexts;
        for (Gatherer& gatherer : gatherers)
          self.bootstraps_.push_back({&contexts.emplace_back(RankContext{&gatherer, rank}), rank, ranks,
                                      exchange, standing, nullptr, "TEST_COMM", false, false, nullptr});
        loom_runtime mine = runtime;
        if (parameters_of) mine.parameters = parameters_of(rank);
        self.process_ = std::make_unique<Process>(mine, host ? host(rank) : "testhost");
        self.engine_ = std::make_unique<ProgressEngine>(*self.process_);
        try {
          body(self);
        } catch (...) {
          failures[index] = std::current_exception();
        }
        // As MPI_Finalize does, wait for all before the network goes.
        processes[index] = std::move(self.process_);
      });
    }
  }
  processes.clear();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace loom::test
