#!/usr/bin/env bash
# check_scripts.sh SOURCE -- what scripts make of their arguments, where programs that only pretend stand for cmake and ctest.
set -euo pipefail
source_dir=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# expect CODE STREAM TEXT COMMAND...: the exit code, and what is in one of out and err.
expect() {
  local code=$1 stream=$2 text=$3 got=0
  "${@:4}" >out 2>err </dev/null || got=$?
  [[ $got -eq $code && $(<"$stream") == *"$text"* ]] && return
  printf '%s: exit code %d, expected %d and "%s" on std%s:\n' "${*:4}" "$got" "$code" "$text" "$stream" >&2
  cat out err >&2
  exit 1
}

expect 0 out 'scripts/bench/simulation [--build DIR]' "$source_dir/scripts/bench/simulation" --help
expect 2 err "unknown option '--dance'" "$source_dir/scripts/bench/simulation" --dance
if command -v python3 >/dev/null; then
  expect 0 out 'virtual-wire PORTS DELAY-US' "$source_dir/scripts/hosts/virtual-wire" --help
  for arguments in --dance '3 5' '3 x 0' '3 5 0 1'; do
    # shellcheck disable=SC2086
    expect 2 err 'it takes PORTS' "$source_dir/scripts/hosts/virtual-wire" $arguments
  done
fi

# Folders and files are those of the caller's folder.
mkdir bin mine
cat >bin/ctest <<'EOF'
#!/usr/bin/env bash
while [[ $1 != --output-junit ]]; do shift; done
echo '<testsuite name="all" tests="1" failures="0" disabled="0" skipped="0">' >"$2"
EOF
printf '#!/bin/sh\n' >bin/cmake
chmod +x bin/*
for build in "$work/mine" mine ./mine/../mine; do
  rm -rf mine/*
  PATH=$work/bin:$PATH expect 1 out '1 passed, 1 failed' "$source_dir/scripts/test-gpu" --build "$build" --bench results.txt
  [[ -e mine/logs/junit.xml && -e results.txt ]] || { echo "--build $build: nothing in $work" >&2; exit 1; }
done

# Libraries of the caller, such as another UCX, stay in reach.
if grep -rnE -- '-x LD_LIBRARY_PATH="[^"]*"' "$source_dir/scripts" | grep -v ':+:'; then
  echo "these replace LD_LIBRARY_PATH" >&2
  exit 1
fi
