// together_few.cpp -- Together: no more channels than are asked for.
#include <algorithm>

#include "search/joint_search.hpp"

namespace loom::search {
namespace {

constexpr double kLeastShare = 1e-5;  // of the total: channels below are rounding

}  // namespace

/// The widest columns of a part; where there are too many channels, without half of what is too many. True:
/// all of them.
bool Together::keep_widest(std::size_t part, std::vector<const Column*>& kept) {
  Packed& packed = parts_[part]->packed;
  std::stable_sort(packed.columns.begin(), packed.columns.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  const auto most = static_cast<std::size_t>(parts_[part]->request.max_channels);
  std::size_t count = 0;
  for (const auto& [column, gbps] : packed.columns) count += column->orders.size();
  const std::size_t target = count > most ? count - (count - most + 1) / 2 : count;
  kept.clear();
  count = 0;
  for (const auto& [column, gbps] : packed.columns)
    if (count + column->orders.size() <= target && gbps >= kLeastShare * packed.total)
      kept.push_back(column), count += column->orders.size();
  return kept.size() == packed.columns.size();
}

/// The best amounts of these columns, without the thinnest as long as there are too many channels.
void Together::pack_few(Columns columns) {
  for (bool all = false; !all;) {
    joints_.clear();
    packing_ = std::make_unique<Packing>(capacities_, steps_);
    pack(std::move(columns));
    columns.assign(parts_.size(), {});
    all = take_packed(columns);
  }
}

/// True: all fit into the channels that are asked for. `kept`: those that do.
bool Together::take_packed(Columns& kept) {
  bool all = true;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    parts_[i]->packed = packed_of(i);
    all = keep_widest(i, kept[i]) && all;
  }
  return all;
}

/// At most as many channels as are asked for: of those found, or those of each part alone.
void Together::limit() {
  Columns kept(parts_.size()), alone(parts_.size());
  if (take_packed(kept)) return;
  pack_few(std::move(kept));
  const double total = total_;
  std::vector<Packed> packed;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    packed.push_back(parts_[i]->packed);
    for (std::size_t k = 0; k < parts_[i]->alone; ++k) alone[i].push_back(parts_[i]->columns[k].get());
  }
  pack_few(std::move(alone));
  if (total_ <= total * (1 + Search::kSame)) {
    total_ = total;
    for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i]->packed = std::move(packed[i]);
  }
  exchange();
}

/// The columns of a part that each take all they can of what the ones before left, the widest first.
std::vector<const Column*> Together::widest_in(const Part& part, std::vector<double> left) {
  std::vector<const Column*> kept;
  const auto most = static_cast<std::size_t>(part.request.max_channels);
  for (std::size_t count = 0; count < most && !steps_.are_spent();) {
    const Column* widest = nullptr;
    double gbps = 0;
    for (const auto& column : part.columns) {
      steps_.take(static_cast<std::int64_t>(column->loads.size()));
      if (count + column->orders.size() > most) continue;
      const double width = width_in(left, column->loads) * column->channels();
      if (width > gbps * (1 + Search::kSame)) widest = column.get(), gbps = width;
    }
    if (widest == nullptr) break;
    take_from(left, widest->loads, gbps / widest->channels());
    kept.push_back(widest);
    count += widest->orders.size();
  }
  return kept;
}

/// One part after the other gets the widest columns in what the others leave, as long as that helps.
void Together::exchange() {
  for (bool helps = true; helps;) {
    helps = false;
    for (std::size_t i = 0; i < parts_.size() && !steps_.are_spent(); ++i) {
      const double total = total_;
      std::vector<Packed> packed;
      Columns columns(parts_.size());
      for (std::size_t k = 0; k < parts_.size(); ++k) {
        packed.push_back(parts_[k]->packed);
        for (const auto& [column, gbps] : packed[k].columns) columns[k].push_back(column);
      }
      columns[i] = widest_in(*parts_[i], left_for(*parts_[i]));
      if (columns[i].empty()) continue;
      pack_few(std::move(columns));
      if (total_ > total * (1 + Search::kSame)) {
        helps = true;
        continue;
      }
      total_ = total;
      for (std::size_t k = 0; k < parts_.size(); ++k) parts_[k]->packed = std::move(packed[k]);
    }
  }
}

}  // namespace loom::search
