#!/usr/bin/env bash
# What `loom search` prints, writes and refuses, as its users see it.
#   check_loom_search.sh LOOM FOLDER-OF-MACHINES
set -euo pipefail
loom=$1 data=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "check_loom_search: $*" >&2; exit 1; }

"$loom" search "$data/dgx1v.xml" --explain --check > "$work/text"
grep -q '^ring: .* 120 of at most 120 GB/s, 100.0 %' "$work/text" || fail "rings of a cube mesh"
grep -q 'between GPUs up to NVL: 120 GB/s: taken' "$work/text" || fail "--explain"

"$loom" search "$data/dgxh100.xml" --pattern all --json > "$work/json"
for field in pattern channels bound_gbps steps search_us packed_trees_gbps; do
  grep -q "\"$field\"" "$work/json" || fail "JSON without $field"
done

"$loom" search "$data/dgxa100.xml" --pattern all --nodes 2 --graph-dump "$work/graph.xml" > /dev/null
"$loom" search "$data/dgxa100.xml" --graph-file "$work/graph.xml" --graph-dump "$work/again.xml" > /dev/null
cmp "$work/graph.xml" "$work/again.xml" || fail "a graph file changes on its way"
if "$loom" search "$data/dgx1v.xml" --graph-file "$work/graph.xml" 2> "$work/error"; then fail "took another machine's channels"; fi
grep -q 'graph.xml:[0-9]*: <' "$work/error" || fail "no line in: $(cat "$work/error")"

for machine in dgx1v dgxh100 pcie-2socket gh200; do
  for nodes in 1 2; do
    "$loom" search "$data/$machine.xml" --nodes $nodes --draw "$work/picture.svg" > /dev/null
    grep -q '</svg>' "$work/picture.svg" || fail "no picture of $machine"
  done
done
"$loom" search "$data/dgx1v.xml" --draw "$work/picture.svg" > /dev/null
[[ $(grep -c '<polyline' "$work/picture.svg") -ge 32 ]] || fail "channels are missing in the picture"
echo "loom search: fine"
