#!/usr/bin/env bash
# check_loom_topo.sh -- `loom topo` on the command line: what it prints, and how it ends. Usage: LOOM DATA_FOLDER
set -euo pipefail
loom=$1 data=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# expect CODE PATTERN COMMAND...: the exit code, and a line of its output.
expect() {
  local code=$1 pattern=$2 got=0
  shift 2
  "$@" >"$work/out" 2>&1 </dev/null || got=$?
  if [[ $got -ne $code ]] || { [[ -n $pattern ]] && ! grep -Eq -- "$pattern" "$work/out"; }; then
    echo "'$*': exit code $got, expected $code and /$pattern/ in:" >&2
    cat "$work/out" >&2
    exit 1
  fi
}

expect 0 'GPU0 .* NVL 240 ' "$loom" topo show "$data/dgxa100.xml"
expect 0 '"type": "NVL"' "$loom" topo show --json "$data/dgxa100.xml"
expect 0 '^GPU6 ' "$loom" topo show "$data/dgx1v.xml" --ranks 0,6
expect 0 'NUMA' "$loom" topo show
expect 2 'No GPU .* rank 77' "$loom" topo show "$data/dgx1v.xml" --ranks 77
expect 0 '0 warnings, 0 hints, 0 notes' "$loom" topo check "$data/dgxh100.xml"
sed 's/count="5"/count="4"/' "$data/dgxh100.xml" | sed '0,/count="4"/s//count="1"/' >"$work/degraded.xml"
expect 1 'warning.* GPU 0' "$loom" topo check "$work/degraded.xml"
expect 1 '"severity": "warning"' "$loom" topo check --json "$work/degraded.xml"
expect 1 '^~ GPU 0: NVL to NVSwitch' "$loom" topo diff "$data/dgxh100.xml" "$work/degraded.xml"
expect 0 'the same machine' "$loom" topo diff "$data/dgx1v.xml" "$data/dgx1v.xml"
expect 0 '' "$loom" topo convert "$data/dgx1v.xml" --to hwloc -o "$work/hwloc.xml"
expect 0 '' "$loom" topo convert "$work/hwloc.xml" --to nccl -o "$work/nccl.xml"
expect 0 'the same machine' "$loom" topo diff "$data/dgx1v.xml" "$work/nccl.xml"
expect 0 '' "$loom" topo draw "$data/dgx1v.xml" -o "$work/picture.svg"
grep -q '^<svg ' "$work/picture.svg"
expect 0 'n0 -- ' "$loom" topo draw "$data/dgx1v.xml" --format dot
expect 0 'Examples' "$loom" topo convert --help
expect 0 'GPU0 .* NVL 240 ' bash -c '"$1" topo show - <"$2"' _ "$loom" "$data/dgxa100.xml"
expect 2 '^loom: stdin:1: ' bash -c 'echo nonsense | "$1" topo show -' _ "$loom"
# Only ranks that there are, each once.
expect 0 '^GPU3 ' "$loom" topo show "$data/dgx1v.xml" --ranks 0-1,3
for ranks in '' ',' 0,0 0, 0,x -1 0- 3-1 0-2,1 0-9999999999; do expect 2 'ranks ' "$loom" topo show "$data/dgx1v.xml" --ranks "$ranks"; done
# A picture in a format that there is.
expect 2 'picture.png' "$loom" topo draw "$data/dgx1v.xml" -o "$work/picture.png"
[[ ! -e $work/picture.png ]]
expect 0 '' "$loom" topo draw "$data/dgx1v.xml" -o "$work/picture.gv"
grep -q '^graph ' "$work/picture.gv"
# Not over its input.
cp "$data/dgx1v.xml" "$work/mine.xml"
ln -s mine.xml "$work/also-mine.svg"
expect 2 'output .* would overwrite FILE' "$loom" topo convert "$work/mine.xml" --to hwloc -o "$work/mine.xml"
expect 2 'output .* would overwrite FILE' "$loom" topo draw "$work/mine.xml" -o "$work/also-mine.svg"
cmp "$data/dgx1v.xml" "$work/mine.xml"
# Output that cannot be written is not passed over.
for command in show check 'diff --json' diff draw 'convert --to nccl'; do
  other=
  [[ $command == diff* ]] && other=$data/dgxa100.xml
  # shellcheck disable=SC2086
  expect 2 'cannot write to stdout: No space left on device' bash -c '"$@" >/dev/full' _ "$loom" topo $command "$data/dgx1v.xml" $other
done
for words in --help --version 'topo convert --help'; do
  # shellcheck disable=SC2086
  expect 2 'cannot write to stdout: No space left on device' bash -c '"$@" >/dev/full' _ "$loom" $words
done
expect 2 '' bash -c '"$@" 2>/dev/full' _ "$loom" topo show nowhere.xml
# Notes are told once, and are part of the JSON.
printf '<system version="1"><cpu numaid="0" affinity="1" arch="arm64"><pci busid="0000:01:00.0" class="0x030200" link_speed="" link_width="0"><gpu dev="0" sm="90" gdr="1" rank="0"/></pci><pci busid="0000:02:00.0" class="0x030200" link_speed="" link_width="0"><gpu dev="1" sm="90" gdr="1" rank="1"/></pci><novelty/></cpu></system>' >"$work/gaps.xml"
expect 1 'warning GPU 0, GPU 1, each: Its PCI link' "$loom" topo check "$work/gaps.xml"
[[ $(grep -c 'assumed' "$work/out") -eq 1 ]]
expect 1 '3 nodes, 4 links: 1 warning, 1 hint, 1 note$' "$loom" topo check "$work/gaps.xml"
expect 1 'novelty' "$loom" topo check --json "$work/gaps.xml"
expect 0 'say too little' "$loom" topo show "$work/gaps.xml"
# Too many elements for NCCL.
{
  echo '<system version="1"><cpu numaid="0" affinity="1" arch="arm64"><nic>'
  for ((i = 0; i < 300; ++i)); do echo "<net dev=\"$i\" speed=\"1000\"/>"; done
  echo '</nic></cpu></system>'
} >"$work/many.xml"
expect 0 'has 303 elements; NCCL' "$loom" topo convert --to nccl "$work/many.xml" -o "$work/many-nccl.xml"
expect 0 '^NUMA0 ' "$loom" topo show "$work/many.xml"
expect 0 '16 of 300 ports' "$loom" topo show "$work/many.xml"
# Too many pairs for a matrix: the tree is shown all the same.
{
  echo '<system version="1"><cpu numaid="0" affinity="1" arch="arm64"><nic>'
  for ((i = 0; i < 4000; ++i)); do echo "<net dev=\"$i\" speed=\"1000\"/>"; done
  echo '</nic></cpu></system>'
} >"$work/large.xml"
expect 0 'NET 3999' "$loom" topo show "$work/large.xml"
expect 0 'too many for a table' "$loom" topo show "$work/large.xml"
# Colours: on terminals alone, and only if wanted.
colours_with() { env "$@" script -qec "$loom topo show $data/dgx1v.xml" /dev/null | grep -c $'\033' || true; }
if command -v script >/dev/null; then
  [[ $(colours_with TERM=xterm) -gt 0 && $(colours_with TERM=xterm NO_COLOR=) -gt 0 ]]
  [[ $(colours_with TERM=xterm NO_COLOR=1) -eq 0 && $(colours_with TERM=dumb) -eq 0 ]]
fi
# UCX does not handle this program's crashes, nor does a sanitizer here: bit 10 of the mask of caught signals is SIGSEGV.
mkfifo "$work/pipe"
ASAN_OPTIONS=handle_segv=0 UBSAN_OPTIONS=handle_segv=0 TSAN_OPTIONS=handle_segv=0 "$loom" topo show - <"$work/pipe" >/dev/null 2>&1 &
waiting=$!
exec 9>"$work/pipe"
sleep 1
caught=$(awk '/^SigCgt/ {print $2}' "/proc/$waiting/status")
[[ -n $caught && $((16#${caught: -4} & 16#400)) -eq 0 ]]
exec 9>&-
wait "$waiting" || true
# What is no XML is named; a folder that takes no file is the one that is blamed.
: >"$work/empty.xml"
expect 2 'empty.xml:1: the file is empty' "$loom" topo check "$work/empty.xml"
gzip -c "$data/dgx1v.xml" >"$work/packed.xml"
expect 2 'packed.xml:1: .*gzip' "$loom" topo check "$work/packed.xml"
printf '\xff\xfe<\0' >"$work/wide.xml"
expect 2 'wide.xml:1: .*UTF-16' "$loom" topo check "$work/wide.xml"
printf '\xef\xbb\xbf' | cat - "$data/dgx1v.xml" >"$work/marked.xml"
expect 0 'the same machine' "$loom" topo diff "$data/dgx1v.xml" "$work/marked.xml"
expect 2 'nowhere.xml' "$loom" topo show nowhere.xml
# A wrong command is named, with those that there are; every complaint says whose help to read.
expect 2 '^loom: loom topo has no command "dance"; it has show, draw, check, convert and diff. See loom topo --help' "$loom" topo dance
expect 2 '^loom: loom has no command "dance"; it has topo, search, connect, plan, doctor and plot. See loom --help' "$loom" dance
expect 2 '^See loom topo convert --help' "$loom" topo convert "$data/dgx1v.xml" --to dance
expect 2 '^loom: .*--dance' "$loom" topo show --dance
expect 0 '^loom [0-9]+\.[0-9]+\.[0-9]+$' "$loom" --version
# An empty name, as a script's forgotten variable leaves it, is not this machine.
expect 2 'FILE.*empty' "$loom" topo check ''
expect 2 'output.*empty' "$loom" topo draw "$data/dgx1v.xml" -o ''
expect 0 '^<svg ' "$loom" topo draw "$data/dgx1v.xml" -o -
expect 0 '' "$loom" topo draw "$data/dgx1v.xml" -o "$work/picture.DOT"
grep -q '^graph ' "$work/picture.DOT"
expect 0 $'\033' "$loom" topo show "$data/dgx1v.xml" --color
expect 0 $'\033' "$loom" topo show --color "$data/dgx1v.xml"
expect 0 'NVL 40' "$loom" topo show --color=never "$data/dgx1v.xml"
# The matrix folds where the width is known, and only there.
env -u COLUMNS "$loom" topo show "$data/dgx1v.xml" >"$work/out"
[[ $(grep -c '^GPU0 ' "$work/out") -eq 1 ]]
COLUMNS=60 "$loom" topo show "$data/dgx1v.xml" >"$work/out"
sed '/^GB/,$d' "$work/out" >"$work/matrix"
[[ $(wc -L <"$work/matrix") -le 60 && $(grep -c '^GPU0 ' "$work/matrix") -gt 1 ]]
# This machine against a file of it; equal machines of other names; stdin once.
expect 0 '' "$loom" topo convert --to hwloc -o "$work/here.xml"
expect 0 'the same machine' "$loom" topo diff "$work/here.xml"
sed 's/guid="0xb8/guid="0xa8/' "$data/dgxh100.xml" >"$work/other.xml"
expect 1 'guid' "$loom" topo diff "$data/dgxh100.xml" "$work/other.xml"
expect 0 'the same machine but for its ids' "$loom" topo diff --ignore-ids "$data/dgxh100.xml" "$work/other.xml"
expect 1 '"attribute": "guid"' "$loom" topo diff --json "$data/dgxh100.xml" "$work/other.xml"
expect 2 'stdin' "$loom" topo diff - -
expect 1 '1 difference$' "$loom" topo diff "$data/dgx1v.xml" <(sed '0,/modelid="79"/s//modelid="80"/' "$data/dgx1v.xml") --ranks 0-7
# Of the GPUs only those of the ranks are compared; a picture says which those are.
sed -e '/dev="3" sm=/s/sm="70"/sm="80"/' -e '0,/0b:00.0" count="2"/s//0b:00.0" count="1"/' "$data/dgx1v.xml" >"$work/gpu3.xml"
expect 1 '2 differences$' "$loom" topo diff "$data/dgx1v.xml" "$work/gpu3.xml"
expect 1 '2 differences$' "$loom" topo diff "$data/dgx1v.xml" "$work/gpu3.xml" --ranks 0,3
expect 1 '^~ GPU 3: compute_capability' "$loom" topo diff "$data/dgx1v.xml" "$work/gpu3.xml" --ranks 1-3
expect 1 '1 difference$' "$loom" topo diff "$data/dgx1v.xml" "$work/gpu3.xml" --ranks 1-3
expect 0 'the same machine for these ranks$' "$loom" topo diff "$data/dgx1v.xml" "$work/gpu3.xml" --ranks 0-2,4-7
expect 0 'the same machine for these ranks but for its ids$' "$loom" topo diff "$data/dgx1v.xml" "$work/gpu3.xml" --ranks 0-2 --ignore-ids
expect 0 'GPU 3, no rank' "$loom" topo draw "$data/dgx1v.xml" --format dot --ranks 0-2
[[ $(grep -c 'no rank' "$work/out") -eq 5 ]]
expect 0 '^graph ' "$loom" topo draw "$data/dgx1v.xml" --format dot
[[ $(grep -c 'no rank' "$work/out") -eq 0 ]]
# Options where they do nothing are none.
expect 2 'color' "$loom" topo draw "$data/dgx1v.xml" --color
expect 2 'model' "$loom" topo convert "$data/dgx1v.xml" --to hwloc --model nccl
echo '<system version="1"><cpu numaid="x"/></system>' >"$work/bad.xml"
expect 2 'bad.xml:1: <cpu numaid="x">' "$loom" topo check "$work/bad.xml"
echo "loom topo: all as expected"
