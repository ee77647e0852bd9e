#include "component/setup/learn_gpus.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>

#include "base/error.hpp"
#include "base/format.hpp"
#include "connect/checks.hpp"
#include "search/graph_xml.hpp"
#include "tests/component/temporary_file.hpp"
#include "tests/component/thread_ranks.hpp"
#include "topo/draft.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/nccl_xml.hpp"

namespace loom::test {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using topo::BusId;
using topo::RankGpu;

std::string file_of(const std::string& name) {
  return std::string(LOOM_TEST_DATA "/") + name;
}

topo::System machine(const std::string& name) {
  return topo::read_system(file_of(name)).system;
}

std::vector<BusId> bus_ids_of(const topo::System& system) {
  std::vector<BusId> ids;
  for (const topo::NodeId gpu : system.gpus()) ids.push_back(system.node(gpu).pci->bus_id);
  return ids;
}

/// gpu_of[r] is the GPU of rank r, in the machine's order.
std::vector<RankGpu> gpus_of(const topo::System& system, const std::vector<int>& gpu_of) {
  std::vector<RankGpu> gpus;
  for (const int gpu : gpu_of)
    gpus.push_back(
        {.rank = static_cast<int>(gpus.size()), .bus_id = bus_ids_of(system)[static_cast<std::size_t>(gpu)]});
  return gpus;
}

/// The machine as a process sees it for which NVML hides some GPUs: nothing but their place is known.
topo::Discovered hiding(const topo::System& system, const std::vector<BusId>& hidden) {
  std::vector<topo::Node> nodes = topo::source_nodes(system);
  for (topo::Node& node : nodes)
    if (node.pci && std::ranges::count(hidden, node.pci->bus_id) > 0)
      std::get<topo::GpuInfo>(node.info).nvlinks.clear();
  return {topo::build_system(std::move(nodes), {0}, system.model()), hidden};
}

RankExchange exchange_of(const Bootstrap& bootstrap) {
  return {
      bootstrap.rank(), bootstrap.size(),
      [&bootstrap](bool here) {
        return bootstrap.largest(std::array<std::uint64_t, 1>{here ? 0U : 1U})[0] == 0;
      },
      [&bootstrap](const void* mine, void* all, std::size_t bytes) { bootstrap.gather(mine, all, bytes); }};
}

/// What each rank learns. Those that throw leave nothing, and their message.
struct Learned {
  std::vector<connect::GpuChannels> channels;
  std::vector<std::string> errors;
};
using DiscoverOf = std::function<topo::Discovered(int rank, const std::vector<BusId>& gpus)>;

connect::Placement one_host(std::size_t ranks) {
  return connect::Placement(std::vector<std::int32_t>(ranks, 0));
}

/// hosts: the ranks of each; empty: all are on one.
Learned learn(Job& job, const std::vector<RankGpu>& gpus, const DiscoverOf& discover,
              const connect::GpuChannelRequest& request = {},
              const std::vector<std::vector<int>>& hosts = {}) {
  const connect::Placement placement =
      hosts.empty() ? one_host(gpus.size()) : connect::Placement::of_nodes(hosts);
  Learned learned;
  job.ranks = static_cast<int>(gpus.size());
  learned.channels.resize(gpus.size());
  learned.errors.resize(gpus.size());
  job.run([&](Rank& self) {
    const Bootstrap bootstrap(self.bootstrap());
    const auto rank = static_cast<std::size_t>(self.rank());
    try {
      learned.channels[rank] =
          learn_gpu_channels(self.process(), exchange_of(bootstrap), placement, gpus, request,
                             [&](const std::vector<BusId>& ids) { return discover(self.rank(), ids); });
    } catch (const Error& error) {
      learned.errors[rank] = error.what();
    }
  });
  return learned;
}

void expect_alike(const Learned& learned) {
  EXPECT_THAT(learned.errors, Each(IsEmpty()));
  const connect::GpuChannels& first = learned.channels.front();
  EXPECT_THAT(connect::violations(first.job), IsEmpty());
  for (const connect::GpuChannels& other : learned.channels) {
    ASSERT_EQ(other.job.nodes(), first.job.nodes());
    for (int node = 0; node < first.job.nodes(); ++node)
      EXPECT_EQ(other.job.summary(node), first.job.summary(node));
    EXPECT_EQ(other.summary, first.summary);
    EXPECT_EQ(other.types, first.types);
    EXPECT_EQ(other.notes, first.notes);
    ASSERT_EQ(other.rings.size(), first.rings.size());
    for (std::size_t ring = 0; ring < first.rings.size(); ++ring)
      EXPECT_EQ(other.rings[ring].order, first.rings[ring].order);
  }
}

class LearnGpus : public WithFiles {
 protected:
  Job job;
  std::atomic<int> looks = 0;
};

TEST_F(LearnGpus, GivesAllRanksTheChannelsOfTheMachineThatOneOfThemSees) {
  const topo::System dgx = machine("dgxh100.xml");
  job.parameters.verbose = 1;
  const Learned learned =
      learn(job, gpus_of(dgx, {3, 1, 4, 7, 5, 2, 6, 0}), [&](int rank, const auto& ids) -> topo::Discovered {
        EXPECT_EQ(rank, 0);
        EXPECT_EQ(ids, bus_ids_of(dgx));
        return {{dgx, {"A note."}}, {}};
      });
  expect_alike(learned);
  EXPECT_THAT(learned.channels[5].summary, HasSubstr("8 GPUs, NVSwitch; 16 rings, 370.8 of at most 370.8"));
  EXPECT_THAT(job.transcript.lines(), ElementsAre("A note.", learned.channels[0].summary));
}

TEST_F(LearnGpus, TakesGpusThatAreHiddenFromRankZeroAsTheirOwnRanksSeeThem) {
  const topo::System dgx = machine("dgx1v.xml");
  const std::vector<BusId> ids = bus_ids_of(dgx);
  const std::vector<RankGpu> gpus = gpus_of(dgx, {0, 1, 2, 3, 4, 5, 6, 7, 7});
  const Learned learned = learn(job, gpus, [&](int rank, const std::vector<BusId>& asked) {
    ++looks;
    std::vector<BusId> others = ids;  // each process sees its own GPU alone
    std::erase(others, gpus[static_cast<std::size_t>(rank)].bus_id);
    if (rank != 0) {
      EXPECT_THAT(asked, ElementsAre(gpus[static_cast<std::size_t>(rank)].bus_id));
    }
    return hiding(dgx, others);
  });
  expect_alike(learned);
  EXPECT_EQ(looks, 8);  // one of the two that share a GPU
  EXPECT_THAT(learned.channels[0].summary,
              HasSubstr("9 ranks on 8 GPUs, NVLink; 12 rings, 120 of at most 120"));
}

TEST_F(LearnGpus, WhoseLookFailsAreTakenAsRankZeroSeesThem) {
  const topo::System dgx = machine("dgxa100.xml");
  const std::vector<BusId> ids = bus_ids_of(dgx);
  job.parameters.verbose = 1;
  const Learned learned = learn(job, gpus_of(dgx, {0, 1, 2}), [&](int rank, const std::vector<BusId>&) {
    if (rank == 2) throw Error(ErrorCode::kSystem, "It is dark here.");
    return hiding(dgx, {ids[2]});
  });
  expect_alike(learned);
  EXPECT_GT(learned.channels[0].between(0, 2), topo::PathType::kNvl);
  EXPECT_THAT(job.transcript.lines(), Contains(HasSubstr("rank 2 sees of its GPU is not known: It is dark")));
}

TEST_F(LearnGpus, GoesInOrderOfRankWhereTheMachineCannotBeSeen) {
  job.parameters.verbose = 1;
  const Learned learned = learn(
      job, gpus_of(machine("dgxa100.xml"), {4, 0, 4}),
      [&](int, const auto&) -> topo::Discovered { throw Error(ErrorCode::kSystem, "It is dark here."); });
  expect_alike(learned);
  EXPECT_EQ(learned.channels[2].summary, "3 ranks on 2 GPUs, ranks in order; 1 ring; 1 tree");
  EXPECT_THAT(job.transcript.lines(), Contains("This machine cannot be seen: It is dark here."));
}

TEST_F(LearnGpus, FailsOnAllRanksWhereOneHasNoMemory) {
  const Learned learned = learn(job, gpus_of(machine("dgxa100.xml"), {0, 1}), [&](int, const auto&) {
    throw Error(ErrorCode::kOutOfMemory, "No memory.");
    return topo::Discovered{};
  });
  expect_alike(learned);  // who looks may fail; nobody waits for another
  for (const int throwing : {0, 1}) {
    std::vector<int> thrown(2);
    Job other{.ranks = 2};
    other.run([&](Rank& self) {
      const Bootstrap bootstrap(self.bootstrap());
      RankExchange exchange = exchange_of(bootstrap);
      int calls = 0;
      const auto agree = exchange.holds_everywhere;
      // As if the third part of the way had no memory on this rank.
      exchange.holds_everywhere = [&](bool here) {
        return agree(here && !(++calls == 3 && self.rank() == throwing));
      };
      const topo::System dgx = machine("dgxa100.xml");
      try {
        learn_gpu_channels(self.process(), exchange, one_host(2), gpus_of(dgx, {0, 1}), {},
                           [&](const auto&) -> topo::Discovered {
                             return {{dgx, {}}, {}};
                           });
      } catch (const Error&) {
        thrown[static_cast<std::size_t>(self.rank())] = 1;
      }
    });
    EXPECT_THAT(thrown, ElementsAre(1, 1));
  }
}

TEST_F(LearnGpus, FailsByAnErrorWhereMemoryHasRunOut) {
  for (const int throwing : {0, 1}) {
    std::vector<std::string> said(2);
    Job other{.ranks = 2};
    other.run([&](Rank& self) {
      const Bootstrap bootstrap(self.bootstrap());
      const topo::System dgx = machine("dgxa100.xml");
      try {
        // Rank 0 looks at all GPUs, and rank 1 at its own, which is hidden from rank 0.
        learn_gpu_channels(self.process(), exchange_of(bootstrap), one_host(2), gpus_of(dgx, {0, 1}), {},
                           [&](const auto&) -> topo::Discovered {
                             if (self.rank() == throwing) throw std::bad_alloc();
                             return hiding(dgx, {bus_ids_of(dgx)[1]});
                           });
      } catch (const Error& error) {
        said[static_cast<std::size_t>(self.rank())] = error.what();
      }
    });
    EXPECT_THAT(said[static_cast<std::size_t>(throwing)], HasSubstr("no memory"));
    EXPECT_THAT(said[static_cast<std::size_t>(1 - throwing)], HasSubstr("Another rank"));
  }
}

/// Ranks 0, 2 and 4 on a DGX-H100, ranks 1 and 3 on a DGX-A100, by any of its GPUs.
class LearnGpusOfHosts : public LearnGpus {
 protected:
  const topo::System& machine_of(int rank) const { return rank % 2 == 0 ? h100 : a100; }
  RankGpu gpu_of(int rank, std::size_t gpu) const {
    return {.rank = rank, .bus_id = bus_ids_of(machine_of(rank))[gpu]};
  }
  topo::System h100 = machine("dgxh100.xml"), a100 = machine("dgxa100.xml");
  std::vector<RankGpu> gpus = {gpu_of(0, 3), gpu_of(1, 1), gpu_of(2, 0), gpu_of(3, 5), gpu_of(4, 6)};
  std::vector<std::vector<int>> hosts = {{0, 2, 4}, {1, 3}};
};

TEST_F(LearnGpusOfHosts, JoinsWhatTheLowestRankOfEachFinds) {
  job.parameters.verbose = 1;
  const Learned learned = learn(
      job, gpus,
      [&](int rank, const std::vector<BusId>& ids) -> topo::Discovered {
        EXPECT_LT(rank, 2);
        EXPECT_EQ(ids.size(), rank == 0 ? 3 : 2);
        return {{machine_of(rank), {loom::format("A note of rank {}.", rank)}}, {}};
      },
      {}, hosts);
  expect_alike(learned);
  const connect::GpuChannels& found = learned.channels[3];
  EXPECT_THAT(found.summary, HasSubstr("5 GPUs on 2 hosts, NVSwitch; "));
  EXPECT_GT(found.rings.size(), 1);
  for (const auto& ring : found.rings) {
    int arrivals = 0;
    for (std::size_t i = 0; i < 5; ++i) arrivals += (ring.order[i] + ring.order[(i + 1) % 5]) % 2;
    EXPECT_EQ(arrivals, 2);
  }
  EXPECT_EQ(found.between(0, 1), topo::PathType::kNet);
  EXPECT_EQ(found.between(3, 1), topo::PathType::kNvl);
  EXPECT_THAT(job.transcript.lines(),
              ::testing::UnorderedElementsAre("A note of rank 0.", "A note of rank 1.", found.summary));
}

/// The bytes of each rank that all ranks hear, on so many hosts of two ranks alike.
std::size_t heard_on(int hosts, const topo::System& machine) {
  std::vector<std::vector<int>> ranks;
  std::vector<int> gpus;
  for (int host = 0; host < hosts; ++host) {
    ranks.push_back({2 * host, 2 * host + 1});
    gpus.insert(gpus.end(), {0, 1});
  }
  const connect::Placement placement = connect::Placement::of_nodes(ranks);
  std::size_t heard = 0;
  Job job{.ranks = 2 * hosts};
  job.run([&](Rank& self) {
    const Bootstrap bootstrap(self.bootstrap());
    RankExchange exchange = exchange_of(bootstrap);
    std::size_t bytes = 0;
    exchange.all_gather = [&, gather = exchange.all_gather](const void* mine, void* all,
                                                            std::size_t of_each) {
      bytes += of_each;
      gather(mine, all, of_each);
    };
    const connect::GpuChannels channels =
        learn_gpu_channels(self.process(), exchange, placement, gpus_of(machine, gpus), {},
                           [&](const auto&) -> topo::Discovered {
                             return {{machine, {}}, {}};
                           });
    EXPECT_EQ(channels.job.nodes(), hosts);
    if (self.rank() == 0) heard = bytes;
  });
  return heard;
}

TEST_F(LearnGpusOfHosts, TellsWhatEqualHostsAreOnce) {
  constexpr std::size_t kWords = 16;  // of GPUs that a leader does not see, and of hosts
  const std::size_t on_one = heard_on(1, h100) - kWords, on_eight = heard_on(8, h100) - kWords;
  EXPECT_GT(on_one, 40U);
  EXPECT_LE(on_eight, 3 * on_one / 8);
}

TEST_F(LearnGpusOfHosts, TakesHiddenGpusAsTheirOwnRanksSeeThem) {
  const auto as_it_is = [&](int rank, const auto&) -> topo::Discovered {
    return {{machine_of(rank), {}}, {}};
  };
  const Learned whole = learn(job, gpus, as_it_is, {}, hosts);
  Job other;
  const Learned learned = learn(
      other, gpus,
      [&](int rank, const std::vector<BusId>&) {
        ++looks;
        std::vector<BusId> others = bus_ids_of(machine_of(rank));
        std::erase(others, gpus[static_cast<std::size_t>(rank)].bus_id);
        return hiding(machine_of(rank), others);
      },
      {}, hosts);
  expect_alike(learned);
  EXPECT_EQ(looks, 5);
  EXPECT_EQ(learned.channels[0].summary, whole.channels[0].summary);
}

TEST_F(LearnGpusOfHosts, GoesInOrderOfRankWhereOneCannotBeSeen) {
  job.parameters.verbose = 1;
  const Learned learned = learn(
      job, gpus,
      [&](int rank, const auto&) -> topo::Discovered {
        if (rank == 1) throw Error(ErrorCode::kSystem, "It is dark here.");
        return {{h100, {}}, {}};
      },
      {}, hosts);
  expect_alike(learned);
  EXPECT_EQ(learned.channels[2].summary, "5 GPUs, ranks in order; 1 ring; 1 tree");
  EXPECT_THAT(job.transcript.lines(),
              Contains("On the host of rank 1: This machine cannot be seen: It is dark here."));
}

TEST_F(LearnGpusOfHosts, FailsByAnErrorWhereMemoryHasRunOut) {
  for (const int throwing : {0, 1, 3}) {
    Job other;
    const Learned learned = learn(
        other, gpus,
        [&](int rank, const auto&) -> topo::Discovered {
          if (rank == throwing) throw std::bad_alloc();
          return hiding(machine_of(rank), {gpus[3].bus_id});
        },
        {}, hosts);
    for (const int rank : {0, 1, 2, 3, 4})
      EXPECT_THAT(learned.errors[static_cast<std::size_t>(rank)],
                  HasSubstr(rank == throwing ? "no memory" : "Another rank"));
  }
}

/// Whichever step it is: a rank looks that leads no host, too.
TEST_F(LearnGpusOfHosts, FailsOnAllRanksWhereAnyStepDoesOnOne) {
  const connect::Placement placement = connect::Placement::of_nodes(hosts);
  constexpr int kSteps = 12;
  for (int failing = 1; failing <= kSteps + 1; ++failing) {
    std::vector<int> thrown(5);
    std::atomic<int> most = 0;
    Job other{.ranks = 5};
    other.run([&](Rank& self) {
      const Bootstrap bootstrap(self.bootstrap());
      RankExchange exchange = exchange_of(bootstrap);
      int calls = 0;
      const auto agree = exchange.holds_everywhere;
      exchange.holds_everywhere = [&](bool here) {
        return agree(here && !(++calls == failing && self.rank() == failing % 5));
      };
      try {
        learn_gpu_channels(self.process(), exchange, placement, gpus, {},
                           [&](const auto&) { return hiding(machine_of(self.rank()), {gpus[4].bus_id}); });
      } catch (const Error&) {
        thrown[static_cast<std::size_t>(self.rank())] = 1;
      }
      most = std::max<int>(most, calls);
    });
    EXPECT_EQ(most, std::min(failing, kSteps));
    EXPECT_THAT(thrown, Each(failing <= kSteps ? 1 : 0)) << failing;
  }
}

topo::Discovered nobody_looks(int, const std::vector<BusId>&) {
  ADD_FAILURE() << "the machine is described";
  return {};
}

using TopoFileOfGpus = LearnGpus;

TEST_F(TopoFileOfGpus, CountsWithItsGpusAndIsWrittenWithTheirRanks) {
  const std::string in = file_of("dgx1v.xml"), out = temporary("out.xml");
  job.parameters.topo_file = in.c_str();
  job.parameters.topo_dump_file = out.c_str();
  const topo::System dgx = machine("dgx1v.xml");
  const Learned learned = learn(job, gpus_of(dgx, {5, 4, 6, 7}), nobody_looks);
  expect_alike(learned);
  EXPECT_EQ(learned.channels[0].gpus, 4);
  const topo::System written = topo::read_system(out).system;
  EXPECT_EQ(written.gpus().size(), 4);
  EXPECT_EQ(written.node(written.gpu_of_rank(0)).pci->bus_id, bus_ids_of(dgx)[5]);
}

TEST_F(TopoFileOfGpus, StandsForEveryHost) {
  const std::string in = file_of("dgx1v.xml"), out = temporary("out.xml");
  job.parameters.topo_file = in.c_str();
  job.parameters.topo_dump_file = out.c_str();
  const topo::System dgx = machine("dgx1v.xml");
  const Learned learned = learn(job, gpus_of(dgx, {0, 0, 1, 1}), nobody_looks, {}, {{0, 2}, {1, 3}});
  expect_alike(learned);
  EXPECT_THAT(learned.channels[1].summary, HasSubstr("4 GPUs on 2 hosts, NVLink; "));
  const topo::System written = topo::read_system(out).system;
  EXPECT_EQ(written.node(written.gpu_of_rank(2)).pci->bus_id, bus_ids_of(dgx)[1]);
}

TEST_F(TopoFileOfGpus, IsWrittenAgainWithGpusAfterTheHostWithout) {
  const std::string in = file_of("dgx1v.xml"), out = temporary("out.xml");
  job.ranks = 2;
  job.parameters.topo_file = in.c_str();
  job.parameters.topo_dump_file = out.c_str();
  job.run([&](Rank& self) {
    ASSERT_NE(self.connect(), nullptr);
    const Bootstrap bootstrap(self.bootstrap());
    if (self.rank() == 0) {
      EXPECT_EQ(topo::read_system(out).system.gpus().size(), 2);
    }
    EXPECT_THAT([&] { return topo::to_nccl_xml(topo::read_system(out).system); }, ::testing::Throws<Error>());
    self.all_gather(0);  // all have looked
    learn_gpu_channels(self.process(), exchange_of(bootstrap), one_host(2),
                       gpus_of(machine("dgx1v.xml"), {1, 0}));
    EXPECT_NE(topo::to_nccl_xml(topo::read_system(out).system), "");
  });
}

using GraphFileOfGpus = LearnGpus;

/// A ring over GPUs with these attributes.
std::string ring_over(const std::vector<std::string>& gpus) {
  std::string text =
      "<graphs version='1'><graph id='0' pattern='4' crossnic='0' nchannels='1' speedintra='10' "
      "speedinter='10' "
      "latencyinter='0' typeintra='NVL' typeinter='LOC' samechannels='1'>\n<channel>\n";
  for (const std::string& gpu : gpus) text += "<gpu " + gpu + "/>\n";
  return text + "</channel></graph></graphs>";
}

TEST_F(GraphFileOfGpus, GivesTheChannelsAndIsWrittenAgain) {
  const topo::System dgx = machine("dgxa100.xml");
  const auto as_it_is = [&](int, const auto&) -> topo::Discovered { return {{dgx, {}}, {}}; };
  const std::string in = temporary("ring.xml", ring_over({"rank='2'", "rank='0'", "rank='1'"}));
  const std::string out = temporary("out.xml");
  job.parameters.graph_file = in.c_str();
  job.parameters.graph_dump_file = out.c_str();
  const std::vector<RankGpu> gpus = gpus_of(dgx, {6, 3, 0});
  const Learned learned = learn(job, gpus, as_it_is);
  expect_alike(learned);
  ASSERT_EQ(learned.channels[1].rings.size(), 1);
  EXPECT_THAT(learned.channels[1].rings[0].order, ElementsAre(2, 0, 1));
  Job again;
  again.parameters.graph_file = out.c_str();
  const Learned reread = learn(again, gpus, as_it_is);
  EXPECT_THAT(reread.channels[1].rings[0].order, ElementsAre(2, 0, 1));
  EXPECT_EQ(reread.channels[1].summary, learned.channels[1].summary);
}

TEST_F(GraphFileOfGpus, WithoutRanksGoesByDevices) {
  const topo::System dgx = machine("dgxa100.xml");
  const std::string in = temporary("devices.xml", ring_over({"dev='6'", "dev='0'", "dev='3'"}));
  job.parameters.graph_file = in.c_str();
  const Learned learned = learn(job, gpus_of(dgx, {6, 3, 0}), [&](int, const auto&) -> topo::Discovered {
    return {{dgx, {}}, {}};
  });
  expect_alike(learned);
  EXPECT_THAT(learned.channels[0].rings[0].order, ElementsAre(0, 2, 1));
}

TEST_F(GraphFileOfGpus, MayHaveMoreChannelsThanThereIsRoomFor) {
  const topo::System dgx = machine("dgxa100.xml");
  const auto as_it_is = [&](int, const auto&) -> topo::Discovered { return {{dgx, {}}, {}}; };
  const std::string out = temporary("out.xml");
  job.parameters.graph_dump_file = out.c_str();
  const std::vector<RankGpu> gpus = gpus_of(dgx, {1, 0});
  const Learned learned = learn(job, gpus, as_it_is);
  ASSERT_GT(learned.channels[0].rings.size(), 1);
  Job again;
  again.parameters.graph_file = out.c_str();
  const Learned reread = learn(again, gpus, as_it_is, {.max_channels = 1});
  EXPECT_EQ(reread.channels[0].rings.size(), learned.channels[0].rings.size());
}

TEST_F(GraphFileOfGpus, ThatDoesNotFitIsReplacedBySearchOnAllRanksAndRankZeroSaysWhy) {
  const topo::System dgx = machine("dgxa100.xml");
  const std::string in = temporary("bad.xml", ring_over({"rank='0'", "rank='5'"}));
  job.parameters.graph_file = in.c_str();
  const Learned learned = learn(job, gpus_of(dgx, {1, 0}), [&](int, const auto&) -> topo::Discovered {
    return {{dgx, {}}, {}};
  });
  expect_alike(learned);
  Job without;
  const Learned searched = learn(without, gpus_of(dgx, {1, 0}), [&](int, const auto&) -> topo::Discovered {
    return {{dgx, {}}, {}};
  });
  EXPECT_EQ(learned.channels[0].summary, searched.channels[0].summary);
  EXPECT_THAT(job.transcript.messages(LOOM_MESSAGE_UNFIT_GRAPH),
              ElementsAre(HasSubstr("bad.xml:4: <gpu>: this machine has no such GPU")));
}

TEST_F(GraphFileOfGpus, OfOneHostOfSeveralIsWrittenAndReadAgain) {
  const topo::System dgx = machine("dgxa100.xml");
  const auto as_it_is = [&](int, const auto&) -> topo::Discovered { return {{dgx, {}}, {}}; };
  const std::string out = temporary("out.xml");
  job.parameters.graph_dump_file = out.c_str();
  const std::vector<RankGpu> gpus = gpus_of(dgx, {1, 0, 1, 0});
  const std::vector<std::vector<int>> hosts = {{0, 1}, {2, 3}};
  const Learned learned = learn(job, gpus, as_it_is, {}, hosts);
  expect_alike(learned);
  Job again;
  again.parameters.graph_file = out.c_str();
  const Learned reread = learn(again, gpus, as_it_is, {}, hosts);
  expect_alike(reread);
  EXPECT_EQ(reread.channels[0].summary, learned.channels[0].summary);
  // Its ranks are those of the first host.
  EXPECT_THAT(again.transcript.messages(LOOM_MESSAGE_UNFIT_GRAPH), ElementsAre(HasSubstr("out.xml:")));
}

TEST_F(GraphFileOfGpus, ThatStaysOnItsHostFitsNoneOfSeveral) {
  const topo::System dgx = machine("dgxa100.xml");
  const std::string in = temporary("ring.xml", ring_over({"dev='0'", "dev='3'"}));
  job.parameters.graph_file = in.c_str();
  const Learned learned = learn(job, gpus_of(dgx, {0, 3, 0, 3}),
                                [&](int, const auto&) -> topo::Discovered {
                                  return {{dgx, {}}, {}};
                                },
                                {}, {{0, 1}, {2, 3}});
  expect_alike(learned);
  EXPECT_GT(learned.channels[0].rings.size(), 1);
  EXPECT_THAT(job.transcript.messages(LOOM_MESSAGE_UNFIT_GRAPH),
              Each(HasSubstr("it has no ports, and so does not leave the node")));
}

TEST_F(GraphFileOfGpus, HasNoEffectWithoutThemAndSaysSoOnce) {
  const std::string in = temporary("ring.xml", ring_over({"rank='1'", "rank='0'"}));
  job.ranks = 2;
  job.parameters.graph_file = in.c_str();
  job.parameters.verbose = 1;
  job.run([&](Rank& self) {
    EXPECT_NE(self.connect(), nullptr);
    EXPECT_NE(self.connect(), nullptr);
  });
  const auto lines = job.transcript.lines();
  EXPECT_EQ(std::ranges::count_if(lines,
                                  [](const std::string& line) {
                                    return line.starts_with(
                                        "coll_loom_graph_file has no effect: it is for the channels of "
                                        "kernels on GPUs, and CUDA's driver is not loaded.");
                                  }),
            1);
  EXPECT_THAT(lines, Not(Contains(HasSubstr("graph_dump_file"))));
}

}  // namespace
}  // namespace loom::test
