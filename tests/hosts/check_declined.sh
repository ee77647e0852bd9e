#!/usr/bin/env bash
# check_declined.sh TRANSPORTS COMMAND... -- with UCX confined to TRANSPORTS the command succeeds, and loom says
# that it stepped aside, and why.
set -euo pipefail
export UCX_TLS=$1
shift
rc=0
output=$("$@" 2>&1) || rc=$?
printf '%s\n' "$output"
[[ $rc -eq 0 ]] || exit "$rc"
if ! grep -q 'loom cannot connect' <<<"$output"; then
  echo "check_declined: loom did not say that it stepped aside" >&2
  exit 1
fi
if ! grep -q 'Cause:.*UCX_TLS' <<<"$output"; then
  echo "check_declined: the message does not name the cause, UCX_TLS" >&2
  exit 1
fi
