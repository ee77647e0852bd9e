#!/usr/bin/env bash
# check_locks.sh ROOT CLANG++ ARGUMENT... -- clang's thread safety analysis finds no use of guarded data without its
# mutex (base/mutex.hpp) in loom's libraries, and finds one in a sample. Exit code 77: this clang has no C++20.
set -euo pipefail
root=$1
shift
analyse=("$@" -std=c++20 -fsyntax-only -Wno-everything -Wthread-safety -Werror=thread-safety "-I$root")

sample=$(mktemp --suffix=.cpp)
trap 'rm -f "$sample"' EXIT
echo '#include <concepts>' >"$sample"
"${analyse[@]}" "$sample" || { echo "SKIPPED: $1 does not compile C++20"; exit 77; }
cat >"$sample" <<'CODE'
#include "base/mutex.hpp"
loom::Mutex mutex;
int guarded LOOM_GUARDED_BY(mutex) = 0;
int under_lock() { const loom::MutexLock lock(mutex); return guarded; }
#ifdef WRONG
int without_lock() { return guarded; }
#endif
CODE
"${analyse[@]}" "$sample"
! "${analyse[@]}" -DWRONG "$sample" 2>/dev/null || { echo "the analysis does not find a use without the lock"; exit 1; }

cd "$root"
# Guarded members are private: the file beside their header uses them.
mapfile -t files < <(grep -rl --include='*.[ch]pp' LOOM_GUARDED_BY component device ucx_transport | sed 's/\.hpp$/.cpp/' | sort -u)
(( ${#files[@]} > 0 )) || { echo "no data are guarded"; exit 1; }
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 "${analyse[@]}"
echo "${#files[@]} files: guarded data are used under their lock"
