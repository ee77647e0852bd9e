#!/usr/bin/env bash
# check_loom_connect.sh -- `loom connect` on the command line: what it prints, and how it ends. Usage: LOOM DATA_FOLDER
set -euo pipefail
loom=$1 data=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "$1" >&2; exit 1; }
contains() { grep -qF -- "$2" <<<"$1" || fail "\"$2\" is not in: $1"; }

out=$("$loom" connect "$data/dgxh100.xml" --nodes 3 --rank 6)
contains "$out" "24 ranks on 3 nodes"
contains "$out" "3 x dgxh100.xml (8 ranks)"
contains "$out" "checked: every ring and tree of every rank"
contains "$out" "rank 6 (node 0, local 6)"

out=$("$loom" connect "$data/dgxh100.xml" --nodes 2 --mix "$data/pcie-2socket.xml:3" --placement random:7 --simulate 16M)
contains "$out" "2 x dgxh100.xml"
contains "$out" "16777216"
contains "$out" "ring"

out=$("$loom" connect "$data/dgx1v.xml" --nodes 4 --ranks-per-node 2 --placement round-robin --min-channels 12 --max-channels 12)
contains "$out" "8 ranks on 4 nodes"
contains "$out" "ring: 12 channels"

out=$("$loom" connect "$data/dgxh100.xml" --nodes 2 --all --orders --json --simulate 1K,1G)
contains "$out" '"bytes": 1073741824'
contains "$out" '"order": ['
contains "$out" '"violations": []'

out=$("$loom" connect "$data/dgxh100.xml" --nodes 129 --rank 3 --json --orders)
contains "$out" '"order": ['
out=$("$loom" connect "$data/dgxh100.xml" --nodes 2 --mix "$data/dgxh100.xml:3")
contains "$out" "5 x dgxh100.xml"

"$loom" connect "$data/dgxh100.xml" --nodes 6 --draw "$work/job.svg" >/dev/null
grep -q '^<svg ' "$work/job.svg"
contains "$(cat "$work/job.svg")" "tree 1"

for wrong in "$data/none.xml" "$data/dgxh100.xml --mix x.xml" "$data/dgxh100.xml --placement sideways" \
             "$data/dgxh100.xml --placement random:x" "$data/dgxh100.xml --ranks-per-node 9" \
             "$data/dgxh100.xml --nodes 2 --rank 16" "$data/dgxh100.xml --nodes 65 --draw $work/big.svg" \
             "$data/dgxh100.xml --nodes 0" "$data/dgxh100.xml --mix $data/dgx1v.xml:3x" \
             "$data/dgxh100.xml --mix $data/dgx1v.xml:" \
             "$data/dgxh100.xml --nodes 1 --mix $data/dgx1v.xml:2147483647 --mix $data/dgx1v.xml:2147483647" \
             "$data/dgxh100.xml --simulate -5" "$data/dgxh100.xml --simulate 0" "$data/dgxh100.xml --simulate 1K,-1" \
             "$data/dgxh100.xml --nodes 129 --all --json --orders" "$data/dgxh100.xml --json --orders" \
             "$data/dgxh100.xml --rank 0 --orders" "$data/dgxh100.xml --all --rank 0" \
             "$data/dgxh100.xml --draw $work/none.svg --channel 63" "$data/dgxh100.xml --channel 1" \
             "$data/dgxh100.xml --net-us 5" "$data/dgxh100.xml --collective reduce"; do
  code=0
  # shellcheck disable=SC2086
  "$loom" connect $wrong >/dev/null 2>"$work/error" || code=$?
  [[ $code == 2 ]] || fail "connect $wrong: exit code $code"
  [[ ! -e $work/none.svg ]] || fail "connect $wrong: a picture"
  [[ -s $work/error ]] || fail "connect $wrong: no message"
done
