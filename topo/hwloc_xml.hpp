// hwloc_xml.hpp -- Systems from and to hwloc's XML, which `lstopo machine.xml` writes and `lstopo -i
// machine.xml` shows.
//
// hwloc knows the PCI tree, NUMA nodes and CPUs; with its NVML backend NVLink bandwidths too. What it has no
// word for (ranks, compute capability, speeds of ports, ...) stands in <info> elements whose names begin with
// "loom.".
#pragma once

#include <string>

#include "topo/draft.hpp"
#include "topo/system.hpp"

namespace loom::topo {

/// `path`: of the file, written by hwloc 2 or by to_hwloc_xml. Throws Error (kBadInput): "<file>:<line>:
/// <element>: ..." with what is wrong. What hwloc does not say is assumed, with a note.
SystemWithNotes read_hwloc_xml(const std::string& path, Model model = Model::kLoom);
/// The same from memory; `name` takes the file's place in messages.
SystemWithNotes parse_hwloc_xml(std::string text, const std::string& name, Model model = Model::kLoom);
/// The same without the links, for discovery to add to. Ports whose speed hwloc does not know have speed 0.
Draft draft_from_hwloc_xml(std::string text, const std::string& name);

/// Parsing the result gives an equal System, and hwloc reads it too. Several hosts become one large machine
/// to hwloc.
std::string to_hwloc_xml(const System& system);

/// Reads either dialect, by the outermost element. Throws Error (kBadInput).
SystemWithNotes read_system(const std::string& path, Model model = Model::kLoom);
SystemWithNotes parse_system(std::string text, const std::string& name, Model model = Model::kLoom);

}  // namespace loom::topo
