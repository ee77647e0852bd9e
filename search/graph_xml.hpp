// graph_xml.hpp -- channels from and to NCCL's graph XML, which NCCL_GRAPH_FILE reads and
// NCCL_GRAPH_DUMP_FILE writes.
//
// graphs (version 1) > graph (id, pattern, crossnic, nchannels, speedintra, speedinter, latencyinter,
// typeintra, typeinter, samechannels) > channel > net (dev) where there are several nodes, gpu (dev, rank) in
// order, net (dev). Patterns with heads list the head alone. `dev` is the host's index << 56 | the device's
// number on it; a rank wins over it. Our channels may be unequal: those that are not as fast as their graph
// says have speedintra and speedinter themselves, which NCCL passes over; the graph then says the mean. NCCL
// has no name for paths of type C2C and takes ours for LOC. Parts of a node are graphs with one id; heads of
// a part say with `gpus` how many GPUs it has. Where several ports of a host have one number, `copy` says
// which, from 0.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "search/channel_plan.hpp"
#include "search/path_tables.hpp"

namespace loom::search {

/// The plans of a file, one for each pattern in it, on the machine of `tables`. What the search would have
/// found out is not there: attempts, steps; `bound_gbps` is what enters and leaves GPUs and ports
/// (prove_bounds() has better ones). With `nodes` > 1 channels must have ports. Throws Error (kBadInput):
/// "<file>:<line>: <element>: ...", where the file is none of this kind, has no channels or does not fit the
/// machine: GPUs or ports that it does not have, GPUs left out or twice, links charged beyond what they
/// carry, also by several parts at the same time.
std::vector<NodePlans> read_graph_xml(const std::string& path, const PathTables& tables, int nodes = 1);
/// The same from memory; `name` takes the file's place in messages.
std::vector<NodePlans> parse_graph_xml(std::string text, const std::string& name, const PathTables& tables,
                                       int nodes = 1);

/// Parsing the result gives plans with the same channels, to seven digits of their speeds. Left out are plans
/// without channels, those in simple order, which claim nothing that could be checked, and those whose
/// patterns and GPUs an earlier one has: of a GPU alone all trees are one. Where rings cross NICs, rings and
/// trees become one even number of channels, with the same GB/s. Throws Error (kBadInput) where nothing is
/// left, or rings that cross NICs would be more channels than a graph has.
std::string to_graph_xml(const PathTables& tables, std::span<const NodePlans> plans);

/// The machine, or part of it, that part `part` of `plans` is for, by its ranks. Throws Error (kBadInput)
/// where they are no part of the machine.
const PartOfMachine& part_of(const PathTables& tables, const NodePlans& plans, std::size_t part);

}  // namespace loom::search
