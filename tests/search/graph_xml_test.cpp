#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "graph_cases.hpp"

namespace loom::search {
namespace {

using ::testing::HasSubstr;

/// Some plans of a machine that a file keeps, rings among them.
std::vector<NodePlans> all_plans(const PathTables& tables) {
  std::vector<NodePlans> plans;
  for (const Pattern pattern : kAllPatterns) {
    Request request;
    request.pattern = pattern;
    request.nodes = pattern == Pattern::kRing || pattern == Pattern::kNvls ? 1 : 2;
    plans.push_back(find_plans(tables, request));
  }
  return kept_plans(std::move(plans));
}

class GraphXml : public ::testing::TestWithParam<unsigned> {};

TEST_P(GraphXml, KeepsTheChannelsOfRandomMachines) {
  const PathTables tables(random_machine(GetParam()));
  const std::vector<NodePlans> plans = all_plans(tables);
  if (plans.empty()) return;
  const std::string text = to_graph_xml(tables, plans);
  const std::vector<NodePlans> read = parse_graph_xml(text, "graph.xml", tables);
  expect_same_channels(plans, read);
  EXPECT_EQ(to_graph_xml(tables, read), text);
}

TEST_P(GraphXml, AgreesOnTheLinksOfSplitChannels) {
  const PathTables tables(random_machine(GetParam()));
  Request request;
  request.min_channels = 17;  // channels are split unevenly
  request.cross_nic = 0;      // none in halves, of which a file would have more
  const NodePlans plans = find_plans(tables, request);
  if (plans.parts[0].in_order) return;
  const std::vector<NodePlans> read = parse_graph_xml(to_graph_xml(tables, {&plans, 1}), "graph.xml", tables);
  ASSERT_EQ(read.size(), 1);
  EXPECT_EQ(read[0].parts[0].hops, plans.parts[0].hops);
}
INSTANTIATE_TEST_SUITE_P(Seeds, GraphXml, seeds(30));

// ---- files that do not fit

constexpr const char* kMachine =
    R"(<system version='1'><cpu numaid='0' affinity='f' arch='x86_64' vendor='AuthenticAMD' familyid='143' modelid='1'>
<pci busid='0000:01:00.0' class='0x060400' link_speed='16.0 GT/s PCIe' link_width='16'>
<pci busid='0000:02:00.0' class='0x030200' link_speed='16.0 GT/s PCIe' link_width='16'><gpu dev='0' sm='80' rank='0' gdr='1'/></pci>
<pci busid='0000:03:00.0' class='0x030200' link_speed='16.0 GT/s PCIe' link_width='16'><gpu dev='1' sm='80' rank='1' gdr='1'/></pci>
<pci busid='0000:04:00.0' class='0x020000' link_speed='16.0 GT/s PCIe' link_width='16'><nic><net name='n0' dev='0' speed='100000' gdr='1'/></nic></pci>
</pci></cpu></system>)";

/// What reading `text` complains of; "": nothing.
std::string complaint_about(const std::string& text, int nodes = 1) {
  const PathTables tables(topo::parse_nccl_xml(kMachine, "machine.xml", topo::Model::kNccl).system);
  try {
    parse_graph_xml(text, "f.xml", tables, nodes);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadInput);
    return error.what();
  }
}
/// The same of a graph with these lines in it.
std::string complaint(const std::string& attributes, const std::string& channel,
                      const std::string& root = "<graphs version='1'>", int nodes = 1) {
  return complaint_about(root + "\n<graph " + attributes + ">\n" + channel + "\n</graph></graphs>", nodes);
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
              HasSubstr("f.xml:1: <graphs>: version 2 is not known, only version 1."));
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
              HasSubstr("f.xml:3: <channel>: it has no port at its end, where it leaves."));
  for (const int nodes : {1, 2})
    EXPECT_THAT(
        complaint(ring(1, "12"), "<channel><gpu dev='0'/><gpu dev='1'/><net dev='0'/></channel>",
                  "<graphs version='1'>", nodes),
        HasSubstr("f.xml:3: <channel>: it has a port, but none at its beginning, where it comes in."));
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

TEST(GraphXmlThatDoesNotFit, HasNoPortsForSeveralNodes) {
  const std::string inside = "<channel><gpu dev='0'/><gpu dev='1'/></channel>";
  const std::string leaves = "<channel><net dev='0'/><gpu dev='0'/><gpu dev='1'/><net dev='0'/></channel>";
  const char* const root = "<graphs version='1'>";
  EXPECT_EQ(complaint(ring(1, "12"), inside, root, 1), "");
  EXPECT_THAT(complaint(ring(1, "12"), inside, root, 2),
              HasSubstr("f.xml:3: <channel>: it has no ports, and so does not leave the node; there are 2"));
  EXPECT_EQ(complaint(ring(1, "12"), leaves, root, 2), "");
  EXPECT_THAT(complaint(ring(2, "1"), leaves + "\n" + inside, root, 2),
              HasSubstr("f.xml:4: <gpu dev=\"0\">: the channels before begin at a port."));
}

TEST(GraphXmlThatDoesNotFit, HasNoChannels) {
  const char* const empty =
      "id='3' pattern='5' crossnic='0' nchannels='0' speedintra='0' speedinter='0' typeintra='LOC' "
      "typeinter='LOC' samechannels='1'";
  EXPECT_THAT(complaint_about("<graphs version='1'/>"), HasSubstr("f.xml:1: <graphs>: it has no <graph>"));
  EXPECT_THAT(complaint(empty, ""), HasSubstr("f.xml:1: <graphs>: none of its graphs has channels."));
  const std::string good = "<channel><gpu dev='0'/><gpu dev='1'/></channel>";
  EXPECT_EQ(complaint(ring(1, "24"), good + "</graph><graph " + empty + ">"), "")
      << "NCCL writes graphs that it does not use";
}

TEST(GraphXmlThatDoesNotFit, HasOnePatternTwice) {
  const std::string good = "<channel><gpu dev='0'/><gpu dev='1'/></channel>";
  EXPECT_THAT(complaint(ring(1, "12"), good + "</graph>\n<graph " + ring(1, "12") + ">" + good),
              HasSubstr("f.xml:4: <graph>: there is a graph of this pattern for these GPUs already."));
}

/// NCCL writes the tree of a GPU alone as its graphs of heads too.
TEST(GraphXmlOfOneGpu, HasTheTreeInPlaceOfHeads) {
  const PathTables alone(machine("gh200.xml"));
  const auto graph = [](int id, const char* more) {
    return loom::format(
        "<graph id='{}' pattern='3' crossnic='0' nchannels='1' speedintra='10' speedinter='10' "
        "typeintra='SYS' typeinter='PIX' samechannels='1'><channel><gpu rank='0'/>{}</channel></graph>",
        id, more);
  };
  const auto read = [&](const std::string& graphs, const PathTables& of) {
    return parse_graph_xml("<graphs version='1'>" + graphs + "</graphs>", "f.xml", of);
  };
  EXPECT_EQ(read(graph(1, "") + graph(3, ""), alone).size(), 1);
  EXPECT_EQ(read(graph(3, ""), alone).at(0).parts.at(0).pattern, Pattern::kTree);
  EXPECT_THROW(read(graph(1, "") + graph(1, ""), alone), Error);
  const PathTables several(topo::trimmed_to(machine("dgxh100.xml"), std::vector<int>{0, 1}));
  EXPECT_EQ(read(graph(1, "<gpu rank='1'/>"), several).size(), 1);
  EXPECT_THROW(read(graph(3, "<gpu rank='1'/>"), several), Error);
}

// ---- what a file says and what a plan does

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  EXPECT_NE(text.find(what), std::string::npos) << what;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

PathTables tables_of(const char* path) {
  return PathTables(topo::read_nccl_xml(path, topo::Model::kNccl).system);
}

NodePlans plan_of_whole(const PathTables& tables, const Request& request) {
  const ChannelPlan plan = find_channels(tables.whole()->paths, request);
  return {{plan}, {tables.whole()->ranks}, plan.total_gbps};
}

/// NCCL leaves out the second GPU's path to the port, which is on another socket.
TEST(GraphXmlTypes, HaveTheSecondGpuOfBalancedTreesInAPlanAlone) {
  const PathTables tables = tables_of(LOOM_SEARCH_DATA "/three-sockets-two-ports.xml");
  Request request;
  request.pattern = Pattern::kBalancedTree;
  request.nodes = 2;
  const NodePlans plans = plan_of_whole(tables, request);
  ASSERT_EQ(plans.parts[0].type_inter, topo::PathType::kSys);
  const std::string text =
      replaced(to_graph_xml(tables, {&plans, 1}), "typeinter=\"SYS\"", "typeinter=\"PIX\"");
  const std::vector<NodePlans> read = parse_graph_xml(text, "graph.xml", tables, 2);
  EXPECT_EQ(read.at(0).parts.at(0).type_inter, topo::PathType::kSys);
}

/// NCCL writes what it allowed.
TEST(GraphXmlTypes, AreThoseOfTheWorstHopsInAPlan) {
  const PathTables tables = tables_of(LOOM_TEST_DATA "/dgx1v.xml");
  Request request;
  request.nodes = 2;
  const NodePlans plans = plan_of_whole(tables, request);
  const ChannelPlan& plan = plans.parts[0];
  std::string text = to_graph_xml(tables, {&plans, 1});
  for (const auto& [name, type] : {std::pair("typeintra", plan.type_intra), {"typeinter", plan.type_inter}})
    text = replaced(text, loom::format("{}=\"{}\"", name, topo::name_of(type)),
                    loom::format("{}=\"SYS\"", name));
  const std::vector<NodePlans> read = parse_graph_xml(text, "graph.xml", tables, 2);
  EXPECT_EQ(read.at(0).parts.at(0).type_intra, plan.type_intra);
  EXPECT_EQ(read.at(0).parts.at(0).type_inter, plan.type_inter);
  EXPECT_EQ(read.at(0).parts.at(0).limits.type_inter, topo::PathType::kSys);
  expect_valid(tables, read[0]);
}

/// Amounts of a linear program are rounded: 47.99999999999999.
TEST(GraphXmlSpeeds, HaveAsManyDigitsAsNcclReads) {
  const PathTables tables = tables_of(LOOM_TEST_DATA "/dgx1v.xml");
  NodePlans plans = plan_of_whole(tables, {});
  for (std::size_t i = 0; i < plans.parts[0].channels.size(); ++i) {
    Channel& channel = plans.parts[0].channels[i];
    channel.intra_gbps = channel.inter_gbps = 20.0 / 3 + (i % 2 == 0 ? 1e-12 : -1e-12);
  }
  const std::string text = to_graph_xml(tables, {&plans, 1});
  EXPECT_THAT(text, HasSubstr("speedintra=\"6.666667\" speedinter=\"6.666667\""));
  EXPECT_EQ(text.find("<channel speed"), std::string::npos) << "equal channels look unequal: " << text;
}

/// NCCL may raise ports further, which nothing reaches.
TEST(GraphXmlOfHeads, CountsPortsUpToTwiceTheirMulticast) {
  const PathTables tables = tables_of(LOOM_TEST_DATA "/dgxh100.xml");
  const std::string channel = "<channel><net dev='0'/><gpu rank='0'/><net dev='0'/></channel>";
  const std::string text =
      "<graphs version='1'><graph id='3' pattern='5' crossnic='0' nchannels='1' speedintra='10' "
      "speedinter='40' typeintra='NVL' typeinter='SYS' samechannels='1'>" +
      channel + "</graph></graphs>";
  const std::vector<NodePlans> read = parse_graph_xml(text, "graph.xml", tables, 2);
  EXPECT_DOUBLE_EQ(read.at(0).total_gbps, 20);
  expect_valid(tables, read[0]);
}

/// Two ports of one host say that they are number 0.
TEST(GraphXmlOfPorts, TellsThoseOfOneNumberApart) {
  const std::string second =
      "<pci busid='0000:05:00.0' class='0x020000' link_speed='16.0 GT/s PCIe' link_width='16'><nic><net "
      "name='n1' dev='0' speed='100000' gdr='1'/></nic></pci>\n</pci></cpu>";
  const PathTables tables(
      topo::parse_nccl_xml(replaced(kMachine, "</pci></cpu>", second), "two.xml", topo::Model::kNccl).system);
  Request request;
  request.nodes = 2;
  const NodePlans plans = find_plans(tables, request);
  std::set<topo::NodeId> ports;
  for (const Channel& channel : plans.parts.at(0).channels)
    ports.insert(channel.nets.begin(), channel.nets.end());
  ASSERT_EQ(ports.size(), 2U);
  const std::vector<NodePlans> read =
      parse_graph_xml(to_graph_xml(tables, {&plans, 1}), "graph.xml", tables, 2);
  expect_same_channels({plans}, read);
}

TEST(GraphXmlBounds, AreOfAsManyChannelsAsTheFileHas) {
  const PathTables tables = tables_of(LOOM_TEST_DATA "/dgx1v.xml");
  const NodePlans plans = plan_of_whole(tables, {});
  ASSERT_GT(plans.parts[0].channels.size(), 2U);
  std::vector<NodePlans> read = parse_graph_xml(to_graph_xml(tables, {&plans, 1}), "graph.xml", tables);
  Request request;
  request.max_channels = 2;
  prove_bounds(tables, request, read.at(0));
  EXPECT_NEAR(read[0].parts[0].bound_gbps, 120, 1e-3);
}

/// Rings of cross-NIC 1 need no partner, and carry more than those of cross-NIC 2 on some machines.
TEST(GraphXmlBounds, AreOfTheCrossNicOfTheFile) {
  int more = 0;
  for (unsigned seed = 1; seed <= 200 && more < 3; ++seed) {
    const PathTables tables(random_machine(seed, 4));
    if (tables.whole() == nullptr) continue;
    Request in_pairs, any;
    in_pairs.nodes = any.nodes = 2;
    any.cross_nic = 1;
    NodePlans plans = plan_of_whole(tables, any);
    const NodePlans pairs = plan_of_whole(tables, in_pairs);
    if (plans.parts[0].limits.cross_nic != 1 || plans.total_gbps <= pairs.parts[0].bound_gbps * 1.01)
      continue;
    ++more;
    prove_bounds(tables, in_pairs, plans);
    EXPECT_NEAR(plans.parts[0].bound_gbps, plans.total_gbps, 1e-3 * plans.total_gbps) << seed;
  }
  EXPECT_GT(more, 0);
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
        std::string text = loom::format(
            "<graphs version='1'><graph id='{}' pattern='{}' crossnic='{}' nchannels='{}' speedintra='{}' "
            "speedinter='{}' "
            "latencyinter='0' typeintra='{}' typeinter='{}' samechannels='{}'>\n",
            id, pattern, theirs["crossNic"].get<int>(), theirs["channels"].size(),
            theirs["bwIntra"].get<double>(), theirs["bwInter"].get<double>(),
            theirs["typeIntra"].get<std::string>(), theirs["typeInter"].get<std::string>(),
            theirs["sameChannels"].get<int>());
        for (std::size_t i = 0; i < theirs["channels"].size(); ++i) {
          text += "<channel>";
          const auto net = [&, &theirs = theirs](int end) {
            if (theirs.contains("nets"))
              text += loom::format("<net dev='{}'/>", theirs["nets"][i][end].get<std::uint64_t>());
          };
          net(0);
          for (const int rank : theirs["channels"][i]) text += loom::format("<gpu rank='{}'/>", rank);
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
