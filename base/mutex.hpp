// mutex.hpp -- std::mutex as clang's thread safety analysis knows it: a build with clang and -Wthread-safety
// finds uses of guarded data without their lock (clang.llvm.org/docs/ThreadSafetyAnalysis.html). Other
// compilers see std::mutex.
#pragma once

#include <mutex>

#if defined(__clang__)
#define LOOM_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define LOOM_THREAD_SAFETY(attribute)
#endif
/// Of a member: read and written under this mutex alone.
#define LOOM_GUARDED_BY(mutex) LOOM_THREAD_SAFETY(guarded_by(mutex))
/// Of a function: its caller holds the mutex.
#define LOOM_REQUIRES(mutex) LOOM_THREAD_SAFETY(requires_capability(mutex))

namespace loom {

/// Also for std::condition_variable_any.
class LOOM_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  void lock() LOOM_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void unlock() LOOM_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  bool try_lock() LOOM_THREAD_SAFETY(try_acquire_capability(true)) { return mutex_.try_lock(); }

  /// For the analysis: a library calls back while this thread holds the mutex. Does nothing.
  void is_held() const LOOM_THREAD_SAFETY(assert_capability(this)) {}

 private:
  std::mutex mutex_;
};

/// As std::lock_guard.
class LOOM_THREAD_SAFETY(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) LOOM_THREAD_SAFETY(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  MutexLock(Mutex& mutex, std::adopt_lock_t) LOOM_REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() LOOM_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace loom
