// search_views.hpp -- channel plans for people and programs: text, JSON, a picture.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "search/channel_plan.hpp"
#include "search/path_tables.hpp"

namespace loom::tools {

/// A machine's plans under one request, with what the search took once the tables of paths were made.
struct SearchResult {
  search::Request request;
  search::NodePlans plans;
  double search_us = 0;
};

SearchResult timed_search(const search::PathTables& tables, const search::Request& request);
/// All parts have channels, or none has.
bool has_channels(const search::NodePlans& plans);

/// "ring: 6 channels, 120 GB/s of at most 120 (100 %), NVL, ..." and a line for each channel.
std::string plan_text(const search::PathTables& tables, const SearchResult& result);
/// Each limit that was tried and its result, the chosen ones last; and why no channels carry more.
std::string explanation(const search::PathTables& tables, const SearchResult& result);
/// The fields of docs/search.md for each part; with `explain` also the limits that were tried and the proof
/// of the bound, with `check` what the validator says.
nlohmann::json to_json(const search::PathTables& tables, const SearchResult& result, bool explain,
                       bool check);
/// What has a price, by name: "GPU 0 -> GPU 1 (NVL)".
std::string label(const topo::System& system, const search::Proof::Price& entry);
nlohmann::json to_json(const topo::System& system, const search::Proof& proof);
/// The picture of `system` with the channels laid over it, one colour each, and what each link carries.
std::string channels_svg(const search::PathTables& tables, const topo::System& system,
                         const SearchResult& result, const std::string& title);

}  // namespace loom::tools
