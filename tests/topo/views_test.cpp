#include "tools/topo_views.hpp"

#include <gmock/gmock.h>

#include "test_data.hpp"
#include "topo/xml.hpp"

namespace loom::tools {
namespace {

using namespace loom::topo;
using ::testing::Contains;
using ::testing::HasSubstr;

System dgx1v() {
  return read_system(data_file("dgx1v.xml")).system;
}

TEST(Matrix, HasARowForEachGpu) {
  const System system = dgx1v();
  const std::string text = matrix_text(Paths(system), {});
  EXPECT_THAT(text, HasSubstr("GPU0                    X       NVL 20       NVL 20       NVL 40       NVB 20 "
                              "      NVB 40       NVL 40       NVB 20       PIX 12"));
  EXPECT_THAT(text, HasSubstr("20-39"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("\033")));
  EXPECT_THAT(matrix_text(Paths(system), terminal_colours()), HasSubstr("\033["));
}

TEST(Tree, ShowsEveryNodeWithItsLinks) {
  const std::string text = tree_text(dgx1v(), {});
  EXPECT_THAT(text, HasSubstr("├─ switch 0000:04:00.0  [PCI 12 GB/s]"));
  EXPECT_THAT(text, HasSubstr("mlx5_3 100 Gbit/s, GPUDirect [NET 12.5 GB/s]"));
  EXPECT_THAT(text, HasSubstr("SYS 6 NUMA 1"));
}

TEST(Pictures, AreWellFormedAndShowEveryGpu) {
  for (const auto& file : all_files()) {
    SCOPED_TRACE(file);
    const System system = read_system(file).system;
    const std::string svg = to_svg(system, "a <title> & more");
    const XmlDocument document(svg, "picture", {.elements = 1'000'000});
    EXPECT_EQ(std::string_view(document.root().name()), "svg");
    std::size_t found = 0;
    for (const pugi::xml_node text : document.root().children("text")) {
      const std::string_view content = text.child_value();
      found += content.starts_with("GPU ") || content.starts_with("VGPU ");
      EXPECT_GE(text.attribute("x").as_double(), 0);
    }
    EXPECT_EQ(found, system.of_kind(NodeKind::kGpu).size());
    EXPECT_THAT(to_dot(system, "t"), ::testing::EndsWith("}\n"));
  }
}

TEST(Json, HasNodesLinksAndPaths) {
  const System system = dgx1v();
  const nlohmann::json out = to_json(system);
  EXPECT_EQ(out["nodes"].size(), static_cast<std::size_t>(system.size()));
  EXPECT_EQ(out["links"].size(), system.links().size());
  const nlohmann::json paths = to_json(Paths(system));
  EXPECT_EQ(paths.size(), 8 * 7 + 8 * 4);
  EXPECT_EQ(paths[0]["type"].get<std::string>(), "NVL");
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
  const auto lines = differences(before, after);
  EXPECT_THAT(lines, Contains("~ mlx5_1: speed_mbps is 200000.0, was 100000.0"));
  EXPECT_THAT(lines, Contains("~ GPU 0: no NVL to GPU 1, was 20 GB/s"));
  EXPECT_THAT(differences(before, read_system(data_file("gh200.xml")).system), Contains("- GPU 7"));
}

}  // namespace
}  // namespace loom::tools
