// finding.hpp -- what `loom doctor` finds: a line each, and what to do about it.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace loom::tools {

enum class Verdict {
  kFine,
  kWarning,  ///< loom runs, but not as fast as it could, not for everything, or not without more to type
  kFails,    ///< loom will not run, or the job will not
};
constexpr const char* name_of(Verdict verdict) {
  return verdict == Verdict::kFine ? "fine" : verdict == Verdict::kWarning ? "warning" : "fails";
}

struct Finding {
  Verdict verdict;
  std::string topic;  ///< one or two words
  std::string what;
  std::string cure;  ///< what to do; empty where it is fine

  bool operator==(const Finding&) const = default;
};

/// Topics that are looked for: whether loom is on, whether Open MPI finds the plugin, and what ranks share.
inline constexpr const char *kEnabledTopic = "enabled", *kPluginTopic = "plugin",
                            *kSharedMemoryTopic = "shared memory";

class Findings {
 public:
  void fine(std::string topic, std::string what) {
    all_.push_back({Verdict::kFine, std::move(topic), std::move(what), ""});
  }
  void warn(std::string topic, std::string what, std::string cure) {
    all_.push_back({Verdict::kWarning, std::move(topic), std::move(what), std::move(cure)});
  }
  void fails(std::string topic, std::string what, std::string cure) {
    all_.push_back({Verdict::kFails, std::move(topic), std::move(what), std::move(cure)});
  }
  /// Of mpirun: without them no rank runs loom.
  void need_options(std::string options) { options_ = std::move(options); }
  /// A warning about this has turned out to be the cause of a failure. False: there is none.
  bool turn_to_failure(const std::string& topic, const std::string& failure) {
    for (Finding& finding : all_) {
      if (finding.topic != topic || finding.verdict != Verdict::kWarning) continue;
      finding.verdict = Verdict::kFails;
      finding.what += "; " + failure;
      return true;
    }
    return false;
  }
  void add(Finding finding) { all_.push_back(std::move(finding)); }
  const std::vector<Finding>& all() const { return all_; }
  const std::string& options() const { return options_; }
  std::size_t count(Verdict verdict) const {
    return static_cast<std::size_t>(std::ranges::count(all_, verdict, &Finding::verdict));
  }

 private:
  std::vector<Finding> all_;
  std::string options_;
};

}  // namespace loom::tools
