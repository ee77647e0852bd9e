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
expect 2 'nowhere.xml' "$loom" topo show nowhere.xml
expect 2 'required' "$loom" topo diff "$data/dgx1v.xml"
expect 2 '' "$loom" topo dance
echo '<system version="1"><cpu numaid="x"/></system>' >"$work/bad.xml"
expect 2 'bad.xml:1: <cpu numaid="x">' "$loom" topo check "$work/bad.xml"
echo "loom topo: all as expected"
