#!/usr/bin/env bash
# check_declined.sh CAUSE COMMAND... -- the command succeeds, and loom says that it fell back, and names the
# cause.
set -euo pipefail
cause=$1
shift
rc=0
output=$("$@" 2>&1) || rc=$?
printf '%s\n' "$output"
[[ $rc -eq 0 ]] || exit "$rc"
if ! grep -q 'loom cannot set up a communicator' <<<"$output"; then
  echo "check_declined: loom did not say that it fell back" >&2
  exit 1
fi
if ! grep -q "Cause:.*$cause" <<<"$output"; then
  echo "check_declined: the message does not name the cause, $cause" >&2
  exit 1
fi
