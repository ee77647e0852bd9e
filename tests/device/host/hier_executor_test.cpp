#include "device/host/hier_executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "links_between_all.hpp"

namespace loom::device {
namespace {

/// Hosts whose node leaders are joined by links; ranks are spread over them in any order.
class Cluster {
 public:
  Cluster(std::vector<int> host_of, const FifoShape& shape, bool few_rounds = false)
      : few_rounds_(few_rounds),
        host_of_(std::move(host_of)),
        hosts_(1 + *std::max_element(host_of_.begin(), host_of_.end())),
        shape_(shape),
        pairwise_(hosts_, shape) {
    for (int host = 0; host < hosts_; ++host) {
      std::vector<CicoBuffer*> cico;
      for (int rank = 0; rank < size(); ++rank) {
        if (host_of_[static_cast<std::size_t>(rank)] != host) continue;
        ranks_.push_back(rank);
        cico_.push_back(std::make_unique<CicoBuffer>());
        cico.push_back(cico_.back().get());
      }
      cico_of_.push_back(std::move(cico));
    }
    local_of_.resize(host_of_.size());
    std::vector<int> next(static_cast<std::size_t>(hosts_));
    for (const int rank : ranks_)
      local_of_[static_cast<std::size_t>(rank)] =
          next[static_cast<std::size_t>(host_of_[static_cast<std::size_t>(rank)])]++;
    for (std::size_t rank = 0; rank < host_of_.size(); ++rank)
      places_.push_back({host_of_[rank], local_of_[rank]});
  }

  int size() const { return static_cast<int>(host_of_.size()); }

  /// Runs `body(rank, perform)` on a thread each; perform(call) performs.
  template <class Body>
  void run(Body&& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size(); ++rank)
      threads.emplace_back([&, rank] {
        const auto r = static_cast<std::size_t>(rank);
        const int host = host_of_[r], local = local_of_[r];
        const auto& cico = cico_of_[static_cast<std::size_t>(host)];
        std::optional<CicoBuffers> mine;
        if (cico.size() > 1) mine.emplace(cico, local, few_rounds_, 16);
        HierLinks levels{.cico = mine ? &*mine : nullptr,
                         .places = places_,
                         .rank = rank,
                         .hosts = hosts_,
                         .links = local == 0 ? pairwise_.of(host) : std::span<const PeerLinks>{},
                         .slot_bytes = shape_.slot_bytes};
        body(rank, [&](const Call& call) { loom::device::run(HierExecutor(levels, call)); });
      });
  }

 private:
  bool few_rounds_;
  std::vector<int> host_of_, local_of_, ranks_;
  std::vector<HostAndLocal> places_;
  int hosts_;
  FifoShape shape_;
  LinksBetweenAll pairwise_;
  std::vector<std::unique_ptr<CicoBuffer>> cico_;
  std::vector<std::vector<CicoBuffer*>> cico_of_;
};

int value_at(int rank, std::size_t i) {
  return static_cast<int>(i * 7 % 1013) + 5000 * rank;
}

std::vector<int> operand(int rank, std::size_t count) {
  std::vector<int> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_at(rank, i);
  return values;
}

void check(const std::vector<int>& host_of, Collective collective, std::size_t count, bool in_place,
           bool few_rounds) {
  SCOPED_TRACE(::testing::Message() << "collective " << static_cast<int>(collective) << ", " << host_of.size()
                                    << " ranks, " << count << " elements" << (in_place ? ", in place" : ""));
  Cluster cluster(host_of, {.slot_bytes = 4096, .slot_count = 4}, few_rounds);
  const auto n = static_cast<std::size_t>(cluster.size());
  cluster.run([&](int rank, const auto& perform) {
    const bool scatters = collective == Collective::kReduceScatter;
    std::vector<int> in = operand(rank, scatters ? n * count : count), out(count, -1);
    if (in_place) out = in;
    perform({collective, reinterpret_cast<const std::byte*>(in_place ? out.data() : in.data()),
             reinterpret_cast<std::byte*>(out.data()), count, Type::kInt32, Op::kSum});
    const std::size_t first = scatters ? static_cast<std::size_t>(rank) * count : 0;
    for (std::size_t i = 0; i < count; ++i) {
      int sum = 0;
      for (std::size_t q = 0; q < n; ++q) sum += value_at(static_cast<int>(q), first + i);
      ASSERT_EQ(out[i], sum);
    }
  });
}

class Hier : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(Hier, CarryAllreducesAndReduceScatters) {
  // One shot, two shots, also of equal shares, several tiles of them.
  for (const std::size_t count : {1UL, 100UL, 2049UL, 4032UL, 20011UL})
    for (const bool in_place : {false, true})
      for (const auto collective : {Collective::kAllreduce, Collective::kReduceScatter})
        for (const bool few_rounds : {false, true})
          check(GetParam(), collective, count, in_place, few_rounds);
}

TEST_P(Hier, CarryReducesToAnyRoot) {
  const std::vector<int>& host_of = GetParam();
  for (const std::size_t count : {1UL, 100UL, 4097UL}) {
    Cluster cluster(host_of, {.slot_bytes = 4096, .slot_count = 4});
    cluster.run([&](int rank, const auto& perform) {
      for (int root = 0; root < 2 * cluster.size(); ++root) {
        const bool in_place = root >= cluster.size() && rank == root - cluster.size();
        const std::vector<int> in = operand(rank, count);
        std::vector<int> out = in_place ? in : std::vector<int>(count, -1);
        perform({Collective::kReduce, reinterpret_cast<const std::byte*>(in_place ? out.data() : in.data()),
                 rank == root % cluster.size() ? reinterpret_cast<std::byte*>(out.data()) : nullptr, count,
                 Type::kInt32, Op::kSum, root % cluster.size()});
        for (std::size_t i = 0; i < count; ++i) {
          int sum = 0;
          for (int q = 0; q < cluster.size(); ++q) sum += value_at(q, i);
          ASSERT_EQ(out[i], rank == root % cluster.size() ? sum : -1) << "root " << root;
        }
      }
    });
  }
}

/// Moves the first half of a vector's elements at every other place.
void move_every_other(void* context, int, std::byte* packed, std::size_t bytes, bool packs) {
  int* const values = static_cast<int*>(context);
  for (std::size_t i = 0; i < bytes / sizeof(int); ++i)
    std::memcpy(packs ? packed + i * sizeof(int) : reinterpret_cast<std::byte*>(values + 2 * i),
                packs ? reinterpret_cast<std::byte*>(values + 2 * i) : packed + i * sizeof(int), sizeof(int));
}

TEST_P(Hier, CarryBroadcastsFromAnyRootAlsoOfNonContiguousBuffers) {
  const std::vector<int>& host_of = GetParam();
  const auto pack = [](void* values, int block, std::byte* packed, std::size_t bytes) {
    move_every_other(values, block, packed, bytes, true);
  };
  const auto unpack = [](void* values, int block, std::byte* packed, std::size_t bytes) {
    move_every_other(values, block, packed, bytes, false);
  };
  for (const std::size_t count : {1UL, 100UL, 4097UL})
    for (const int packing : {0, 1}) {  // every other rank
      Cluster cluster(host_of, {.slot_bytes = 4096, .slot_count = 4});
      cluster.run([&](int rank, const auto& perform) {
        for (int root = 0; root < cluster.size(); ++root) {
          const bool packs = rank % 2 == packing;
          const std::size_t stride = packs ? 2 : 1;
          std::vector<int> values(stride * count, -1);
          for (std::size_t i = 0; rank == root && i < count; ++i) values[stride * i] = value_at(root, i);
          const Packer in{pack, values.data()}, out{unpack, values.data()};
          auto* const there = packs ? nullptr : reinterpret_cast<std::byte*>(values.data());
          // Ranks need not agree on what an element is.
          const bool in_bytes = rank % 3 == 1;
          perform({.collective = Collective::kBroadcast,
                   .in = there,
                   .out = there,
                   .count = in_bytes ? count * sizeof(int) : count,
                   .type = in_bytes ? Type::kUint8 : Type::kInt32,
                   .root = root,
                   .in_packer = packs && rank == root ? &in : nullptr,
                   .out_packer = packs && rank != root ? &out : nullptr});
          for (std::size_t i = 0; i < values.size(); ++i)
            ASSERT_EQ(values[i], i % stride == 0 ? value_at(root, i / stride) : -1) << "root " << root;
        }
      });
    }
}

TEST_P(Hier, CarryAllGathersAlsoOfNonContiguousBuffers) {
  const std::vector<int>& host_of = GetParam();
  for (const std::size_t count : {1UL, 100UL, 1500UL})
    for (const int odd_one :
         {0, 1, 2}) {  // every third rank is not contiguous, or sends its block from its place
      Cluster cluster(host_of, {.slot_bytes = 4096, .slot_count = 4});
      const auto ranks = static_cast<std::size_t>(cluster.size());
      cluster.run([&](int rank, const auto& perform) {
        const bool packs_in = rank % 3 == odd_one, packs = packs_in && rank % 2 == 0,
                   in_place = rank % 3 == (odd_one + 1) % 3;
        const std::size_t stride = packs ? 2 : 1, stride_in = packs_in ? 2 : 1;
        std::vector<int> all(stride * ranks * count, -1), mine(stride_in * count, -1);
        for (std::size_t i = 0; i < count; ++i) mine[stride_in * i] = value_at(rank, i);
        std::byte* const out = reinterpret_cast<std::byte*>(all.data());
        std::byte* const own = out + static_cast<std::size_t>(rank) * count * sizeof(int);
        if (in_place) std::memcpy(own, mine.data(), count * sizeof(int));
        const Packer in_packer{[](void* values, int block, std::byte* packed, std::size_t bytes) {
                                 move_every_other(values, block, packed, bytes, true);
                               },
                               mine.data()};
        std::pair<int*, std::size_t> there{all.data(), 2 * count};
        const Packer out_packer{
            [](void* values, int block, std::byte* packed, std::size_t bytes) {
              const auto& [first, each] = *static_cast<std::pair<int*, std::size_t>*>(values);
              move_every_other(first + static_cast<std::size_t>(block) * each, 0, packed, bytes, false);
            },
            &there};
        perform({.collective = Collective::kAllGather,
                 .in = packs_in   ? nullptr
                       : in_place ? own
                                  : reinterpret_cast<const std::byte*>(mine.data()),
                 .out = packs ? nullptr : out,
                 .count = count,
                 .type = Type::kInt32,
                 .in_packer = packs_in ? &in_packer : nullptr,
                 .out_packer = packs ? &out_packer : nullptr});
        for (std::size_t i = 0; i < ranks * count; ++i)
          ASSERT_EQ(all[stride * i], value_at(static_cast<int>(i / count), i % count));
        for (std::size_t i = 0; packs && i < ranks * count; ++i) ASSERT_EQ(all[2 * i + 1], -1);
      });
    }
}

TEST_P(Hier, LetNobodyPassABarrierBeforeAllHaveCome) {
  Cluster cluster(GetParam(), {.slot_bytes = 256, .slot_count = 4});
  std::atomic<int> here = 0;
  cluster.run([&](int, const auto& perform) {
    for (int round = 1; round <= 20; ++round) {
      ++here;
      perform({.collective = Collective::kBarrier});
      EXPECT_GE(here, round * cluster.size());
    }
  });
}

TEST(HierExecutor, GivesAllRanksTheSameBits) {
  for (const std::size_t count : {500UL, 5000UL}) {  // one shot, two shots
    Cluster cluster({0, 1, 2, 3, 0, 1, 2}, {.slot_bytes = 4096, .slot_count = 4});
    std::vector<std::vector<float>> of_ranks(static_cast<std::size_t>(cluster.size()));
    cluster.run([&](int rank, const auto& perform) {
      std::vector<float> in(count), &out = of_ranks[static_cast<std::size_t>(rank)];
      out.resize(count);
      // Far apart in size: in another order they would be rounded differently.
      for (std::size_t i = 0; i < count; ++i)
        in[i] = std::ldexp(1.0F + static_cast<float>(i) / 7, (rank * 5 + static_cast<int>(i)) % 24);
      perform({Collective::kAllreduce, reinterpret_cast<const std::byte*>(in.data()),
               reinterpret_cast<std::byte*>(out.data()), count, Type::kFloat, Op::kSum});
    });
    for (const auto& result : of_ranks) EXPECT_EQ(result, of_ranks.front());
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, Hier,
                         ::testing::Values(std::vector{0, 1}, std::vector{0, 1, 2}, std::vector{0, 0, 1, 1},
                                           std::vector{0, 0, 1, 1, 2, 2}, std::vector{0, 0, 1, 1, 1},
                                           std::vector{0, 1, 2, 0, 1, 2}, std::vector{0, 1, 0, 2, 0},
                                           std::vector{0, 1, 2, 3, 4, 5, 6, 7}),
                         [](const auto& test) {
                           std::string name = "Hosts";
                           for (const int host : test.param) name += std::to_string(host);
                           return name;
                         });

}  // namespace
}  // namespace loom::device
