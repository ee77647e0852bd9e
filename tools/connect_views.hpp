// connect_views.hpp -- a job's channels for people and programs: text, JSON, a picture.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/offline_job.hpp"

namespace loom::tools {

/// Nodes, what they agreed on, what was exchanged.
std::string job_text(const OfflineJob& offline);
/// A line for each channel of a rank.
std::string view_text(const connect::Job& job, const connect::View& view);
/// How near the plugin's kernels come to a forest, of all-gathers: a line.
std::string forest_text(const OfflineJob& offline, const search::Forest& forest);
std::string prediction_text(double bytes, const connect::Prediction& prediction);
/// The heading of prediction_text's columns.
std::string prediction_head();

/// The fields of docs/connect.md.
nlohmann::json to_json(const OfflineJob& offline);
nlohmann::json to_json(const connect::Job& job, const connect::View& view, bool with_orders);
nlohmann::json to_json(const connect::Prediction& prediction);
/// `all_gather_gbps`, of `loom plan`, too.
nlohmann::json to_json(const connect::AllGatherGbps& all_gather);

/// A channel's ring through all ranks, and its two trees over the nodes. Throws as check_picture does.
std::string channel_svg(const OfflineJob& offline, int channel);
/// Throws Error (kBadInput): more than 64 nodes or 1024 ranks, neither a ring nor trees of this number.
void check_picture(const connect::Job& job, int channel);

/// How many nodes are of each kind.
std::vector<int> nodes_of_kinds(const connect::Job& job);

}  // namespace loom::tools
