#include "tests/virtual_gpu/run/launch.hpp"

#include <algorithm>
#include <mutex>
#include <thread>

#include "base/format.hpp"
#include "tests/virtual_gpu/run/block.hpp"

namespace virtual_gpu::run {

Fault::Fault(Kind kind, Place place, const std::string& what)
    : std::runtime_error(loom::format("{}, block ({}, {}, {}), thread ({}, {}, {}), line {}: {}\n{}",
                                      place.kernel, place.block.x, place.block.y, place.block.z,
                                      place.thread.x, place.thread.y, place.thread.z, place.line, place.text,
                                      what)),
      kind_(kind),
      place_(std::move(place)) {}

Program::Program(const ptx::Module& module, const Place& place)
    : code_(std::make_unique<detail::Code>(detail::lower(module, place))) {}
Program::~Program() = default;
Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&&) noexcept = default;

const Entry* Program::find(std::string_view name) const {
  const auto found = std::find_if(code_->entries.begin(), code_->entries.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  return found == code_->entries.end() ? nullptr : &*found;
}
std::span<const Entry> Program::entries() const {
  return code_->entries;
}

bool Company::is_stuck(const void* member) {
  const std::lock_guard lock(mutex_);
  if (const std::uint64_t now = progress_; now != seen_) {
    seen_ = now;
    stuck_.clear();
  }
  ++stuck_[member];  // the first time, part of the spinning may have been before somebody got on
  return std::ranges::count_if(stuck_, [](const auto& each) { return each.second > 1; }) >= members_;
}

namespace {

void check(const Entry& entry, const Launch& launch) {
  constexpr std::size_t kMostThreads = 1024;
  const std::size_t threads = launch.block.count();
  if (launch.grid.count() == 0 || threads == 0 || threads > kMostThreads)
    throw std::invalid_argument(loom::format("{} blocks of {} threads", launch.grid.count(), threads));
  if (entry.most_threads && threads > entry.most_threads->count())
    throw std::invalid_argument(
        loom::format("{} takes {} threads, not {}", entry.name, entry.most_threads->count(), threads));
  if (launch.parameters.size() != entry.parameter_bytes)
    throw std::invalid_argument(loom::format("{} takes {} bytes of parameters, not {}", entry.name,
                                             entry.parameter_bytes, launch.parameters.size()));
}

Dim block_at(const Dim& grid, std::size_t i) {
  return {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
          static_cast<unsigned>(i / grid.x / grid.y)};
}

}  // namespace

void run(const Program& program, const Entry& entry, const Launch& launch, memory::Space& space,
         const Settings& settings, const std::atomic<bool>& stop) {
  check(entry, launch);
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  std::exception_ptr first;
  std::mutex mutex;
  const auto run_blocks = [&] {
    for (std::size_t i = next++; i < launch.grid.count() && !failed; i = next++) {
      const std::uint64_t seed = (settings.seed + 1) * 0x9e3779b97f4a7c15U + i;
      auto view = settings.weak_memory
                      ? memory::weak_view(space, static_cast<unsigned>(launch.block.count()), ~seed)
                      : memory::strong_view(space);
      if (settings.observe) view = settings.observe(std::move(view));
      try {
        detail::Block block(program.code(), entry, launch, settings, block_at(launch.grid, i),
                            std::move(view), seed);
        block.run([&] { return stop.load() || failed.load(); });
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (first == nullptr) first = std::current_exception();
        failed = true;
      }
      if (settings.company != nullptr) settings.company->leave();
    }
  };
  const std::size_t blocks = launch.grid.count();
  Residency* const residency = settings.residency;
  const auto is_over = [&] { return next >= blocks || failed || stop; };
  const auto work = [&] {
    run_blocks();
    if (residency != nullptr) residency->give_back();
  };
  std::size_t workers = 0;
  auto asked = std::chrono::steady_clock::time_point{};
  const auto give_up = [&] {
    if (settings.on_patience_lost && std::chrono::steady_clock::now() - asked > settings.patience) {
      settings.on_patience_lost(loom::format("{}: has waited long for room for more than {} of {} blocks",
                                             entry.name, workers, blocks));
      asked = std::chrono::steady_clock::time_point::max() - settings.patience;  // once
    }
    return is_over();
  };
  std::vector<std::jthread> threads;
  while (workers < blocks && !is_over()) {
    asked = std::chrono::steady_clock::now();
    const std::size_t more = residency != nullptr
                                 ? residency->take(blocks - workers, give_up)
                                 : std::min<std::size_t>(blocks, std::max(1U, settings.resident_blocks));
    workers = residency != nullptr ? workers + more : blocks;
    const bool last = workers == blocks && more > 0;  // this thread has nothing else to do then
    for (std::size_t i = last ? 1 : 0; i < more; ++i) threads.emplace_back(work);
    if (last) work();
    if (more == 0) break;
  }
  threads.clear();
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace virtual_gpu::run
