// schedule_simulator.hpp -- performs schedules on sets of contributions: processes run programs of sends and
// receives over FIFOs of k slots, in any interleaving, at random or exhaustively.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace loom::device {

/// Whose contributions a block holds, how often each, and which block of the message it is.
struct Block {
  int index = -1;
  std::vector<std::uint8_t> counts;
  bool operator==(const Block&) const = default;
};

struct Operation {
  enum Kind { kSend, kReceive, kReceiveReduce } kind;
  int peer, channel = 0;
  int block = 0;
};

/// A sequence of operations of one rank; a rank may run several concurrently.
struct Program {
  int rank;
  std::vector<Operation> operations;
};

class Simulator {
 public:
  Simulator(int ranks, int blocks, std::size_t slots, std::vector<Program> programs)
      : ranks_(ranks), slots_(slots), programs_(std::move(programs)) {
    state_.at.resize(programs_.size());
    state_.clock.resize(programs_.size());
    messages_.resize(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      state_.output.emplace_back();
      for (int block = 0; block < blocks; ++block) state_.output.back().push_back(contribution(rank, block));
    }
  }

  /// What a rank has at first.
  Block contribution(int rank, int block) const {
    Block made{block, std::vector<std::uint8_t>(static_cast<std::size_t>(ranks_))};
    made.counts[static_cast<std::size_t>(rank)] = 1;
    return made;
  }
  Block complete(int block) const {
    return {block, std::vector<std::uint8_t>(static_cast<std::size_t>(ranks_), 1)};
  }
  const Block& output(int rank, int block) const {
    return state_.output[static_cast<std::size_t>(rank)][static_cast<std::size_t>(block)];
  }

  /// Lets random processes go on, for few or many steps, until all are done; false on deadlock.
  bool run(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::size_t> running;
    for (std::size_t p = 0; p < programs_.size(); ++p) running.push_back(p);
    while (!running.empty()) {
      std::shuffle(running.begin(), running.end(), random);
      bool moved = false;
      for (const std::size_t p : running) {
        const int burst = random() % 4 == 0 ? 1000 : 1;
        for (int i = 0; i < burst && try_step(state_, p); ++i) moved = true;
      }
      if (!moved &&
          std::any_of(running.begin(), running.end(), [&](std::size_t p) { return !done(state_, p); }))
        return false;
      std::erase_if(running, [&](std::size_t p) { return done(state_, p); });
    }
    return state_.fifos_empty();
  }

  /// Every interleaving. Returns how many different states there are, or 0 after a deadlock or two different
  /// ends.
  std::size_t run_all() {
    std::set<std::string> seen, ends;
    std::vector<State> open = {state_};
    seen.insert(state_.key());
    while (!open.empty()) {
      const State state = std::move(open.back());
      open.pop_back();
      bool any = false, all_done = true;
      for (std::size_t p = 0; p < programs_.size(); ++p) {
        all_done = all_done && done(state, p);
        State next = state;
        if (!try_step(next, p)) continue;
        any = true;
        if (seen.insert(next.key()).second) open.push_back(std::move(next));
      }
      if (!any && !all_done) return 0;
      if (all_done) {
        ends.insert(state.key());
        state_ = state;
      }
    }
    return ends.size() == 1 && state_.fifos_empty() ? seen.size() : 0;
  }

  int depth() const { return *std::max_element(state_.clock.begin(), state_.clock.end()); }
  int most_messages() const { return *std::max_element(messages_.begin(), messages_.end()); }

 private:
  struct Message {
    Block block;
    int clock;  ///< messages that had to follow one another up to this one
  };
  struct State {
    std::vector<std::size_t> at;
    std::vector<int> clock;
    std::vector<std::vector<Block>> output;
    std::map<std::vector<int>, std::deque<Message>> fifos;  ///< by from, to, channel

    bool fifos_empty() const {
      return std::all_of(fifos.begin(), fifos.end(), [](const auto& fifo) { return fifo.second.empty(); });
    }
    std::string key() const {
      std::string text;
      const auto add = [&](const Block& block) {
        text += static_cast<char>(block.index);
        text.append(block.counts.begin(), block.counts.end());
      };
      for (const std::size_t position : at) text += static_cast<char>(position);
      for (const auto& blocks : output)
        for (const Block& block : blocks) add(block);
      for (const auto& [ends, fifo] : fifos)
        for (const Message& message : fifo) {
          text.append(ends.begin(), ends.end());
          add(message.block);
        }
      return text;
    }
  };

  bool done(const State& state, std::size_t p) const { return state.at[p] == programs_[p].operations.size(); }

  bool try_step(State& state, std::size_t p) {
    if (done(state, p)) return false;
    const int rank = programs_[p].rank;
    const auto self = static_cast<std::size_t>(rank);
    const Operation& operation = programs_[p].operations[state.at[p]];
    Block& block = state.output[self][static_cast<std::size_t>(operation.block)];
    if (operation.kind == Operation::kSend) {
      auto& fifo = state.fifos[{rank, operation.peer, operation.channel}];
      if (fifo.size() == slots_) return false;
      fifo.push_back({block, state.clock[p] + 1});
      ++messages_[self];
    } else {
      auto& fifo = state.fifos[{operation.peer, rank, operation.channel}];
      if (fifo.empty()) return false;
      const Message message = std::move(fifo.front());
      fifo.pop_front();
      state.clock[p] = std::max(state.clock[p], message.clock);
      take(block, message.block, operation.kind);
    }
    ++state.at[p];
    return true;
  }

  static void take(Block& into, const Block& received, Operation::Kind kind) {
    if (kind == Operation::kReceive) {
      into = received;
      return;
    }
    if (into.index != received.index) into.index = -2;  // two different blocks reduced: a wrong result
    for (std::size_t i = 0; i < into.counts.size(); ++i)
      into.counts[i] = static_cast<std::uint8_t>(into.counts[i] + received.counts[i]);
  }

  int ranks_;
  std::size_t slots_;
  std::vector<Program> programs_;
  State state_;
  std::vector<int> messages_;
};

}  // namespace loom::device
