// process_watch.hpp -- whether a process of this host is still alive. Slow: for ranks that have waited long.
#pragma once

#include <cstdint>
#include <optional>

namespace loom::device {

/// A process by its id and the time at which it started, so that a reused id is not mistaken for it.
struct ProcessId {
  std::int64_t pid = 0;
  std::uint64_t start_time = 0;  ///< field 22 of /proc/<pid>/stat, clock ticks since boot
};

/// The calling process. start_time is 0 where /proc cannot be read; is_alive then never says no.
ProcessId this_process();

/// A process that tells of itself, as this one finds it: with the start time that it has here, which a time
/// namespace may change. 0 where this process does not see it (hidepid, another user namespace).
ProcessId as_seen_here(const ProcessId& process);

/// false once the process has ended, whether or not its parent has collected it. true where that cannot be
/// found out.
bool is_alive(const ProcessId& process);

/// A thread of the process, other than `except`, that has not ended. Its first thread may have, by
/// pthread_exit(); the kernel then knows the process's memory by the others alone. nullopt: there is none, or
/// that cannot be found out.
std::optional<std::int64_t> living_thread_of(std::int64_t pid, std::int64_t except);

/// By a signal, or by a debugger. false where that cannot be found out.
bool is_stopped(const ProcessId& process);

}  // namespace loom::device
