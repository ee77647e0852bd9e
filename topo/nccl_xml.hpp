// nccl_xml.hpp -- Systems from and to NCCL's topology XML, the dialect that clouds ship and
// NCCL_TOPO_DUMP_FILE writes.
//
// system > cpu > pci > (pci | gpu > (nvlink | c2c) | nic > net | pcilink); a nic may sit directly under a
// cpu. AMD's dialect (version 2, xgmi for nvlink) is read as well. Prologs, comments and line breaks are
// allowed anywhere.
#pragma once

#include <string>

#include "topo/system.hpp"

namespace loom::topo {

/// `path`: of the file. Throws Error (kBadInput): "<file>:<line>: <element>: ..." with what is wrong. Unknown
/// elements and attributes are passed over with a note.
SystemWithNotes read_nccl_xml(const std::string& path, Model model = Model::kLoom);
/// The same from memory; `name` takes the file's place in messages.
SystemWithNotes parse_nccl_xml(std::string text, const std::string& name, Model model = Model::kLoom);

/// Parsing the result gives an equal System. Throws Error (kBadInput) if `system` has virtual GPUs, for which
/// NCCL has no word.
std::string to_nccl_xml(const System& system);

}  // namespace loom::topo
