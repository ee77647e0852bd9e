#include "component/setup/member.hpp"

#include <span>

#include "base/format.hpp"

namespace loom {

void SetUpTimes::note(const char* part, Agreement& agreement) noexcept {
  const Clock::time_point now = Clock::now();
  parts_[count_++] = {part, agreement.take_sent(),
                      std::chrono::duration<double, std::milli>(now - began_).count()};
  began_ = now;
}

std::string SetUpTimes::text() const {
  const std::span parts(parts_.data(), count_);
  double sum = 0;
  for (const Part& part : parts) sum += part.milliseconds;
  std::string text = loom::format("{:.1f} ms:", sum);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [name, sent, milliseconds] = parts[i];
    text += loom::format("{} {} {:.1f} ms ({} bytes from each rank", i == 0 ? "" : ",", name, milliseconds,
                         sent.to_all);
    if (sent.to_peers > 0) text += loom::format(", {} to neighbours", sent.to_peers);
    text += ")";
  }
  return text;
}

Member::Member(const Bootstrap& with, Process& of)
    : process(of),
      name(with.name()),
      watch(of.runtime().parameters.timeout_s),
      bootstrap(with),
      rank(with.rank()),
      where(loom::format("rank {} of {} of {} on host {}", rank, with.size(), name, of.host_name())) {
  watch.look_after(group);
  exchange_through(with);
}

}  // namespace loom
