// Everything that goes through the CICO buffers of one host, simulated: ranks in one thread, each moving by a
// round of its executor when it is told to.
//
// A step of an executor reads and writes banks and then publishes, or does not publish. Whatever another rank
// could overwrite while this one is still in its step, it could also overwrite before: the conditions under
// which it moves are the same. So it is enough that steps take place one after the other, in every order.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <variant>

#include "device/host/cico_blocks_executor.hpp"
#include "device/host/cico_scan_executor.hpp"
#include "device/host/single_copy_executor.hpp"

namespace loom::device {
namespace {

struct Made {
  Collective collective;
  std::size_t count;  ///< elements of a message, or of the shortest block
  int root = 0;
  bool second_way = false;  ///< by single copy; a scan in two shots
  bool in_place = false;    ///< of reductions
};

/// Elements that rank `from` sends to rank `to`, where blocks are listed.
std::size_t length(const Made& made, int from, int to) {
  switch (made.collective) {
    case Collective::kGatherV:
    case Collective::kAllGatherV:
      return made.count + static_cast<std::size_t>(from) * 700;
    case Collective::kScatterV:
      return made.count + static_cast<std::size_t>(to) * 700;
    case Collective::kAllToAllV:
    case Collective::kAllToAllW:
      return made.count + static_cast<std::size_t>(from * 2 + to) * 300;
    default:
      return made.count;
  }
}

/// Element i of what rank `from` has for rank `to` in a call; small, so that sums are exact.
int value(std::size_t made, int from, int to, std::size_t i) {
  return static_cast<int>((i * 7 + made * 5 + static_cast<std::size_t>(to) * 3) % 89) + 2 * from;
}

bool has_block_for_each(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllToAll ||
         collective == Collective::kScatter || collective == Collective::kScatterV ||
         collective == Collective::kAllToAllV || collective == Collective::kAllToAllW;
}
bool has_block_of_each(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kAllToAll ||
         collective == Collective::kGather || collective == Collective::kGatherV ||
         collective == Collective::kAllGatherV || collective == Collective::kAllToAllV ||
         collective == Collective::kAllToAllW;
}
bool is_scan(Collective collective) {
  return collective == Collective::kScan || collective == Collective::kExscan;
}
bool has_second_way(Collective collective) {
  return SingleCopyExecutor::takes(collective) || is_scan(collective);
}
/// Only the root sends; only the root receives.
bool is_from_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kScatter ||
         collective == Collective::kScatterV;
}
bool is_to_root(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kGather ||
         collective == Collective::kGatherV;
}

/// One rank on its way through a row of calls.
class Walker {
 public:
  Walker(std::vector<CicoBuffer*> cico, int self, bool few_rounds, std::uint64_t banks,
         const std::vector<Made>& calls)
      : cico_(std::move(cico), self, few_rounds, banks),
        calls_(calls),
        pids_(static_cast<std::size_t>(cico_.size()), ::getpid()) {}

  bool done() const { return at_ == calls_.size(); }
  /// Moves by one round; false: it has to wait.
  bool move() {
    if (!executor_) begin();
    const auto state = std::visit([](auto& executor) { return executor->advance(); }, *executor_);
    if (state == RingExecutor::State::kBlocked) return false;
    if (state == RingExecutor::State::kDone) {
      check();
      executor_.reset();
      ++at_;
    }
    return true;
  }

 private:
  using Collection = std::vector<std::vector<int>>;

  void begin() {
    const Made& made = calls_[at_];
    const int self = cico_.self(), ranks = cico_.size();
    const bool sends = !is_from_root(made.collective) || self == made.root;
    const bool receives = !is_to_root(made.collective) || self == made.root;
    in_.clear();
    out_.clear();
    for (int to = 0; to < (has_block_for_each(made.collective) ? ranks : 1) && sends; ++to) {
      in_.emplace_back(length(made, self, to));
      for (std::size_t i = 0; i < in_.back().size(); ++i) in_.back()[i] = value(at_, self, to, i);
    }
    for (int from = 0; from < (has_block_of_each(made.collective) ? ranks : 1) && receives; ++from)
      out_.emplace_back(length(made, is_from_root(made.collective) ? made.root : from, self), -1);

    Call call{.collective = made.collective, .root = made.root};
    if (made.collective == Collective::kBarrier || lists_blocks(made.collective)) {
      in_blocks_.clear();
      out_blocks_.clear();
      const auto list = [](Collection& blocks, std::vector<Block>& listed) {
        for (auto& block : blocks)
          listed.push_back({reinterpret_cast<std::byte*>(block.data()), block.size() * sizeof(int)});
        return listed.data();
      };
      call.in_blocks = list(in_, in_blocks_);
      call.out_blocks = list(out_, out_blocks_);
      executor_.emplace(std::make_unique<CicoBlocksExecutor>(cico_, call));
      return;
    }
    const auto flatten = [](Collection& blocks) {
      for (std::size_t b = 1; b < blocks.size(); ++b)
        blocks[0].insert(blocks[0].end(), blocks[b].begin(), blocks[b].end());
      blocks.resize(std::min<std::size_t>(blocks.size(), 1));
      return blocks.empty() ? nullptr : reinterpret_cast<std::byte*>(blocks[0].data());
    };
    call.in = flatten(in_);
    call.out = flatten(out_);
    if (made.in_place && receives) {
      out_ = in_;
      call.in = call.out = reinterpret_cast<std::byte*>(out_[0].data());
    }
    call.count = made.count;
    call.type = Type::kInt32;
    if (is_scan(made.collective))
      executor_.emplace(std::make_unique<CicoScanExecutor>(cico_, call, made.second_way));
    else if (made.second_way)
      executor_.emplace(std::make_unique<SingleCopyExecutor>(cico_, pids_, call));
    else
      executor_.emplace(std::make_unique<CicoExecutor>(cico_, call));
  }

  /// Element i of the block that came from rank `from`, or of the only one.
  int expected(const Made& made, int from, std::size_t i) const {
    const int self = cico_.self();
    const bool scatters = has_block_for_each(made.collective);
    if (!is_reduction(made.collective))
      return value(at_, is_from_root(made.collective) ? made.root : from, scatters ? self : 0, i);
    int last = cico_.size() - 1;
    if (made.collective == Collective::kScan) last = self;
    if (made.collective == Collective::kExscan) last = self - 1;
    int sum = 0;
    for (int rank = 0; rank <= last; ++rank) sum += value(at_, rank, scatters ? self : 0, i);
    return sum;
  }

  void check() const {
    const Made& made = calls_[at_];
    const int self = cico_.self();
    if (made.collective == Collective::kBarrier || out_.empty()) return;
    if (made.collective == Collective::kExscan && self == 0) return;
    if (made.collective == Collective::kBroadcast && self == made.root) return;
    std::size_t at = 0;  // in a flat buffer
    for (int from = 0; from < (has_block_of_each(made.collective) ? cico_.size() : 1); ++from) {
      const bool listed = lists_blocks(made.collective);
      const std::size_t elems = listed ? out_[static_cast<std::size_t>(from)].size() : made.count;
      for (std::size_t i = 0; i < elems; ++i) {
        const int got = listed ? out_[static_cast<std::size_t>(from)][i] : out_[0][at++];
        ASSERT_EQ(got, expected(made, from, i))
            << "call " << at_ << ", rank " << self << ", block " << from << ", element " << i;
      }
    }
  }

  CicoBuffers cico_;
  const std::vector<Made>& calls_;
  std::vector<std::int64_t> pids_;
  std::size_t at_ = 0;
  Collection in_, out_;
  std::vector<Block> in_blocks_, out_blocks_;
  std::optional<std::variant<std::unique_ptr<CicoExecutor>, std::unique_ptr<SingleCopyExecutor>,
                             std::unique_ptr<CicoBlocksExecutor>, std::unique_ptr<CicoScanExecutor>>>
      executor_;
};

class World {
 public:
  World(int ranks, bool few_rounds, const std::vector<Made>& calls,
        std::uint64_t banks = CicoBuffer::kBanks) {
    for (int rank = 0; rank < ranks; ++rank) cico_.push_back(std::make_unique<CicoBuffer>());
    std::vector<CicoBuffer*> cico;
    for (const auto& buffer : cico_) cico.push_back(buffer.get());
    for (int rank = 0; rank < ranks; ++rank)
      walkers_.push_back(std::make_unique<Walker>(cico, rank, few_rounds, banks, calls));
  }
  bool move(int rank) {
    Walker& walker = *walkers_[static_cast<std::size_t>(rank)];
    return !walker.done() && walker.move();
  }
  bool done() const {
    return std::ranges::all_of(walkers_, [](const auto& walker) { return walker->done(); });
  }
  /// All ranks that can move do so in turn, to the end; false: none can.
  bool finish() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < static_cast<int>(walkers_.size()); ++rank) moved |= move(rank);
    }
    return done();
  }

 private:
  std::vector<std::unique_ptr<CicoBuffer>> cico_;
  std::vector<std::unique_ptr<Walker>> walkers_;
};

constexpr Collective kAll[] = {
    Collective::kAllreduce, Collective::kReduce,     Collective::kReduceScatter, Collective::kBroadcast,
    Collective::kAllGather, Collective::kAllToAll,   Collective::kBarrier,       Collective::kScan,
    Collective::kExscan,    Collective::kGather,     Collective::kGatherV,       Collective::kScatter,
    Collective::kScatterV,  Collective::kAllGatherV, Collective::kAllToAllV,     Collective::kAllToAllW};

/// From each state that can be reached, each rank that can move does so first, and all calls end right. What
/// a rank does next depends only on how many rounds it has done: so the rounds of each rank are a state,
/// whatever their order was. Returns the number of states.
std::size_t explore(int ranks, bool few_rounds, const std::vector<Made>& calls) {
  std::set<std::vector<int>> seen;
  std::vector<std::vector<int>> open = {{}};  // a way to a state: who moved
  seen.insert(std::vector<int>(static_cast<std::size_t>(ranks)));
  while (!open.empty() && !::testing::Test::HasFatalFailure()) {
    const std::vector<int> way = open.back();
    open.pop_back();
    for (int next = 0; next < ranks; ++next) {
      World world(ranks, few_rounds, calls);
      std::vector<int> state(static_cast<std::size_t>(ranks));
      for (const int rank : way) {
        EXPECT_TRUE(world.move(rank));
        ++state[static_cast<std::size_t>(rank)];
      }
      if (!world.move(next)) continue;
      ++state[static_cast<std::size_t>(next)];
      EXPECT_TRUE(world.finish()) << "nobody can move";
      if (!seen.insert(state).second) continue;
      open.push_back(way);
      open.back().push_back(next);
    }
  }
  return seen.size();
}

TEST(CicoInterleavings, AreRightInEveryOrderOfRounds) {
  std::size_t states = 0;
  for (const bool few_rounds : {false, true})
    for (const Collective collective : kAll)
      for (const bool second_way : {false, true}) {
        if (second_way && !has_second_way(collective)) continue;
        const bool in_place = collective <= Collective::kReduceScatter || is_scan(collective);
        // Two calls use the banks at once; the one between them has another root.
        const std::vector<Made> calls = {{collective, 9000, 0, second_way},
                                         {Collective::kBroadcast, 5000, 1, false},
                                         {collective, 3000, 1, second_way, in_place}};
        states += explore(2, few_rounds, calls);
        const std::vector<Made> fewer = {{collective, 4000, 0, second_way, in_place},
                                         {collective, 700, 2, second_way}};
        states += explore(3, few_rounds, fewer);
      }
  EXPECT_GT(states, 1000U);
  std::printf("%zu states\n", states);
}

TEST(CicoInterleavings, AreRightInRandomOrdersOnUpToNineRanks) {
  for (unsigned seed = 0; seed < 400 && !HasFatalFailure(); ++seed) {
    std::mt19937 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 8);
    const bool many_banks = seed % 4 >= 2;
    std::vector<Made> calls;
    for (int i = 0; i < (many_banks ? 40 : 6); ++i) {
      if (many_banks && i > 0 && random() % 16 > 0) {  // a row of calls in which some ranks may get far ahead
        calls.push_back(calls.back());
        continue;
      }
      const Collective collective = kAll[random() % std::size(kAll)];
      calls.push_back(
          {collective, 1 + random() % (many_banks ? 500 : 12'000),
           static_cast<int>(random() % static_cast<unsigned>(ranks)),
           random() % 2 == 0 && has_second_way(collective),
           random() % 2 == 0 && (collective <= Collective::kReduceScatter || is_scan(collective))});
    }
    World world(ranks, seed % 2 == 0, calls, many_banks ? 16 : CicoBuffer::kBanks);
    // A rank that is chosen goes on for some rounds, so that ranks get as far ahead of others as they can.
    for (int fruitless = 0; !world.done() && fruitless < 1000;) {
      const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
      bool moved = false;
      for (unsigned burst = 1 + random() % 64; burst > 0 && world.move(rank); --burst) moved = true;
      fruitless = moved ? 0 : fruitless + 1;
    }
    ASSERT_TRUE(world.finish()) << "nobody can move, seed " << seed;
  }
}

}  // namespace
}  // namespace loom::device
