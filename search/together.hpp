// together.hpp -- inside search: the parts of a machine planned at the same time, where they share links.
#pragma once

#include <memory>
#include <span>

#include "search/channel_plan.hpp"
#include "search/path_tables.hpp"

namespace loom::search {

/// Channels for all parts that carry most at the same time, the same in each: the total is of one part. Under
/// the loosest limits. `requests`: one for each part, of one pattern. No channels where a part has none.
std::vector<ChannelPlan> plan_together(std::span<const std::unique_ptr<PartOfMachine>> parts,
                                       std::span<const Request> requests);

}  // namespace loom::search
