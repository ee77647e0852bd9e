#!/usr/bin/env bash
# check_loom_plot.sh -- `loom plot` on the command line: where the picture goes. Usage: check_loom_plot.sh LOOM
set -euo pipefail
loom=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/a.json" <<'JSON'
{"program": "loom_bench", "format": 1, "environment": {"ranks": 2, "hosts": [{"name": "a", "ranks": 2}]},
 "options": {"collective": "bcast", "form": "blocking", "memory": "host"},
 "results": [{"size_bytes": 8, "measured": {"p50_us": 1}, "peers": {"tuned": {"p50_us": 2}}}]}
JSON
"$loom" plot "$work/a.json" | grep -q '<svg'
"$loom" plot "$work/a.json" -o "$work/a.svg" | { ! grep .; }
grep -q '<svg' "$work/a.svg"

# on a terminal
command -v script >/dev/null || { echo "skipped: no script(1) makes a terminal here"; exit 77; }
on_terminal() { script --quiet --return --command "$1" "$work/typescript" </dev/null >"$work/out"; }
if on_terminal "'$loom' plot '$work/a.json'"; then echo "a picture on a terminal" >&2; exit 1; fi
grep -q 'which a terminal does not show: -o out.svg' "$work/out" || { cat "$work/out" >&2; exit 1; }
on_terminal "'$loom' plot '$work/a.json' -o -"
grep -q '<svg' "$work/out"
