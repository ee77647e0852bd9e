#include <gmock/gmock.h>

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "search/graph_xml.hpp"
#include "search_cases.hpp"

namespace loom::search {
namespace {

using ::testing::HasSubstr;

std::vector<NodePlans> all_plans(const PathTables& tables) {
  std::vector<NodePlans> plans;
  for (const Pattern pattern : kAllPatterns) {
    Request request;
    request.pattern = pattern;
    request.nodes = pattern == Pattern::kRing || pattern == Pattern::kNvls ? 1 : 2;
    NodePlans found = find_plans(tables, request);
    const bool twice = std::any_of(plans.begin(), plans.end(), [&](const NodePlans& other) {
      return other.parts[0].pattern == found.parts[0].pattern;
    });
    if (!found.parts[0].channels.empty() && !found.parts[0].in_order && !twice)
      plans.push_back(std::move(found));
  }
  return plans;
}

void expect_same_channels(const std::vector<NodePlans>& a, const std::vector<NodePlans>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].ranks, b[i].ranks);
    EXPECT_DOUBLE_EQ(a[i].total_gbps, b[i].total_gbps);
    for (std::size_t part = 0; part < a[i].parts.size(); ++part) {
      const ChannelPlan &x = a[i].parts[part], &y = b[i].parts[part];
      EXPECT_EQ(x.pattern, y.pattern);
      EXPECT_EQ(x.network, y.network);
      EXPECT_EQ(x.type_intra, y.type_intra);
      EXPECT_EQ(x.type_inter, y.type_inter);
      EXPECT_EQ(x.limits.cross_nic, y.limits.cross_nic);
      EXPECT_EQ(x.same_channels, y.same_channels);
      EXPECT_EQ(x.hops, y.hops);
      ASSERT_EQ(x.channels.size(), y.channels.size());
      for (std::size_t c = 0; c < x.channels.size(); ++c) {
        EXPECT_EQ(x.channels[c].ranks, y.channels[c].ranks);
        EXPECT_EQ(x.channels[c].nets, y.channels[c].nets);
        EXPECT_DOUBLE_EQ(x.channels[c].intra_gbps, y.channels[c].intra_gbps);
        EXPECT_DOUBLE_EQ(x.channels[c].inter_gbps, y.channels[c].inter_gbps);
      }
    }
  }
}

class GraphXml : public ::testing::TestWithParam<unsigned> {};

TEST_P(GraphXml, KeepsTheChannelsOfRandomMachines) {
  const PathTables tables(random_machine(GetParam()));
  const std::vector<NodePlans> plans = all_plans(tables);
  const std::string text = to_graph_xml(tables, plans);
  const std::vector<NodePlans> read = parse_graph_xml(text, "graph.xml", tables);
  expect_same_channels(plans, read);
  EXPECT_EQ(to_graph_xml(tables, read), text);
}

TEST_P(GraphXml, AgreesOnTheLinksOfSplitChannels) {
  const PathTables tables(random_machine(GetParam()));
  Request request;
  request.min_channels = 17;  // channels are split unevenly
  const NodePlans plans = find_plans(tables, request);
  if (plans.parts[0].in_order) return;
  const std::vector<NodePlans> read = parse_graph_xml(to_graph_xml(tables, {&plans, 1}), "graph.xml", tables);
  ASSERT_EQ(read.size(), 1);
  EXPECT_EQ(read[0].parts[0].hops, plans.parts[0].hops);
}
INSTANTIATE_TEST_SUITE_P(Seeds, GraphXml, ::testing::Range(1U, 31U));

TEST(GraphXmlOfMachines, KeepsChannelsOfUnequalSpeedAndOfParts) {
  for (const char* name : {"dgx1v.xml", "dgxa100.xml", "dgxh100.xml", "gh200.xml", "pcie-2socket.xml"}) {
    SCOPED_TRACE(name);
    const PathTables tables(machine(name));
    const std::vector<NodePlans> plans = all_plans(tables);
    ASSERT_FALSE(plans.empty());
    expect_same_channels(plans, parse_graph_xml(to_graph_xml(tables, plans), name, tables));
  }
}

// ---- files that do not fit

constexpr const char* kMachine =
    R"(<system version='1'><cpu numaid='0' affinity='f' arch='x86_64' vendor='AuthenticAMD' familyid='143' modelid='1'>
<pci busid='0000:01:00.0' class='0x060400' link_speed='16.0 GT/s PCIe' link_width='16'>
<pci busid='0000:02:00.0' class='0x030200' link_speed='16.0 GT/s PCIe' link_width='16'><gpu dev='0' sm='80' rank='0' gdr='1'/></pci>
<pci busid='0000:03:00.0' class='0x030200' link_speed='16.0 GT/s PCIe' link_width='16'><gpu dev='1' sm='80' rank='1' gdr='1'/></pci>
<pci busid='0000:04:00.0' class='0x020000' link_speed='16.0 GT/s PCIe' link_width='16'><nic><net name='n0' dev='0' speed='100000' gdr='1'/></nic></pci>
</pci></cpu></system>)";

/// What reading a graph with these lines in it complains of; "": nothing.
std::string complaint(const std::string& attributes, const std::string& channel,
                      const std::string& root = "<graphs version='1'>") {
  const PathTables tables(topo::parse_nccl_xml(kMachine, "machine.xml", topo::Model::kNccl).system);
  const std::string text = root + "\n<graph " + attributes + ">\n" + channel + "\n</graph></graphs>";
  try {
    parse_graph_xml(text, "f.xml", tables);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadInput);
    return error.what();
  }
}
std::string ring(int channels, const char* gbps, const char* type = "PIX") {
  return "id='0' pattern='4' crossnic='0' nchannels='" + std::to_string(channels) + "' speedintra='" + gbps +
         "' speedinter='" + gbps + "' latencyinter='0' typeintra='" + type +
         "' typeinter='PIX' samechannels='1'";
}

TEST(GraphXmlThatDoesNotFit, IsRefusedWithLineElementAndReason) {
  const std::string good = "<channel><gpu dev='0x0' rank='0'/><gpu dev='0x1' rank='1'/></channel>";
  const std::string with_net = "<channel><net dev='0'/><gpu dev='0'/><gpu dev='1'/><net dev='0'/></channel>";
  EXPECT_EQ(complaint(ring(1, "24"), good), "");
  EXPECT_EQ(complaint(ring(1, "24"), "<channel><gpu dev='0'/><gpu dev='1'/></channel>"), "")
      << "ranks may be left out";
  EXPECT_EQ(complaint(ring(1, "12"), with_net), "");

  EXPECT_THAT(complaint(ring(1, "24"), good, "<graphs version='2'>"),
              HasSubstr("f.xml:1: <graphs>: version 2"));
  EXPECT_THAT(complaint(ring(1, "24"), good, "<system version='1'>"), HasSubstr("not well-formed"));
  EXPECT_THAT(complaint(ring(2, "12"), good), HasSubstr("f.xml:2: <graph>: it says 2 channels and has 1."));
  EXPECT_THAT(complaint(ring(1, "24.1"), good), HasSubstr("the channels take 24.1"));
  EXPECT_THAT(complaint(ring(2, "13"), good + good), HasSubstr("the channels take 26"));
  EXPECT_THAT(complaint(ring(1, "24", "NVL"), good), HasSubstr("allowed is up to NVL"));
  EXPECT_THAT(complaint(ring(1, "24", "ABC"), good), HasSubstr("no type of paths"));
  EXPECT_THAT(complaint("id='0' pattern='3' " + ring(1, "24").substr(18), good),
              HasSubstr("never of pattern 3"));
  EXPECT_THAT(complaint(ring(1, "24"), "<channel>\n<gpu rank='0'/>\n<gpu rank='2'/></channel>"),
              HasSubstr("f.xml:5: <gpu>: this machine has no such GPU"));
  EXPECT_THAT(complaint(ring(1, "24"), "<channel>\n<gpu rank='0'/>\n<gpu rank='0'/></channel>"),
              HasSubstr("f.xml:5: <gpu>: rank 0 is in this channel already."));
  EXPECT_THAT(complaint(ring(1, "24"), "<channel><gpu rank='1'/></channel>"),
              HasSubstr("f.xml:3: <channel>: it leaves out rank 0."));
  EXPECT_THAT(complaint(ring(1, "12"), "<channel><net dev='0'/><gpu dev='0'/><gpu dev='1'/></channel>"),
              HasSubstr("no port where it leaves"));
  EXPECT_THAT(
      complaint(ring(1, "12"), "<channel><net dev='7'/><gpu dev='0'/><gpu dev='1'/><net dev='7'/></channel>"),
      HasSubstr("<net dev=\"7\">: this machine has no port 7"));
  EXPECT_THAT(
      complaint(ring(1, "12"), "<channel><net dev='0'/><net dev='0'/><gpu dev='0'/><gpu dev='1'/></channel>"),
      HasSubstr("GPUs stand between"));
  EXPECT_THAT(complaint(ring(1, "12.6"), with_net), HasSubstr("the channels take 12.6"));
  EXPECT_THAT(complaint(ring(1, "-1"), good), HasSubstr("'speedintra'"));
  EXPECT_THAT(complaint(ring(1, "24") + "/><graph " + ring(1, "24"), good),
              HasSubstr("it says 1 channels and has 0"));
  EXPECT_THAT(
      complaint("id='3' pattern='5' crossnic='0' nchannels='1' speedintra='1' speedinter='1' typeintra='NVL' "
                "typeinter='PIX' samechannels='0'",
                "<channel><gpu rank='0'/></channel>"),
      HasSubstr("no NVSwitch"));
}

// ---- what NCCL itself finds

TEST(GraphXmlOfNccl, FitsTheMachinesThatNcclFoundItOn) {
  const std::filesystem::path folder = LOOM_SHARED_TOPOLOGIES;
  std::ifstream file(folder / "nccl_reference.json");
  if (!file) GTEST_SKIP() << "skipped: no " << folder.string();
  const std::map<std::string, std::pair<int, int>> kinds = {{"ring", {0, 4}}, {"nvls", {3, 5}}};
  const nlohmann::json reference = nlohmann::json::parse(file);
  int read = 0;
  for (const auto& [name, entry] : reference["files"].items())
    for (const char* label : {"n1", "n2"}) {
      if (!entry.contains(label) || !entry[label].contains("graphs")) continue;
      const PathTables tables(topo::read_nccl_xml((folder / name).string(), topo::Model::kNccl).system);
      for (const auto& [graph, theirs] : entry[label]["graphs"].items()) {
        if (!theirs.contains("channels") || theirs["fallbackSimpleOrder"] != 0) continue;
        SCOPED_TRACE(name + " " + label + " " + graph);
        const int pattern = theirs["pattern"], id = graph == "tree" ? 1 : kinds.at(graph).first;
        std::string text = fmt::format(
            "<graphs version='1'><graph id='{}' pattern='{}' crossnic='{}' nchannels='{}' speedintra='{}' "
            "speedinter='{}' "
            "latencyinter='0' typeintra='{}' typeinter='{}' samechannels='{}'>\n",
            id, pattern, theirs["crossNic"].get<int>(), theirs["channels"].size(),
            theirs["bwIntra"].get<double>(), theirs["bwInter"].get<double>(),
            theirs["typeIntra"].get<std::string>(), theirs["typeInter"].get<std::string>(),
            theirs["sameChannels"].get<int>());
        for (std::size_t i = 0; i < theirs["channels"].size(); ++i) {
          text += "<channel>";
          const auto net = [&](int end) {
            if (theirs.contains("nets"))
              text += fmt::format("<net dev='{}'/>", theirs["nets"][i][end].get<std::uint64_t>());
          };
          net(0);
          for (const int rank : theirs["channels"][i]) text += fmt::format("<gpu rank='{}'/>", rank);
          net(1);
          text += "</channel>\n";
        }
        EXPECT_NO_THROW(parse_graph_xml(text + "</graph></graphs>", "nccl.xml", tables));
        ++read;
      }
    }
  EXPECT_GT(read, 40);
}

}  // namespace
}  // namespace loom::search
