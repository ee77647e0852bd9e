// machine_file.hpp -- the file of a machine, as the command line names it.
#pragma once

#include <string>

#include "topo/hwloc_xml.hpp"
#include "topo/xml_file.hpp"

namespace loom::tools {

/// Of either dialect; "-": from stdin. Throws Error (kBadInput).
inline topo::SystemWithNotes read_machine_file(const std::string& path, topo::Model model) {
  return path == "-" ? topo::parse_system(topo::read_text_file("/dev/stdin"), "stdin", model)
                     : topo::read_system(path, model);
}

/// "dgx.xml" of any folder, "stdin".
inline std::string file_name(const std::string& path) {
  return path == "-" ? "stdin" : path.substr(path.rfind('/') + 1);
}

}  // namespace loom::tools
