// together.hpp -- inside search: the parts of a machine planned at the same time, where they share links.
#pragma once

#include <memory>
#include <span>

#include "search/channel_plan.hpp"
#include "search/path_tables.hpp"

namespace loom::search {

/// Puts channels that carry most at the same time, the same in each, into `plans`, which has each part's
/// alone; with the bound of that, and its proof. Under the loosest limits. `requests`: one for each part, of
/// one pattern. Parts in simple order stay as they are: they claim nothing.
void plan_together(std::span<const std::unique_ptr<PartOfMachine>> parts, std::span<const Request> requests,
                   std::vector<ChannelPlan>& plans);

}  // namespace loom::search
