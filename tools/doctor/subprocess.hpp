// subprocess.hpp -- runs another program, and takes what it says.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace loom::tools {

struct Ended {
  static constexpr int kNotStarted = -1, kTookTooLong = -2;
  int exit_code = kNotStarted;  ///< 128 and more: by a signal
  std::string out, err;
};

/// The program is looked for in PATH. environment: "NAME=value", beside this process's. Its stdin is empty.
/// Over its time limit it is asked to end, and 3 s later killed, with its process group.
Ended run(const std::vector<std::string>& command, std::chrono::seconds limit,
          const std::vector<std::string>& environment = {});

}  // namespace loom::tools
