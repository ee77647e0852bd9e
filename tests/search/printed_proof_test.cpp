// printed_proof_test.cpp -- what `loom search --explain --json` prints of the machines of the repository:
// channels fit, and proofs hold. By what priced_machine.hpp knows of machines; nothing of search/ is linked.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/format.hpp"
#include "priced_machine.hpp"
#include "topo/hwloc_xml.hpp"

namespace loom {
namespace {

using nlohmann::json;

constexpr double kSlack = 1e-6;

/// All ports reduce, so that every machine with ports has collnet patterns.
std::string with_reducing_ports(std::string text) {
  for (const std::string off : {" coll=\"0\"", " coll='0'", " coll=\"1\"", " coll='1'"})
    for (std::size_t at; (at = text.find(off)) != std::string::npos;) text.erase(at, off.size());
  const std::string net = "<net ";
  for (std::size_t at = 0; (at = text.find(net, at)) != std::string::npos; at += net.size())
    text.insert(at + net.size(), "coll=\"1\" ");
  return text;
}

json printed_by(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe.get()))
    text.append(buffer, count);
  return json::parse(text);
}

/// Parts of a node come one after the other. Each plan begins with GPUs that the one before has.
std::vector<std::vector<json>> plans_in(const json& printed) {
  std::vector<std::vector<json>> plans;
  std::set<int> ranks;
  for (const json& part : printed) {
    const std::vector<int> mine = part.at("ranks");
    const bool is_new = std::any_of(mine.begin(), mine.end(), [&](int rank) { return ranks.contains(rank); });
    if (plans.empty() || is_new) plans.emplace_back(), ranks.clear();
    plans.back().push_back(part);
    ranks.insert(mine.begin(), mine.end());
  }
  return plans;
}

bool claims_something(const json& part) {
  return !part.at("channels").empty() && !part.at("in_order");
}

bool has_ports(const json& part) {
  return !part.at("channels").at(0).at("nets").empty();
}

class PrintedProof : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::ifstream file(GetParam());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    path_ = loom::format("{}printed_proof_{}.xml", ::testing::TempDir(), name());
    std::ofstream(path_) << with_reducing_ports(text);
    system_ = topo::read_system(path_, topo::Model::kNccl).system;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string name() const { return std::filesystem::path(GetParam()).stem().string(); }

  /// All that the tool prints for so many nodes and channels, with exact orders of up to `exact_gpus`.
  void expect_all_proven(int nodes, int channels, int exact_gpus) {
    const json printed = printed_by(loom::format(
        "'{}' search '{}' 2> /dev/null --pattern all --nodes {} --max-channels {} --exact-gpus {} --explain "
        "--json",
        LOOM_TOOL, path_, nodes, channels, exact_gpus));
    for (const std::vector<json>& plan : plans_in(printed)) {
      SCOPED_TRACE(loom::format("{}, {} nodes, {} channels, orders of up to {} GPUs exact",
                                plan[0].at("pattern").dump(), nodes, channels, exact_gpus));
      expect_room(plan);
      if (plan.size() > 1 && plan[0].at("proof").contains("all_parts"))
        expect_all_parts(plan, channels);
      else
        for (const json& part : plan)
          if (claims_something(part)) expect_part(part, channels);
    }
  }

  /// "ring by prices", "ring by a cut", "ring by the number of channels", "ring of all parts".
  std::set<std::string> seen_;

 private:
  PricedMachine priced(const json& part) const { return {system_, part.at("ranks"), part.at("proof")}; }

  void note(const json& part, const char* how) {
    seen_.insert(loom::format("{} {}", part.at("pattern").get<std::string>(), how));
  }

  /// The channels of all parts fit at the same time.
  void expect_room(const std::vector<json>& plan) {
    ByName taken;
    for (const json& part : plan) {
      if (!claims_something(part)) continue;
      const PricedMachine machine = priced(part);
      double total = 0;
      for (const json& channel : part.at("channels")) {
        machine.add_taken(part.at("pattern"), channel, taken);
        total += channel.at("bandwidth_gbps").get<double>();
      }
      EXPECT_NEAR(total, part.at("total_bandwidth_gbps"), kSlack * total);
      EXPECT_LE(total, part.at("bound_gbps").get<double>() * (1 + 1e-5));
      EXPECT_EQ(machine.overloaded(taken), "");
    }
  }

  void expect_part(const json& part, int channels) {
    const PricedMachine machine = priced(part);
    const json& proof = part.at("proof");
    if (proof.contains("because")) {
      note(part, "by the number of channels");
      expect_limited(machine, part, channels);
      return;
    }
    note(part, proof.contains("side") ? "by a cut" : "by prices");
    for (const json& price : proof.at("prices"))
      if (price.at("of").get<std::string>().find("memory") != std::string::npos)
        note(part, "by prices of memory");
    EXPECT_NEAR(machine.worth(), part.at("bound_gbps"), kSlack * machine.worth());
    EXPECT_GE(machine.cheapest_channel(part.at("pattern"), has_ports(part)), 1 - kSlack);
    if (proof.contains("side")) expect_cut(machine, part);
  }

  /// A GB/s in every part costs at least 1.
  void expect_all_parts(const std::vector<json>& parts, int channels) {
    const json& proof = parts[0].at("proof");
    if (proof.contains("because")) return expect_one_of(parts, channels);
    note(parts[0], "of all parts");
    double least = 0;
    for (const json& part : parts) {
      if (!claims_something(part)) continue;
      const PricedMachine machine = priced(part);
      EXPECT_EQ(part.at("proof"), proof);
      EXPECT_NEAR(machine.worth(), part.at("bound_gbps"), kSlack * machine.worth());
      least += machine.cheapest_channel(part.at("pattern"), true);
    }
    EXPECT_GE(least, 1 - kSlack);
  }

  /// One of the parts carries no more, whatever the others do.
  void expect_one_of(const std::vector<json>& parts, int channels) {
    const std::string because = parts[0].at("proof").at("because");
    const bool found = std::any_of(parts.begin(), parts.end(), [&](const json& part) {
      const std::string rank =
          loom::format("in the part of rank {}: ", part.at("channels").at(0).at("gpus").at(0).get<int>());
      if (!because.starts_with(rank)) return false;
      expect_limited(priced(part), part, channels);
      return true;
    });
    EXPECT_TRUE(found) << because;
  }

  void expect_limited(const PricedMachine& machine, const json& part, int channels) {
    const json& proof = part.at("proof");
    const std::string because = proof.at("because");
    const double bound = part.at("bound_gbps"), each = bound / channels;
    EXPECT_TRUE(proof.at("prices").empty());
    if (proof.contains("side")) {
      const std::vector<int> side = proof.at("side");
      EXPECT_GT(std::set<int>(side.begin(), side.end()).size(), static_cast<std::size_t>(channels));
      const bool ends = because.find(" end at ") != std::string::npos;
      EXPECT_NE(ends, because.find(" begin at ") != std::string::npos) << because;
      for (const int rank : side)
        EXPECT_LE(machine.most_between_gpus(rank, !ends), bound * (1 + kSlack)) << "rank " << rank;
    } else if (because.find("the widest port") != std::string::npos) {
      EXPECT_LE(machine.widest_from_port(), each * (1 + kSlack));
    } else {
      EXPECT_NE(because.find("the fastest path between GPUs"), std::string::npos) << because;
      EXPECT_LE(machine.widest_between_gpus(part.at("pattern") == "nvls"), each * (1 + kSlack));
    }
  }

  /// Nothing gets from GPUs on one side to the other ones, or from ports to GPUs or back, but over the cut.
  void expect_cut(const PricedMachine& machine, const json& part) {
    std::vector<int> ranks = part.at("proof").at("side"), others;
    for (const json& price : part.at("proof").at("prices")) EXPECT_EQ(price.at("price"), 1.0);
    for (const int rank : part.at("ranks"))
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) others.push_back(rank);
    const auto side = machine.gpus_of(ranks), rest = machine.gpus_of(others);
    EXPECT_EQ(part.at("pattern"), "ring") << "chains may begin beyond the cut";
    EXPECT_TRUE(machine.is_cut(side, rest));
    if (has_ports(part))
      EXPECT_TRUE((!rest.empty() && machine.is_cut(machine.ports(), rest)) ||
                  (!side.empty() && machine.is_cut(side, machine.ports())));
    else
      EXPECT_FALSE(side.empty() || rest.empty());
  }

  std::string path_;
  topo::System system_;
};

/// What is to be among the proofs of these machines, so that each kind of proof is tried for each pattern
/// that has it.
const std::map<std::string, std::vector<std::string>> kAmongProofs = {
    {"dgx1v",
     {"ring by prices", "tree by prices", "split-tree by prices", "balanced-tree by prices",
      "collnet-chain by prices", "collnet-direct by prices"}},
    {"dgxh100", {"nvls by prices", "nvls by the number of channels", "ring by the number of channels"}},
    {"mesh-wider-than-memory",
     {"ring by prices of memory", "tree by prices of memory", "collnet-direct by prices"}},
    {"parts-of-unequal-ports",
     {"ring of all parts", "tree of all parts", "split-tree of all parts", "balanced-tree of all parts",
      "collnet-chain of all parts", "collnet-direct of all parts"}},
    {"sixteen-gpus-two-islands", {"ring by a cut"}},
};

TEST_P(PrintedProof, Holds) {
  for (const int nodes : {1, 2})
    for (const int channels : {32, 2})
      for (const int exact_gpus : {16, 2}) expect_all_proven(nodes, channels, exact_gpus);
  const auto among = kAmongProofs.find(name());
  for (const std::string& how : among == kAmongProofs.end() ? std::vector<std::string>{} : among->second)
    EXPECT_TRUE(seen_.contains(how)) << how;
  EXPECT_FALSE(seen_.empty());
}

std::vector<std::string> files_with_gpus() {
  std::vector<std::string> files;
  for (const char* folder : {LOOM_TEST_DATA, LOOM_SEARCH_DATA})
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".xml" &&
          !topo::read_system(entry.path().string(), topo::Model::kNccl).system.gpus().empty())
        files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(Machines, PrintedProof, ::testing::ValuesIn(files_with_gpus()),
                         [](const ::testing::TestParamInfo<std::string>& file) {
                           std::string name = std::filesystem::path(file.param).stem().string();
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace loom
