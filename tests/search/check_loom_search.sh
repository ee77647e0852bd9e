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
# what does not go together, or compares nothing
trouble() { local rc=0; "$loom" search "$@" > "$work/out" 2> "$work/error" || rc=$?; [[ $rc == 2 ]] || fail "rc $rc, not 2: $*"; [[ -s "$work/error" ]] || fail "no reason: $*"; }
echo '{"files": {"dgx1v.xml": {"n1": {"graphs": {"ring": {}}}}}}' > "$work/reference.json"
echo '{' > "$work/broken.json"
mkdir "$work/empty"
trouble "$data/dgx1v.xml" --compare "$work/reference.json"
trouble "$work/nowhere" --compare "$work/reference.json"
trouble "$work/empty" --compare "$work/reference.json"
grep -q 'missing: .*dgx1v.xml' "$work/error" || fail "does not name what is missing"
trouble "$data" --compare "$work/broken.json"
grep -q 'broken.json' "$work/error" || fail "does not name the reference"
trouble "$data" --compare "$work/reference.json"
grep -q 'reference.json' "$work/error" || fail "does not name the reference without figures"
trouble "$data/dgx1v.xml" --gpus 0,0,1
trouble "$data/dgx1v.xml" --gpus ""
trouble "$data/dgx1v.xml" --markdown
trouble "$data/dgx1v.xml" --min-channels 8 --max-channels 4
trouble "$data/dgx1v.xml" --channel-gbps nan
trouble "$data/dgxa100.xml" --graph-file "$work/graph.xml" --json
trouble "$data/dgx1v.xml" --json --compare "$work/reference.json"
"$loom" search --gpus 0,1,2 "$data/dgx1v.xml" > "$work/text" || fail "--gpus takes FILE"
grep -q '^ring' "$work/text" || fail "--gpus before FILE"
echo "<system version='1'><cpu numaid='0' affinity='f' arch='x86_64' vendor='AuthenticAMD' familyid='143' modelid='1'/></system>" > "$work/none.xml"
trouble "$work/none.xml"

"$loom" search "$data/dgxh100.xml" --pattern all --draw "$work/all.svg" > /dev/null 2> "$work/error"
for pattern in ring tree nvls; do
  grep -q '</svg>' "$work/all-$pattern.svg" || fail "no picture of $pattern"
done
[[ ! -e "$work/all-collnet-direct.svg" ]] || fail "a picture without channels"
grep -q 'collnet-direct: no channels' "$work/error" || fail "leaves out a picture in silence"
echo "loom search: fine"
