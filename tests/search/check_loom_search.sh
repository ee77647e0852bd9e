#!/usr/bin/env bash
# What `loom search` prints, writes and refuses, as its users see it.
#   check_loom_search.sh LOOM FOLDER-OF-MACHINES
set -euo pipefail
loom=$(realpath "$1") data=$2 here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "check_loom_search: $*" >&2; exit 1; }

"$loom" search "$data/dgx1v.xml" --explain --check > "$work/text"
grep -q '^ring: .* 120 of at most 120 GB/s, 100.0 %' "$work/text" || fail "rings of a cube mesh"
grep -q 'between GPUs up to NVL: 120 GB/s: taken' "$work/text" || fail "--explain"
# and what the plugin runs
grep -q "^the plugin's kernels run: 8 GPUs, NVLink; 12 rings, 120 of at most 120 GB/s; " "$work/text" || fail "no word of the plugin"
"$loom" search "$data/dgx1v.xml" > "$work/text"
if grep -q plugin "$work/text"; then fail "tells of the plugin unasked"; fi
"$loom" search "$data/dgx1v.xml" --explain --nodes 2 > "$work/text"
grep -q "^the plugin's kernels run between two such hosts: 16 GPUs on 2 hosts, NVLink; " "$work/text" || fail "no word of the plugin between hosts"

"$loom" search "$data/dgxh100.xml" --pattern all --json > "$work/json"
for field in pattern channels bound_gbps steps search_us packed_trees_gbps; do
  grep -q "\"$field\"" "$work/json" || fail "JSON without $field"
done

"$loom" search "$data/pcie-2socket.xml" --pattern forest --explain > "$work/text"
grep -q '^forest: all-gathers .*, 100.0 %; ' "$work/text" || fail "no forest"
grep -q '^  whatever way data take, at most .* lead out of [0-9]* GPUs* (' "$work/text" || fail "no cut"
"$loom" search "$data/two-ports.xml" --pattern forest --nodes 2 --explain > "$work/text"
grep -q 'root 0:0: .*>1:' "$work/text" || fail "no tree between nodes"
"$loom" search "$data/pcie-2socket.xml" --pattern forest --max-channels 1 --json --explain > "$work/json"
for field in all_gather reduce_scatter trees edges cut rings_all_gather_gbps; do
  grep -q "\"$field\"" "$work/json" || fail "JSON of a forest without $field"
done

"$loom" search "$data/pcie-2socket.xml" --pattern forest --draw "$work/forest.svg" > /dev/null
grep -q 'GB/s from GPU 0: 0&gt;' "$work/forest.svg" || fail "no picture of a forest"
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
refused() { local pattern=$1; shift; trouble "$@"; [[ ! -s "$work/out" ]] || fail "prints before it refuses: $*"; grep -Eq -- "$pattern" "$work/error" || fail "no /$pattern/ in $(cat "$work/error")"; }
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
refused 'min-channels has no effect' "$data/dgx1v.xml" --pattern forest --min-channels 2
"$loom" search "$data/dgx1v.xml" --pattern forest --nodes 1000 > "$work/text"
grep -q 'lead .* (.*1-999:' "$work/text" || fail "no cut of many nodes"
trouble "$data/dgx1v.xml" --gpus ""
trouble "$data/dgx1v.xml" --markdown
trouble "$data/dgx1v.xml" --min-channels 8 --max-channels 4
trouble "$data/dgx1v.xml" --channel-gbps nan
"$loom" search "$data/dgxa100.xml" --graph-file "$work/graph.xml" --explain > "$work/text" || fail "--graph-file --explain"
grep -q 'no more than 192 GB/s: ' "$work/text" || fail "no proof for channels of a file"
if grep -q 'order of trying' "$work/text"; then fail "tells of a search for channels of a file"; fi
"$loom" search --gpus 0,1,2 "$data/dgx1v.xml" > "$work/text" || fail "--gpus takes FILE"
grep -q '^ring' "$work/text" || fail "--gpus before FILE"
echo "<system version='1'><cpu numaid='0' affinity='f' arch='x86_64' vendor='AuthenticAMD' familyid='143' modelid='1'/></system>" > "$work/none.xml"
refused 'loom connect' "$work/none.xml"

# numbers that are none, or out of range: in words that a line holds
for wrong in '--nodes 0' '--nodes 99999999999999999999' '--nodes 1.5' '--cross-nic 3' '--min-channels 65' '--max-channels nan' \
             '--channel-gbps nan' '--channel-gbps inf' '--channel-gbps -1' '--channel-gbps 1e300' '--exact-gpus 17' \
             '--max-steps -1' '--max-steps 99999999999999999999'; do
  # shellcheck disable=SC2086
  refused "${wrong% *}.*is no .*number from .* to" "$data/dgx1v.xml" --nodes 2 $wrong
  (( $(head -1 "$work/error" | wc -c) < 120 )) || fail "a long message: $(cat "$work/error")"
done
# options without effect, by name
refused 'compare takes all patterns' "$data" --compare "$work/reference.json" --pattern ring --markdown
refused 'compare takes all patterns' "$data" --compare "$work/reference.json" --pattern forest
refused 'draw with --pattern forest takes one node' "$data/dgx1v.xml" --pattern forest --nodes 2 --draw "$work/forest.svg"
refused 'cross-nic has no effect' "$data/dgx1v.xml" --cross-nic 1
for option in '--nodes 2' '--cross-nic 0' '--model loom' '--gpus 0' --explain --check; do
  # shellcheck disable=SC2086
  refused "compare does not go with ${option%% *}" "$data" --compare "$work/reference.json" $option
done
for option in '--cross-nic 0' '--max-channels 2' '--channel-gbps 1' '--pattern ring'; do
  # shellcheck disable=SC2086
  refused "graph-file does not go with ${option%% *}" "$data/dgxa100.xml" --graph-file "$work/graph.xml" $option
done
refused 'folder of the machines' --compare "$work/reference.json"
refused 'broken.json: no JSON' "$data" --compare "$work/broken.json"
if grep -q 'json.exception' "$work/error"; then fail "a library's words: $(cat "$work/error")"; fi
for option in FILE --draw --graph-dump --graph-file --compare; do
  if [[ $option == FILE ]]; then refused 'FILE.*empty' ""; else refused "$option.*empty" "$data/dgx1v.xml" $option ""; fi
done

# outputs: not over an input, not over each other, and known to be possible before anything is printed
cp "$data/dgx1v.xml" "$work/mine.xml"
ln "$work/mine.xml" "$work/link.xml"
ln -s nowhere.svg "$work/symlink.svg"
refused 'draw .* would overwrite FILE' "$work/mine.xml" --draw "$work/mine.xml"
refused 'graph-dump .* would overwrite FILE' "$work/mine.xml" --graph-dump "$work/link.xml"
refused 'graph-dump .* would overwrite FILE' "$work/mine.xml" --graph-dump "$work/./mine.xml"
cmp "$data/dgx1v.xml" "$work/mine.xml" || fail "an input is lost"
refused 'would overwrite --graph-dump' "$work/mine.xml" --draw "$work/x" --graph-dump "$work/x"
refused 'would overwrite --graph-dump' "$work/mine.xml" --draw "$work/symlink.svg" --graph-dump "$work/nowhere.svg"
refused 'would overwrite --graph-dump' "$work/mine.xml" --pattern all --draw "$work/x.svg" --graph-dump "$work/x-tree.svg"
refused 'would overwrite --graph-file' "$data/dgxa100.xml" --graph-file "$work/graph.xml" --graph-dump "$work/graph.xml"
for option in --draw --graph-dump; do
  refused 'cannot write' "$work/mine.xml" $option "$work/nowhere/x"
  refused 'folder' "$work/mine.xml" $option "$work"
  refused 'stdout' "$work/mine.xml" $option -
done
(cd "$work" && "$loom" search mine.xml --draw plain.svg > out && [[ -s plain.svg ]]) || fail "a file in this folder"
[[ ! -e "$work/x" && ! -e "$work/nowhere.svg" ]] || fail "wrote what it refused"

# nothing found is told, with the reason, by the exit code too
nothing() { local pattern=$1 rc=0; shift; "$loom" search "$@" > "$work/out" 2> "$work/error" || rc=$?; [[ $rc == 1 ]] || fail "rc $rc, not 1: $*"; grep -Eq -- "$pattern" "$work/out" || fail "no /$pattern/ in $(cat "$work/out")"; }
nothing 'nvls: not on this machine: .*NVSwitch' "$data/dgx1v.xml" --pattern nvls --check --draw "$work/no.svg" --graph-dump "$work/no.xml"
[[ ! -e "$work/no.svg" && ! -e "$work/no.xml" ]] || fail "files of nothing"
if grep -q checked "$work/out"; then fail "checked nothing"; fi
nothing 'collnet-chain: not on this machine: .' "$data/dgxh100.xml" --pattern collnet-chain
nothing 'collnet-direct: .*reduces' "$data/dgx1v.xml" --pattern collnet-direct --nodes 2
grep -v '<net\|<nic\|</nic' "$data/dgx1v.xml" > "$work/portless.xml"
nothing 'ring: not on this machine: it has no port' "$work/portless.xml" --nodes 2
grep -q 'connect assumes a port of 1.25 GB/s' "$work/error" || fail "does not say what loom connect does"
nothing '"absent": ".*NVSwitch' "$data/dgx1v.xml" --pattern nvls --json

# JSON of all of it
"$loom" search "$data/dgx1v.xml" --json --explain --check > "$work/json"
for field in '"violations": \[\]' '"attempts"' '"outcome"'; do grep -q "$field" "$work/json" || fail "JSON without $field"; done
"$loom" search "$data/dgxa100.xml" --graph-file "$work/graph.xml" --check --json > "$work/json" || fail "its own channels are not sound"
grep -q '"violations": \[\]' "$work/json" || fail "--graph-file --json"
"$loom" search "$data/dgxa100.xml" --graph-file "$work/graph.xml" --draw "$work/file.svg" > /dev/null
grep -q '</svg>' "$work/file-ring.svg" || fail "no picture of a file's channels"
figures='"patternName": "RING", "nChannels": 12, "totalBw": 120, "typeIntra": "NVL", "typeInter": "PIX", "bwIntra": 10, "nHops": 264, "search_us": 20'
echo "{\"files\": {\"dgx1v.xml\": {\"n1\": {\"nGpus\": 8, \"graphs\": {\"ring\": {$figures}}}}}}" > "$work/figures.json"
"$loom" search "$data" --compare "$work/figures.json" --json > "$work/json" || fail "--compare --json"
grep -q '"nccl_gbps": 120' "$work/json" || fail "--compare --json"
printf 'file(READ "%s" text)\nstring(JSON searches LENGTH "${text}" searches)\n' "$work/json" > "$work/read_json.cmake"
cmake -P "$work/read_json.cmake" || fail "--compare --json is none"

grep -q '"by_slow_pairs": false' "$work/json" || fail "--compare --json does not say whose paths"
slow='"patternName": "RING", "nChannels": 1, "totalBw": 6, "bwIntra": 6, "typeIntra": "PIX", "typeInter": "PIX", "nHops": 30'
cp "$here/data/three-sockets-two-ports.xml" "$work/empty"
echo "{\"files\": {\"three-sockets-two-ports.xml\": {\"n1\": {\"nGpus\": 3, \"graphs\": {\"ring\": {$slow}}}}}}" > "$work/slow.json"
"$loom" search "$work/empty" --compare "$work/slow.json" --json > "$work/json" || fail "--compare with slow pairs"
grep -q '"by_slow_pairs": true' "$work/json" || fail "does not say that a figure is by slow pairs"
grep -q '"more_by_slow_pairs": 1' "$work/json" || fail "does not count figures by slow pairs"

# what parts share
"$loom" search "$here/data/two-sockets-one-cable.xml" --graph-dump "$work/parts.xml" --check --explain > "$work/text" || fail "parts"
[[ $(grep -c '12.5 of at most 12.5 GB/s' "$work/text") == 2 ]] || fail "parts of one cable: $(cat "$work/text")"
grep -q 'any channel in every part' "$work/text" || fail "no proof for parts together"
"$loom" search "$here/data/parts-of-unequal-ports.xml" --nodes 2 --explain > "$work/text" || fail "parts of unequal ports"
[[ $(grep -c 'planned together' "$work/text") == $(grep -c '^part ' "$work/text") ]] || fail "parts are planned together: $(cat "$work/text")"
grep -q 'a GB/s in every part takes at least one of these together' "$work/text" || fail "a GB/s of one part takes that of all: $(cat "$work/text")"
sed 's/"12.5"/"24"/g' "$work/parts.xml" > "$work/too-much.xml"
refused 'too-much.xml:[0-9]*: <graph>: .*at the same time.*ASIC 0x5' "$here/data/two-sockets-one-cable.xml" --graph-file "$work/too-much.xml"

# files of another model
echo '<system version="2"><cpu numaid="0" affinity="1" arch="x86_64"/></system>' > "$work/amd.xml"
refused 'version 2 .*--model loom' "$work/amd.xml"
amd_gpu() { echo "<pci busid='0000:0$1:00.0' class='0x038000' link_speed='16.0 GT/s PCIe' link_width='16'><gpu dev='$3' sm='104' gcn='gfx90a' rank='$3' gdr='1'><xgmi target='0000:0$2:00.0' count='1' tclass='0x038000'/></gpu></pci>"; }
echo "<system version='2'><cpu numaid='0' affinity='1' arch='x86_64' vendor='AuthenticAMD' familyid='175' modelid='48'>$(amd_gpu 1 2 0)$(amd_gpu 2 1 1)</cpu></system>" > "$work/amd.xml"
"$loom" search "$work/amd.xml" --model loom --check > "$work/text" || fail "AMD's own links"
grep -q '37.5 of at most 37.5 GB/s' "$work/text" || fail "AMD's own links: $(cat "$work/text")"

# what reading a file assumes
"$loom" search "$data/lstopo-2gpu.xml" 2>&1 > /dev/null | grep -q 'note: mlx5_0: Its speed is not known' || fail "no note"

# stdin, ranges, one of a thing, a minimum above the usual maximum
"$loom" search - --gpus 0-2,5 --pattern tree < "$data/dgx1v.xml" > "$work/text" || fail "stdin"
grep -Eq '0 .*1 .*2 .*5|5' "$work/text" || fail "--gpus 0-2,5"
"$loom" search "$data/dgxh100.xml" | grep -q '^ring: 1 channel, ' || fail "1 channels"
"$loom" search "$data/dgxh100.xml" --min-channels 40 | grep -q '^ring: 40 channels' || fail "--min-channels 40"
trouble "$data/dgxh100.xml" --min-channels 5 --max-channels 4
if "$loom" search "$data/dgxh100.xml" > /dev/full 2> "$work/error"; then fail "output that is lost"; fi

"$loom" search "$data/dgxh100.xml" --pattern all --draw "$work/all.svg" > /dev/null 2> "$work/error"
for pattern in ring tree nvls; do
  grep -q '</svg>' "$work/all-$pattern.svg" || fail "no picture of $pattern"
done
[[ ! -e "$work/all-collnet-direct.svg" ]] || fail "a picture without channels"
grep -q 'collnet-direct: no channels' "$work/error" || fail "leaves out a picture in silence"
echo "loom search: fine"
