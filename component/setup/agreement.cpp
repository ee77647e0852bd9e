#include "component/setup/agreement.hpp"

#include <cstring>

#include "base/format.hpp"

namespace loom {
namespace {

constexpr std::uint64_t kOwnCause = std::uint64_t{1} << 32;  // counts for more than what was heard of others

/// A cause, in words: all ranks but one send zeros for the text.
struct Cause {
  std::uint64_t others;  ///< not 0: other ranks have stepped aside, too
  char host[64], text[448];
};
using CauseWords = std::array<std::uint64_t, sizeof(Cause) / sizeof(std::uint64_t)>;

template <std::size_t N>
void copy_text(char (&to)[N], const char* from) {
  std::strncpy(to, from, N - 1);
}

}  // namespace

Agreement::Words Agreement::largest(const Words& mine) {
  const std::array<std::uint64_t, 3> words{0, mine[0], mine[1]};
  sent_.to_all += sizeof(words);
  const auto all = bootstrap_.largest(words);
  if (all[0] != 0) throw SteppedAside{all[0]};
  return {all[1], all[2]};
}

std::vector<std::byte> Agreement::all_gather_slices(std::vector<std::byte> mine) {
  using Bytes = std::vector<std::byte>;
  const std::size_t bytes = mine.size();
  Bytes all(bytes * static_cast<std::size_t>(bootstrap_.size()));
  auto memory = std::make_unique<Gathered<Bytes, std::byte>>(
      Gathered<Bytes, std::byte>{std::move(mine), std::move(all)});
  gather(memory, memory->mine.data(), memory->all.data(), bytes);
  return std::move(memory->all);
}

GatheredBytes Agreement::all_gather_bytes(std::vector<std::byte> mine) {
  mine.resize(largest({mine.size(), 0})[0]);
  const std::size_t stride = mine.size();
  return {all_gather_slices(std::move(mine)), stride};
}

GatheredBytes Agreement::gather_bytes_from(const Peers& peers, std::vector<std::byte> mine) {
  using Bytes = std::vector<std::byte>;
  mine.resize(std::max<std::size_t>(largest({mine.size(), 0})[0], 1));  // not nothing
  const std::size_t stride = mine.size();
  auto memory = std::make_unique<FromPeers<Bytes, std::byte>>(
      FromPeers<Bytes, std::byte>{std::move(mine), Bytes(peers.size() * stride), peers});
  gather_from(memory, memory->mine.data(), stride);
  return {std::move(memory->all), stride, std::move(memory->peers)};
}

void Agreement::step_aside(const char* cause, bool heard, Failure* failure) {
  // The lowest rank's mark is the largest, among those with a cause of their own if there are any.
  const std::uint64_t mine =
      (heard ? 0 : kOwnCause) + static_cast<std::uint64_t>(bootstrap_.size() - bootstrap_.rank());
  const auto all = bootstrap_.largest(std::array<std::uint64_t, 3>{mine, 0, 0});
  explain(all[0], mine, *cause != '\0' ? cause : "unknown", failure);
}

void Agreement::explain(std::uint64_t mark, std::uint64_t my_mark, const char* cause, Failure* failure) {
  Cause mine{};
  mine.others = my_mark != 0 && my_mark != mark;
  if (mark == my_mark) {
    copy_text(mine.text, cause);
    try {
      copy_text(mine.host, process_.host_name().c_str());
    } catch (const std::exception&) {
      copy_text(mine.host, "?");
    }
  }
  CauseWords words;
  std::memcpy(words.data(), &mine, sizeof(mine));
  words = bootstrap_.largest(words);
  if (bootstrap_.rank() != 0) return;
  Cause shown{};
  std::memcpy(&shown, words.data(), sizeof(shown));

  Failure own;
  Failure& said = failure != nullptr ? *failure : own;
  static_assert(sizeof(said.text) >= sizeof(shown.host) + sizeof(shown.text) + 128);
  const int ranks = bootstrap_.size();
  const auto rank = static_cast<std::uint64_t>(ranks) - mark % kOwnCause;
  loom::format_into(said.where, "{} ({} {})", bootstrap_.name(), ranks, ranks == 1 ? "rank" : "ranks");
  loom::format_into(said.text, "Rank {} on host {}{}: {}", rank, shown.host,
                    shown.others != 0 ? " (and others)" : "", shown.text);
  if (failure == nullptr) process_.runtime().show(LOOM_MESSAGE_DECLINED, said.where, said.text);
}

}  // namespace loom
