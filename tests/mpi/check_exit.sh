#!/usr/bin/env bash
# check_exit.sh CODE TEXT COMMAND... -- the command ends with this exit code, and its output contains TEXT.
set -euo pipefail
code=$1 text=$2
shift 2
rc=0
output=$("$@" 2>&1) || rc=$?
printf '%s\n' "$output"
if [[ $rc -ne $code ]]; then
  echo "check_exit: the exit code is $rc, expected $code" >&2
  exit 1
fi
if [[ $output != *"$text"* ]]; then
  echo "check_exit: the output does not contain: $text" >&2
  exit 1
fi
