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
expect 0 '0 warnings, 0 hints' "$loom" topo check "$data/dgxh100.xml"
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
for ranks in '' ',' 0,0 0, 0,x -1; do expect 2 'ranks ' "$loom" topo show "$data/dgx1v.xml" --ranks "$ranks"; done
# A picture in a format that there is.
expect 2 'picture.png' "$loom" topo draw "$data/dgx1v.xml" -o "$work/picture.png"
[[ ! -e $work/picture.png ]]
expect 0 '' "$loom" topo draw "$data/dgx1v.xml" -o "$work/picture.gv"
grep -q '^graph ' "$work/picture.gv"
# Output that cannot be written is not passed over.
for command in show check 'diff --json' diff draw 'convert --to nccl'; do
  other=
  [[ $command == diff* ]] && other=$data/dgxa100.xml
  # shellcheck disable=SC2086
  expect 2 'cannot write' bash -c '"$@" >/dev/full' _ "$loom" topo $command "$data/dgx1v.xml" $other
done
# Notes are told once, and are part of the JSON.
printf '<system version="1"><cpu numaid="0" affinity="1" arch="arm64"><pci busid="0000:01:00.0" class="0x030200" link_speed="" link_width="0"><gpu dev="0" sm="90" gdr="1" rank="0"/></pci><pci busid="0000:02:00.0" class="0x030200" link_speed="" link_width="0"><gpu dev="1" sm="90" gdr="1" rank="1"/></pci><novelty/></cpu></system>' >"$work/gaps.xml"
expect 1 'warning GPU 0, GPU 1: Its PCI link' "$loom" topo check "$work/gaps.xml"
[[ $(grep -c 'assumed' "$work/out") -eq 1 ]]
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
# UCX does not handle this program's crashes: bit 10 of the mask of caught signals is SIGSEGV.
mkfifo "$work/pipe"
"$loom" topo show - <"$work/pipe" >/dev/null 2>&1 &
waiting=$!
exec 9>"$work/pipe"
sleep 1
caught=$(awk '/^SigCgt/ {print $2}' "/proc/$waiting/status")
[[ -n $caught && $((16#${caught: -4} & 16#400)) -eq 0 ]]
exec 9>&-
wait "$waiting" || true
expect 2 'nowhere.xml' "$loom" topo show nowhere.xml
expect 2 'required' "$loom" topo diff "$data/dgx1v.xml"
expect 2 '' "$loom" topo dance
echo '<system version="1"><cpu numaid="x"/></system>' >"$work/bad.xml"
expect 2 'bad.xml:1: <cpu numaid="x">' "$loom" topo check "$work/bad.xml"
echo "loom topo: all as expected"
