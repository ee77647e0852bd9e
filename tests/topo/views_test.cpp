#include "tools/topo_views.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "base/format.hpp"
#include "test_data.hpp"
#include "tools/topo_diff.hpp"
#include "topo/utf8.hpp"
#include "topo/xml.hpp"

namespace loom::tools {
namespace {

using namespace loom::topo;
using ::testing::Contains;
using ::testing::HasSubstr;
using namespace std::string_literals;  // gcc 12 warns, wrongly, of assignments of literals to strings

System dgx1v() {
  return read_system(data_file("dgx1v.xml")).system;
}

TEST(Matrix, HasARowForEachGpu) {
  const System system = dgx1v();
  const std::string text = matrix_text(Paths(system), {});
  EXPECT_THAT(text,
              HasSubstr("GPU0         X  NVL 20  NVL 20  NVL 40  NVB 20  NVB 40  NVL 40  NVB 20  PIX 12"));
  EXPECT_THAT(text, HasSubstr("20-39"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("\033")));
  EXPECT_THAT(matrix_text(Paths(system), terminal_colours()), HasSubstr("\033["));
}

TEST(Matrix, HasARowForEachPort) {
  const System system = dgx1v();
  const std::string text = matrix_text(Paths(system), {});
  EXPECT_THAT(text, HasSubstr("\nmlx5_1  PHB 12  PHB 12  PIX 12"));
  std::size_t lines = 0;
  for (std::size_t at = text.find('\n'); text.compare(at, 2, "\n\n") != 0; at = text.find('\n', at + 1))
    ++lines;
  EXPECT_EQ(lines, 8 + 4);
}

TEST(Matrix, FoldsIntoTheWidthOfATerminal) {
  const System system = dgx1v();
  const Paths paths(system);
  const std::string whole = matrix_text(paths, {});
  EXPECT_EQ(matrix_text(paths, {}, false, 200), whole);
  for (const std::size_t width : {1U, 20U, 40U, 79U, 80U, 100U, 116U}) {
    SCOPED_TRACE(width);
    const std::string text = matrix_text(paths, {}, false, width);
    std::istringstream lines(text.substr(0, text.find("\nGB/s of")));
    std::size_t cells = 0, cpus = 0;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), std::max<std::size_t>(width, 31));
      std::istringstream words(line);
      std::string word;
      words >> word;
      if (!word.starts_with("GPU0") || line.find("GPU1") != std::string::npos) continue;
      while (words >> word)
        cells += word == "X" || word.size() == 3, cpus += word.find('-') != std::string::npos;
    }
    EXPECT_EQ(cells, 8U + 4U);
    EXPECT_EQ(cpus, 1U);
  }
}

TEST(Matrix, SaysHowGpusOfSeveralHostsReachEachOther) {
  std::string text = "<system version='1'>";
  for (int gpu = 0; gpu < 18; ++gpu)
    text += loom::format(
        "<cpu host_hash='{}' numaid='0' affinity='1' arch='arm64'><pci busid='0000:01:00.0' class='0x030200' "
        "link_speed='16 GT/s' link_width='16'><gpu dev='0' sm='90' rank='{}' gdr='1'>"
        "<nvlink target='fffffff:ffff:ff' count='4' tclass='0x068000'/></gpu></pci></cpu>",
        gpu + 1, gpu);
  const System system = parse_system(text + "</system>", "f.xml").system;
  EXPECT_THAT(matrix_text(Paths(system), {}),
              HasSubstr("1 of 18 GPUs are shown, of host 0; --all shows all.\n"
                        "GPUs of host 0 reach those of other hosts by NVL 82.4."));
}

/// `hosts` hosts of ten NUMA nodes with a port each.
System ports_only(int hosts) {
  std::string text = "<system version='1'>";
  for (int host = 1; host <= hosts; ++host)
    for (int i = 0; i < 10; ++i)
      text += loom::format(
          "<cpu host_hash='{}' numaid='{}' affinity='1' arch='arm64'><nic><net dev='{}' name='"
          "\xc3\xa9th\xc3\xa9th\xc3\xa9th\xc3\xa9th{}' speed='1000'/></nic></cpu>",
          host, i, i, i);
  return parse_system(text + "</system>", "f.xml").system;
}

TEST(Matrix, ShowsNumaNodesAndPortsWithoutGpus) {
  const System system = ports_only(1);
  const std::string text = matrix_text(Paths(system), {});
  EXPECT_THAT(text, HasSubstr("\nNUMA0 "));
  EXPECT_THAT(text, HasSubstr("\n\xc3\xa9th\xc3\xa9th\xc3\xa9th\xc3\xa9th"));
  EXPECT_THAT(text, HasSubstr("There is no GPU."));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("5000")));
  EXPECT_EQ(valid_utf8(text), text);
}

TEST(Matrix, ShowsTheFirstOfSeveralHosts) {
  const std::string text = matrix_text(Paths(ports_only(3)), {});
  EXPECT_THAT(text, HasSubstr("10 of 30 NUMA nodes are shown"));
  EXPECT_THAT(text, HasSubstr("\nh0:NUMA9"));
  EXPECT_THAT(text, HasSubstr("\nh0:\xc3\xa9th"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("h1:")));
  EXPECT_THAT(matrix_text(Paths(ports_only(3)), {}, true), HasSubstr("\nh2:NUMA9"));
}

TEST(Findings, OfOneKindShareALine) {
  const System system = dgx1v();
  std::vector<Finding> findings;
  for (const NodeId gpu : system.gpus())
    findings.push_back({Severity::kWarning, gpu, "It is slow.", "All wait."});
  findings.push_back({Severity::kHint, kNoNode, "It is old.", "Nothing."});
  EXPECT_EQ(findings_text(system, grouped(findings), {}),
            "warning GPU 0, GPU 1, GPU 2, GPU 3 and 4 more, each: It is slow. All wait.\n"
            "hint    machine: It is old. Nothing.\n");
}

System linked_switches() {
  const auto pci_switch = [](int bus, int peer) {
    return loom::format(
        "<pci busid='0000:0{}:00.0' class='0x060400' link_speed='16 GT/s' link_width='16'>"
        "<pcilink target='0000:0{}:00.0'/></pci>",
        bus, peer);
  };
  const std::string text = loom::format(
      "<system version='1'><cpu numaid='0' affinity='1' arch='arm64'>{}{}<nic><net dev='0' "
      "speed='1000'/></nic>"
      "</cpu></system>",
      pci_switch(1, 2), pci_switch(2, 1));
  return parse_system(text, "f.xml").system;
}

TEST(Tree, ShowsDirectLinksBetweenSwitches) {
  const std::string text = tree_text(linked_switches(), {});
  EXPECT_THAT(text, HasSubstr("linked to switch 0000:02:00.0"));
  EXPECT_THAT(text, HasSubstr("NIC [PCI]"));  // on no bus, so without a speed
}

TEST(Tree, ShowsEveryNodeWithItsLinks) {
  const std::string text = tree_text(dgx1v(), {});
  EXPECT_THAT(text, HasSubstr("├─ switch 0000:04:00.0 [PCI 12 GB/s]"));
  EXPECT_THAT(text, HasSubstr("mlx5_3 100 Gbit/s, GPUDirect [NET 12.5 GB/s]"));
  EXPECT_THAT(text, HasSubstr("SYS 6 NUMA 1"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr(" \n")));
  const std::string several = tree_text(ports_only(2), {});
  EXPECT_THAT(several, HasSubstr("host 1\nNUMA 0 arm64, CPUs 0 SYS 6 NUMA 1 "));
  EXPECT_THAT(several, ::testing::Not(HasSubstr("(host")));
}

struct Rectangle {
  double x, y, w, h;
  bool holds(double at_x, double at_y) const {
    return at_x >= x && at_x <= x + w && at_y >= y && at_y <= y + h;
  }
};

/// What is in a picture; the frame around all is no box.
struct Drawn {
  explicit Drawn(const std::string& svg) : document(svg, "picture", {.elements = 1'000'000}) {
    for (const pugi::xml_node rect : document.root().children("rect"))
      if (rect.attribute("rx"))
        boxes.push_back({rect.attribute("x").as_double(), rect.attribute("y").as_double(),
                         rect.attribute("width").as_double(), rect.attribute("height").as_double()});
  }
  /// The innermost box at a place; nullptr: none.
  const Rectangle* box_at(double x, double y) const {
    const Rectangle* found = nullptr;
    for (const Rectangle& box : boxes)
      if (box.holds(x, y) && (found == nullptr || box.w * box.h < found->w * found->h)) found = &box;
    return found;
  }
  /// How many texts begin so.
  std::size_t count(std::string_view beginning) const {
    std::size_t found = 0;
    for (const pugi::xml_node text : document.root().children("text"))
      found += std::string_view(text.child_value()).starts_with(beginning);
    return found;
  }
  XmlDocument document;
  std::vector<Rectangle> boxes;
};

TEST(Pictures, AreWellFormedAndShowEveryGpu) {
  for (const auto& file : all_files()) {
    SCOPED_TRACE(file);
    const System system = read_system(file).system;
    const Drawn drawn(to_svg(system, "a <title> & more \xff", true));
    EXPECT_EQ(std::string_view(drawn.document.root().name()), "svg");
    EXPECT_EQ(drawn.count("GPU ") + drawn.count("VGPU "), system.of_kind(NodeKind::kGpu).size());
    EXPECT_EQ(drawn.count("a <title> & more ?"), 1);
    EXPECT_THAT(to_dot(system, "t"), ::testing::EndsWith("}\n"));
  }
}

class PictureSizes : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(All, PictureSizes, ::testing::Bool());

TEST_P(PictureSizes, FitAScreenAndKeepTextInItsBox) {
  for (const auto& file : all_files()) {
    SCOPED_TRACE(file);
    const Drawn drawn(to_svg(read_system(file).system, "title", GetParam()));
    const double width = drawn.document.root().attribute("width").as_double();
    EXPECT_LE(width, 1850);
    for (const Rectangle& box : drawn.boxes) {
      EXPECT_GE(box.x, 0);
      EXPECT_LE(box.x + box.w, width);
    }
    for (const pugi::xml_node text : drawn.document.root().children("text")) {
      if (text.attribute("text-anchor").value() != std::string_view("middle") || text.attribute("stroke"))
        continue;
      const double size = text.attribute("font-size").as_double(), x = text.attribute("x").as_double();
      const double half = 0.27 * size * static_cast<double>(character_count(text.child_value()));
      const Rectangle* box = drawn.box_at(x, text.attribute("y").as_double() - 3);
      ASSERT_NE(box, nullptr) << text.child_value();
      EXPECT_GE(x - half, box->x) << text.child_value();
      EXPECT_LE(x + half, box->x + box->w) << text.child_value();
    }
  }
}

/// Hosts of a GPU on one NVSwitch; the GPU of host `odd` has another PCI link.
System rack(int hosts, int odd) {
  std::string text = "<system version='1'>";
  for (int host = 0; host < hosts; ++host)
    text += loom::format(
        "<cpu host_hash='{}' numaid='0' affinity='1' arch='arm64'><pci busid='0000:0{}:00.0' "
        "class='0x030200' "
        "link_speed='16 GT/s' link_width='{}'><gpu dev='0' sm='90' rank='{}' gdr='1'>"
        "<nvlink target='fffffff:ffff:ff' count='4' tclass='0x068000'/></gpu></pci><nic><net dev='0' "
        "name='n0' "
        "speed='100000' guid='{}'/></nic></cpu>",
        host + 1, host + 1, host == odd ? 8 : 16, host, host + 50);
  return parse_system(text + "</system>", "f.xml").system;
}

TEST(Pictures, DrawOneOfEqualHosts) {
  const System system = rack(6, 4);
  const Drawn folded(to_svg(system, "title")), whole(to_svg(system, "title", true));
  EXPECT_EQ(folded.count("GPU 0"), 2);
  EXPECT_EQ(folded.count("host 0, and 4 hosts like it: 1-3,5"), 1);
  EXPECT_EQ(folded.count("host 4"), 1);
  EXPECT_EQ(folded.count("NVSwitch of all 6 hosts: 6 GPUs, 82.4 GB/s each"), 1);
  EXPECT_EQ(whole.count("GPU 0"), 6);
  EXPECT_EQ(whole.count("host 5"), 1);
  const auto count = [](const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count(to_dot(system, "t"), "label=\"GPU 0"), 2);
  EXPECT_THAT(to_dot(system, "t"), HasSubstr("label=\"host 0, and 4 hosts like it: 1-3,5\""));
  EXPECT_EQ(count(to_dot(system, "t", true), "label=\"GPU 0"), 6);
}

TEST(Pictures, ExplainWhatIsInThem) {
  const Drawn mesh(to_svg(dgx1v(), "title")), ports(to_svg(ports_only(1), "title"));
  EXPECT_EQ(mesh.count("NVLink"), 1);
  EXPECT_EQ(mesh.count("C2C"), 0);
  EXPECT_EQ(ports.count("NVLink"), 0);
}

TEST(Pictures, ShowLinksBetweenNumaNodesOfEveryHost) {
  for (const auto& file : all_files()) {
    SCOPED_TRACE(file);
    const System system = read_system(file).system;
    std::vector<int> numa_nodes(system.hosts().size());
    for (const NodeId cpu : system.of_kind(NodeKind::kCpu))
      ++numa_nodes[static_cast<std::size_t>(system.node(cpu).host)];
    const auto several =
        std::count_if(numa_nodes.begin(), numa_nodes.end(), [](int count) { return count > 1; });
    EXPECT_EQ(Drawn(to_svg(system, "title", true)).count("between NUMA nodes: "), several);
  }
}

/// A host of `numa_nodes` NUMA nodes with eight GPUs and a port each.
System wide(int numa_nodes, bool sys_differs = false) {
  std::string text = "<system version='1'>";
  for (int numa = 0, gpu = 0; numa < numa_nodes; ++numa) {
    text += loom::format("<cpu numaid='{}' affinity='' arch='x86_64' vendor='{}' familyid='6' modelid='143'>",
                         numa, sys_differs && numa % 2 ? "AuthenticAMD" : "GenuineIntel");
    for (int i = 0; i < 8; ++i, ++gpu)
      text += loom::format(
          "<pci busid='{:04x}:01:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'>"
          "<gpu dev='{}' sm='90' rank='{}' gdr='1'/></pci>",
          gpu, gpu, gpu);
    text += loom::format("<nic><net dev='{}' name='a_rather_long_name{}' speed='12345.678'/></nic></cpu>",
                         numa, numa);
  }
  return parse_system(text + "</system>", "f.xml").system;
}

TEST(Pictures, JoinRowsOfNumaNodes) {
  const std::string svg = to_svg(wide(6), "title");
  const Drawn drawn(svg);
  EXPECT_EQ(drawn.count("between NUMA nodes: 22 GB/s per pair"), 1);
  // A line down the left edge from the first row's to the last one's.
  double top = 1e9, bottom = 0;
  for (const pugi::xml_node line : drawn.document.root().children("line")) {
    if (line.attribute("stroke").value() != std::string_view("#d98000")) continue;
    if (line.attribute("x1").as_double() != line.attribute("x2").as_double() ||
        line.attribute("x1").as_double() > 40)
      continue;
    top = std::min(top, line.attribute("y1").as_double()),
    bottom = std::max(bottom, line.attribute("y2").as_double());
  }
  EXPECT_GT(bottom - top, 300);
  EXPECT_EQ(Drawn(to_svg(wide(2, true), "title")).count("between NUMA nodes: 16 to 22 GB/s per pair"), 1);
}

TEST(Pictures, SayInThreeDigitsHowFastPortsAre) {
  const Drawn drawn(to_svg(wide(1), "title"));
  EXPECT_EQ(drawn.count("a_rather_lon 12.3G"), 1);
  EXPECT_EQ(drawn.count("5000"), 0);  // no bus, no speed
}

TEST(Pictures, MarkGpusWithoutNvLinks) {
  std::vector<Node> nodes = source_nodes(read_system(data_file("dgxh100.xml")).system);
  for (Node& node : nodes)
    if (auto* gpu = std::get_if<GpuInfo>(&node.info); gpu != nullptr && gpu->rank == 3) gpu->nvlinks.clear();
  const Drawn drawn(to_svg(build_system(std::move(nodes), {0}).system, "title"));
  EXPECT_EQ(drawn.count("no NVLink"), 1);
  std::string bar;
  for (const pugi::xml_node text : drawn.document.root().children("text"))
    if (std::string_view(text.child_value()).find("NVSwitch") != std::string_view::npos)
      bar = text.child_value();
  EXPECT_THAT(bar, HasSubstr("7 GPUs, 370.8 GB/s each; 1 without"));
}

TEST(Pictures, ShowDirectLinksBetweenSwitches) {
  EXPECT_EQ(Drawn(to_svg(linked_switches(), "title")).count("direct"), 1);
}

TEST(Pictures, ShowWhatPartitionsShare) {
  const System system =
      parse_system(
          "<system version='1'><cpu numaid='0' affinity='' arch='arm64'>"
          "<pci busid='0000:01:00.0' class='0x030200' link_speed='32 GT/s' link_width='16'>"
          "<gpu dev='0' mlopart='0' sm='100' rank='0' gdr='1'><c2c bw='1000' count='3'/></gpu>"
          "<gpu dev='0' mlopart='1' sm='100' rank='1' gdr='1'/></pci></cpu></system>",
          "f.xml")
          .system;
  ASSERT_EQ(system.of_kind(NodeKind::kC2cPort).size(), 1);
  EXPECT_EQ(Drawn(to_svg(system, "title")).count("C2C 3"), 1);
}

TEST(Json, HasNodesLinksAndPaths) {
  const System system = dgx1v();
  const nlohmann::json out = to_json(system);
  EXPECT_EQ(out["nodes"].size(), static_cast<std::size_t>(system.size()));
  EXPECT_EQ(out["links"].size(), system.links().size());
  for (std::size_t id = 0; id < out["nodes"].size(); ++id) EXPECT_EQ(out["nodes"][id]["id"], id);
  const Paths paths(system);
  const nlohmann::json all = nlohmann::json::parse(show_json(system, &paths, {"a \"note\""}));
  EXPECT_EQ(all["notes"], nlohmann::json({"a \"note\""}));
  EXPECT_EQ(all["system"], out);
  EXPECT_EQ(all["paths"].size(), 12 * 11);
  EXPECT_EQ(all["paths"][0], nlohmann::json({{"from", system.gpus()[0]},
                                             {"to", system.gpus()[1]},
                                             {"type", "NVL"},
                                             {"gbps", 20},
                                             {"hops", 1}}));
  EXPECT_EQ(nlohmann::json::parse(show_json(system, nullptr, {}))["paths"], nlohmann::json::array());
}

TEST(Json, HasThePathsOfMachinesWithoutGpus) {
  const System system = ports_only(1);
  const Paths paths(system);
  EXPECT_EQ(nlohmann::json::parse(show_json(system, &paths, {}))["paths"].size(), 20 * 19);
}

std::vector<std::string> lines_of(const std::vector<Difference>& differences) {
  std::vector<std::string> lines;
  for (const Difference& difference : differences) lines.push_back(difference.text);
  return lines;
}

TEST(Differences, NameWhatChanged) {
  const System before = dgx1v();
  std::vector<Node> nodes = source_nodes(before);
  for (Node& node : nodes) {
    if (auto* net = std::get_if<NetInfo>(&node.info); net != nullptr && net->device == 1)
      net->speed_mbps = 200'000;
    if (auto* gpu = std::get_if<GpuInfo>(&node.info); gpu != nullptr && gpu->rank == 0)
      gpu->nvlinks.erase(gpu->nvlinks.begin());
    if (auto* gpu = std::get_if<GpuInfo>(&node.info); gpu != nullptr && gpu->rank == 1)
      gpu->nvlinks.erase(gpu->nvlinks.begin());
  }
  const System after = build_system(nodes, {0}).system;
  EXPECT_TRUE(differences(before, before).empty());
  const auto lines = lines_of(differences(before, after));
  EXPECT_THAT(lines, Contains("~ mlx5_1: speed_mbps is 200000.0, was 100000.0"));
  EXPECT_THAT(lines, Contains("~ GPU 0: no NVL to GPU 1, was 20 GB/s"));
  EXPECT_THAT(lines_of(differences(before, read_system(data_file("gh200.xml")).system)), Contains("- GPU 7"));
  const nlohmann::json json = to_json(differences(before, after));
  EXPECT_THAT(json, Contains(nlohmann::json({{"change", "changed"},
                                             {"node", "mlx5_1"},
                                             {"attribute", "speed_mbps"},
                                             {"before", 100000.0},
                                             {"after", 200000.0},
                                             {"text", "~ mlx5_1: speed_mbps is 200000.0, was 100000.0"}})));
  EXPECT_THAT(json, Contains(nlohmann::json({{"change", "changed"},
                                             {"node", "GPU 0"},
                                             {"attribute", "NVL to GPU 1"},
                                             {"before", 20.0},
                                             {"after", nullptr},
                                             {"text", "~ GPU 0: no NVL to GPU 1, was 20 GB/s"}})));
}

TEST(Differences, MayLookPastIds) {
  const System before = dgx1v();
  std::vector<Node> nodes = source_nodes(before);
  for (Node& node : nodes) {
    if (node.pci) ++node.pci->bus_id.domain;
    if (auto* net = std::get_if<NetInfo>(&node.info)) net->guid = *net->guid + 1;
    if (auto* gpu = std::get_if<GpuInfo>(&node.info))
      for (NvLinks& row : gpu->nvlinks) ++row.target.domain;
  }
  const System other = build_system(nodes, {77}).system;
  EXPECT_THAT(differences(before, other), ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(lines_of(differences(before, other, Ignore::kIds)), ::testing::IsEmpty());
  for (Node& node : nodes)
    if (node.kind() == NodeKind::kPciSwitch) node.pci->link_width = 8;
  EXPECT_THAT(lines_of(differences(before, build_system(nodes, {77}).system, Ignore::kIds)),
              Contains("~ PCI switch: link_width is 8, was 16"));
}

/// A machine with everything that a node can have.
std::vector<Node> everything() {
  CpuInfo cpu{0, "x86_64", "GenuineIntel", 6, 0x8f, "0000000f"};
  const auto function = [](std::uint8_t bus) {
    return PciFunction{{0, bus, 0, 0}, 0x060400, 1, 2, 3, 4, "16.0 GT/s PCIe", 16};
  };
  PciSwitchInfo pci_switch{{*BusId::parse("0000:09:00.0")}};
  GpuInfo gpu;
  gpu.device = 1, gpu.rank = 2, gpu.compute_capability = 90, gpu.partition = 0, gpu.gcn_arch = "gfx942";
  gpu.nvlinks = {{*BusId::parse("0000:07:00.0"), 2, 0x068000, true}};
  gpu.c2c = {{1000, 4}}, gpu.p2p_denied = {3}, gpu.first_cpu = 1, gpu.cpu_count = 2;
  NetInfo net{"mlx5_0", 0, 200'000, 1, 0xabc, 1.5, 7, false, false, 3, 1, true, false, false};
  return {{cpu, kNoNode, 0, std::nullopt},
          {pci_switch, 0, 0, function(1)},
          {gpu, 1, 0, function(2)},
          {NicInfo{}, 1, 0, function(3)},
          {net, 3, 0, std::nullopt}};
}

TEST(Differences, AreFoundInEveryField) {
  using Change = void (*)(std::vector<Node>&);
#define LOOM_CHANGE(kind, at, change)                           \
  [](std::vector<Node>& nodes) {                                \
    [[maybe_unused]] auto& it = std::get<kind>(nodes[at].info); \
    change;                                                     \
  }
  const std::vector<Change> changes = {
    LOOM_CHANGE(CpuInfo, 0, it.numa_id = 1),
    LOOM_CHANGE(CpuInfo, 0, it.arch = "arm64"s),
    LOOM_CHANGE(CpuInfo, 0, it.vendor = "X"s),
    LOOM_CHANGE(CpuInfo, 0, it.family = 7),
    LOOM_CHANGE(CpuInfo, 0, it.model = 1),
    LOOM_CHANGE(CpuInfo, 0, it.affinity = "0000000e"s),
    LOOM_CHANGE(PciSwitchInfo, 1, it.peers[0].function = 1),
    LOOM_CHANGE(PciSwitchInfo, 1, it.peers.clear()),
    LOOM_CHANGE(GpuInfo, 2, it.device = 0),
    LOOM_CHANGE(GpuInfo, 2, it.rank = kNoRank),
    LOOM_CHANGE(GpuInfo, 2, it.compute_capability = 80),
    LOOM_CHANGE(GpuInfo, 2, it.gpu_direct = true),
    LOOM_CHANGE(GpuInfo, 2, it.partition = 1),
    LOOM_CHANGE(GpuInfo, 2, it.partition.reset()),
    LOOM_CHANGE(GpuInfo, 2, it.gcn_arch = "gfx943"s),
    LOOM_CHANGE(GpuInfo, 2, it.nvlinks[0].target.bus = 6),
    LOOM_CHANGE(GpuInfo, 2, it.nvlinks[0].count = 3),
    LOOM_CHANGE(GpuInfo, 2, it.nvlinks[0].target_class = 0x068001),
    LOOM_CHANGE(GpuInfo, 2, it.nvlinks[0].target_class = 0),
    LOOM_CHANGE(GpuInfo, 2, it.nvlinks[0].target_seen = false),
    LOOM_CHANGE(GpuInfo, 2, it.c2c[0] = (C2cLinks{2000, 2})),
    LOOM_CHANGE(GpuInfo, 2, it.c2c[0].count = 1),
    LOOM_CHANGE(GpuInfo, 2, it.p2p_denied = {4}),
    LOOM_CHANGE(GpuInfo, 2, it.is_virtual = true),
    LOOM_CHANGE(GpuInfo, 2, it.first_cpu = 0),
    LOOM_CHANGE(GpuInfo, 2, it.cpu_count = 1),
    LOOM_CHANGE(NetInfo, 4, it.name = "mlx5_1"s),
    LOOM_CHANGE(NetInfo, 4, it.device = 1),
    LOOM_CHANGE(NetInfo, 4, it.speed_mbps = 1),
    LOOM_CHANGE(NetInfo, 4, it.port = 2),
    LOOM_CHANGE(NetInfo, 4, it.guid = 1),
    LOOM_CHANGE(NetInfo, 4, it.guid.reset()),
    LOOM_CHANGE(NetInfo, 4, it.latency_us = 2),
    LOOM_CHANGE(NetInfo, 4, it.max_connections = 8),
    LOOM_CHANGE(NetInfo, 4, it.gpu_direct = true),
    LOOM_CHANGE(NetInfo, 4, it.collectives = true),
    LOOM_CHANGE(NetInfo, 4, it.rail = 0),
    LOOM_CHANGE(NetInfo, 4, it.plane = 0),
    LOOM_CHANGE(NetInfo, 4, it.is_net = false),
    LOOM_CHANGE(NetInfo, 4, it.is_gin = true),
    LOOM_CHANGE(NetInfo, 4, it.is_rma = true),
    LOOM_CHANGE(NicInfo, 3, nodes[3].pci->bus_id.domain = 1),
    LOOM_CHANGE(NicInfo, 3, nodes[3].pci->class_code = 1),
    LOOM_CHANGE(NicInfo, 3, nodes[3].pci->vendor = 9),
    LOOM_CHANGE(NicInfo, 3, nodes[3].pci->device = 9),
    LOOM_CHANGE(NicInfo, 3, nodes[3].pci->subsystem_vendor = 9),
    LOOM_CHANGE(NicInfo, 3, nodes[3].pci->subsystem_device = 9),
    LOOM_CHANGE(NicInfo, 3, nodes[3].pci->link_width = 8),
    LOOM_CHANGE(NicInfo, 3, nodes[3].pci->link_speed = "16 GT/s"s),
    LOOM_CHANGE(NicInfo, 3, nodes[3].parent = 0),
    LOOM_CHANGE(NicInfo, 3, std::swap(nodes[2], nodes[3]); nodes[4].parent = 2)
  };
#undef LOOM_CHANGE
  const System before = build_system(everything(), {0}).system;
  EXPECT_TRUE(differences(before, build_system(everything(), {0}).system).empty());
  for (std::size_t i = 0; i < changes.size(); ++i) {
    std::vector<Node> nodes = everything();
    changes[i](nodes);
    const System after = build_system(std::move(nodes), {0}).system;
    EXPECT_NE(before, after) << "change " << i;
    EXPECT_FALSE(differences(before, after).empty()) << "change " << i;
    EXPECT_FALSE(differences(after, before).empty()) << "change " << i << " undone";
  }
  EXPECT_THAT(lines_of(differences(before, build_system(everything(), {7}).system)),
              ::testing::ElementsAre("~ host: host_hash is \"0x7\", was \"0x0\""));
  EXPECT_THAT(differences(before, build_system(everything(), {0}, Model::kNccl).system),
              ::testing::Not(::testing::IsEmpty()));
}

TEST(Differences, OfOneHostAndSeveralAreAboutTheOthers) {
  std::vector<Node> two = everything();
  for (Node node : everything()) {
    node.host = 1, node.parent += node.parent == kNoNode ? 0 : 5;
    if (auto* gpu = std::get_if<GpuInfo>(&node.info)) gpu->rank = 3;
    two.push_back(std::move(node));
  }
  const auto lines =
      lines_of(differences(build_system(everything(), {0}).system, build_system(two, {0, 1}).system));
  EXPECT_THAT(lines, Contains("+ NUMA 0 (host 1)"));
  EXPECT_THAT(lines, ::testing::Not(Contains(HasSubstr("(host 0)"))));
}

}  // namespace
}  // namespace loom::tools
