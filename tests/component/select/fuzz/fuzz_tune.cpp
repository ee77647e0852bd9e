// fuzz_tune.cpp -- any text as coll_loom_tune: it gives rules that can be asked anything, or an Error that
// says what is wrong, never a crash. Without libFuzzer tests/replay.cpp runs it over files.
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "component/select/tune.hpp"
#include "tests/must.hpp"

namespace {

using namespace loom;

void ask(const Tune& tune) {
  const auto all = [](Algorithm) { return true; };
  const auto none = [](Algorithm) { return false; };
  for (std::size_t c = 0; c < device::kCollectiveCount; ++c) {
    const auto collective = static_cast<device::Collective>(c);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{1} << 40, ~std::size_t{0}}) {
      const std::optional<Algorithm> wanted = tune.wanted(collective, bytes, all);
      must(!wanted || *wanted == Algorithm::kFallback || *wanted == Algorithm::kStaged || has_row(*wanted),
           "an algorithm is none");
      must(!tune.wanted(collective, bytes, none), "a rule is kept that cannot be");
      tune.on_devices(collective, bytes, all);
      tune.probes(collective, bytes);
    }
    for (const std::size_t limit : tune.limits(collective))
      must(limit > 0 && limit < ~std::size_t{0}, "a range ends nowhere");
  }
  tune.without_effect({.shape = {.ranks = 4, .hosts = 2, .ranks_per_host = 2}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const Tune tune = Tune::parse(text, "input");
    ask(tune);
    Tune twice = tune;
    twice.append(tune);
    ask(twice);
    must(Tune::parse(text, "input").mark() == tune.mark(), "equal rules have different marks");
  } catch (const Error& error) {
    must(error.code() == ErrorCode::kBadInput, error.what());
    must(std::string(error.what()).find("input") != std::string::npos, "a message does not say where");
  }
  return 0;
}
