// fuzz_graph_xml.cpp -- any bytes as a file of channels: they give plans that fit the machine or an Error,
// never a crash. Without libFuzzer tests/replay.cpp runs it over files.
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "search/graph_xml.hpp"
#include "search/validate.hpp"
#include "tests/must.hpp"
#include "topo/nccl_xml.hpp"

namespace {

using namespace loom;
using namespace loom::search;

const std::vector<PathTables>& machines() {
  static const std::vector<PathTables> all = [] {
    std::vector<PathTables> made;
    for (const char* file :
         {LOOM_TEST_DATA "/dgx1v.xml", LOOM_TEST_DATA "/dgxh100.xml", LOOM_TEST_DATA "/pcie-2socket.xml",
          LOOM_SEARCH_DATA "/trays-of-two-one-without-nvlink.xml"})  // has parts
      made.emplace_back(topo::read_nccl_xml(file, topo::Model::kNccl).system);
    return made;
  }();
  return all;
}

void read(const std::string& text, const PathTables& tables) {
  const std::vector<NodePlans> plans = parse_graph_xml(text, "input", tables);
  for (const NodePlans& node : plans)
    for (std::size_t i = 0; i < node.parts.size(); ++i)
      must(violations(part_of(tables, node, i).paths, node.parts[i]).empty(),
           "channels that do not fit were taken");
  const std::string written = to_graph_xml(tables, plans);
  must(to_graph_xml(tables, parse_graph_xml(written, "written", tables)) == written,
       "the XML loses something");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const PathTables& tables : machines()) {
    try {
      read(text, tables);
    } catch (const Error& error) {
      must(error.code() == ErrorCode::kBadInput, error.what());
    }
  }
  return 0;
}
