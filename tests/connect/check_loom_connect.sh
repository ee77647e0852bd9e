#!/usr/bin/env bash
# check_loom_connect.sh -- `loom connect` on the command line: what it prints, and how it ends. Usage: LOOM DATA_FOLDER
set -euo pipefail
loom=$(realpath "$1") data=$2
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
             "$data/dgxh100.xml --net-us 5" "$data/dgxh100.xml --collective reduce" \
             "$data/dgxh100.xml --simulate 1K,,2K" "$data/dgxh100.xml --simulate 1Q" "$data/dgxh100.xml --simulate 1.0001K" \
             "$data/dgxh100.xml --simulate 2000P" "$data/dgxh100.xml --simulate nan" "$data/dgxh100.xml --simulate 1K,"; do
  code=0
  # shellcheck disable=SC2086
  "$loom" connect $wrong >/dev/null 2>"$work/error" || code=$?
  [[ $code == 2 ]] || fail "connect $wrong: exit code $code"
  [[ ! -e $work/none.svg ]] || fail "connect $wrong: a picture"
  [[ -s $work/error ]] || fail "connect $wrong: no message"
done

# refused PATTERN ARGUMENT...: exit code 2, the reason in a line of readable length, and nothing on stdout.
refused() {
  local pattern=$1 code=0
  shift
  "$loom" connect "$@" >"$work/out" 2>"$work/error" || code=$?
  [[ $code == 2 ]] || fail "connect $*: exit code $code"
  [[ ! -s $work/out ]] || fail "connect $*: prints before it refuses"
  grep -Eq -- "$pattern" "$work/error" || fail "connect $*: no /$pattern/ in $(cat "$work/error")"
  (( $(head -1 "$work/error" | wc -c) < 250 )) || fail "connect $*: a long message"
}
machine=$data/dgxh100.xml
for wrong in '--net-us nan' '--net-us inf' '--net-us 1e300' '--net-us -1' '--channel-gbps nan' '--channel-gbps 1e300' '--rank -1' \
             '--rank 1.5' '--rank 99999999999999999999' '--nodes 99999999999999999999' '--cross-nic 3' '--channel 64'; do
  # shellcheck disable=SC2086
  refused "${wrong% *}.*is no .*number from [0-9]+ to [0-9]+$" "$machine" --simulate 1K --draw "$work/none.svg" $wrong
done

# options without effect
refused 'ranks-per-node has 2 numbers' "$machine" --ranks-per-node 4,4
refused 'ranks-per-node has 3 numbers' "$machine" --mix "$data/dgx1v.xml:2" --ranks-per-node 4,4,4
refused 'ranks-per-node has 2 numbers' "$machine" --mix "$data/dgx1v.xml:2" --mix "$data/gh200.xml:1" --ranks-per-node 4,4
refused 'ranks-per-node .*empty' "$machine" --mix "$data/dgx1v.xml:2" --ranks-per-node 8,,2
for option in '--cross-nic 1' '--net-us 3' '--placement random:1'; do
  # shellcheck disable=SC2086
  refused "${option% *} has no effect on one (node|machine)" "$machine" --nodes 1 --simulate 1K $option
done
refused 'simulate has no effect on one rank' "$machine" --nodes 1 --ranks-per-node 1 --simulate 1K
refused 'min-channels 8 is more than --max-channels 4' "$machine" --min-channels 8 --max-channels 4

# nothing where a name should be
for option in --draw --mix --simulate --ranks-per-node; do refused "$option.*(empty|FILE:COUNT)" "$machine" $option ''; done
refused 'FILE.*empty' ''
refused 'FILE:COUNT' "$machine" --mix :2

# outputs
cp "$machine" "$work/mine.xml"
cp "$data/dgx1v.xml" "$work/mixed.xml"
refused 'would overwrite FILE' "$work/mine.xml" --draw "$work/mine.xml"
refused 'would overwrite --mix' "$work/mine.xml" --mix "$work/mixed.xml:1" --draw "$work/../${work##*/}/mixed.xml"
cmp "$machine" "$work/mine.xml"
cmp "$data/dgx1v.xml" "$work/mixed.xml"
refused 'cannot write' "$machine" --draw "$work/nowhere/job.svg"
refused 'stdout' "$machine" --draw -

# search and connect give the same figures for the same file and options
for name in dgxh100 dgxa100 dgx1v pcie-2socket; do
  for options in '' '--min-channels 40' '--max-channels 3' '--channel-gbps 5'; do
    # shellcheck disable=SC2086
    searched=$("$loom" search "$data/$name.xml" --nodes 2 $options | sed -n 's/^ring: \([0-9]* channels*, [0-9.]*\) .*/\1/p')
    # shellcheck disable=SC2086
    joined=$("$loom" connect "$data/$name.xml" --nodes 2 $options | sed -n 's/^ring: \([0-9]* channels*, [0-9.]*\) .*/\1/p')
    [[ -n $searched && $searched == "$joined" ]] || fail "$name $options: search finds $searched, connect $joined"
  done
done
grep -v '<net\|<nic\|</nic' "$data/dgx1v.xml" >"$work/portless.xml"
contains "$("$loom" connect "$work/portless.xml" 2>/dev/null)" 'has no network port: one of 1.25 GB/s is assumed'

# one host: what the plugin's kernels run, and what stays offline
out=$("$loom" connect "$machine" --nodes 1 --simulate 8,1G)
contains "$out" 'ring: 16 channels, 370.8 GB/s; NVL'
contains "$out" "run by the plugin's kernels: 8 GPUs, NVSwitch; 16 rings, 370.8 of at most 370.8 GB/s; "
contains "$out" '; rings all-gather 423.77 GB/s, trees 423.77'
grep -Eq '^forest: all-gathers 423.77 of at most 423.77 GB/s; (rings|trees) reach 100 % of that$' <<<"$out" || fail "no forest in $out"
contains "$("$loom" connect "$data/pcie-2socket.xml" --nodes 1 --json)" '"all_gather_gbps": {'
contains "$("$loom" connect "$machine" --model loom)" ' GB/s, grids 423.77, trees '
! grep -q all.gather <<<"$("$loom" connect "$machine" --json)" || fail "all-gathers by channels that kernels do not run"
for line in '^nvls: .*; offline$' '^ +8 exchange +LL +[0-9.]+ ' '^ +1073741824 +ring +Simple +[0-9.]+ '; do
  grep -Eq -- "$line" <<<"$out" || fail "one host: no /$line/ in $out"
done
! grep -Eq '^(ring|tree): .*offline' <<<"$out" || fail "one host: what the plugin runs is offline: $out"
contains "$("$loom" connect "$machine" --nodes 1 --max-channels 4)" 'offline: not run by the plugin, which asks for at most 16 channels'
contains "$("$loom" connect "$machine" --nodes 1 --min-channels 20)" 'ring: 20 channels'
contains "$("$loom" connect "$machine" --nodes 2)" 'offline: not run by the plugin. Its kernels'

# several hosts with GPUs by the rules of loom
out=$("$loom" connect "$machine" --nodes 2 --model loom --simulate 1G)
contains "$out" "run by the plugin's kernels: 16 GPUs on 2 hosts, NVSwitch; 16 rings, 384 of"
contains "$out" 'forest: all-gathers 446.72 of at most 446.72 GB/s; grids reach 94.9 % of that'
contains "$("$loom" connect "$machine" --nodes 2 --model loom --json)" '"bound_gbps": 446.7'
! grep -q '^forest' <<<"$("$loom" connect "$machine" --nodes 2 --model loom --mix "$data/dgx1v.xml:1")" || fail "a forest of nodes that differ"
! grep -Eq '^(ring|tree): .*offline' <<<"$out" || fail "two hosts: what the plugin runs is offline: $out"
# plan says the same: "allreduce 1G kernel grids by Simple, 16 channels 5567.1 ..."; its winner is the first here
read -r _ by _ us _ <<<"$(grep -E '^ +1073741824 ' <<<"$out" | head -1)"
planned=$("$loom" plan "$machine" --memory device --hosts 2 --collective allreduce --bytes 1G)
same=$(sed -nE "s/.*kernel +${by}s by Simple, 16 channels +([0-9.]+) .*/\1/p" <<<"$planned")
# connect rounds to hundredths, plan to tenths
awk -v us="$us" -v same="$same" 'BEGIN { exit !(same != "" && us - same < 0.06 && same - us < 0.06) }' ||
  fail "connect: $by $us us, plan: $planned"
contains "$("$loom" connect "$machine" --nodes 2 --model loom --channel-gbps 6)" 'offline: not run by the plugin, which asks for at most 16 channels'

# stdin, also mixed with itself; fractions of units; one of a thing; FILE behind lists; null is what a job has not
contains "$("$loom" connect - --nodes 2 --mix -:1 <"$machine")" '3 x stdin (8 ranks)'
contains "$("$loom" connect --simulate 1.5G,0.5k --mix "$data/dgx1v.xml:1" --ranks-per-node 8,2 "$machine")" '1610612736'
out=$("$loom" connect "$data/gh200.xml" --nodes 1 --max-channels 1)
contains "$out" '1 rank on 1 node'
contains "$out" 'ring: 1 channel,'
contains "$("$loom" connect "$data/dgx1v.xml" --rank 0 --json)" '"nvls": null'

# what reading a file assumes
contains "$("$loom" connect "$data/lstopo-2gpu.xml" 2>&1 >/dev/null)" 'note: lstopo-2gpu.xml: mlx5_0: Its speed is not known'

# a channel that has trees alone says so
out=$("$loom" connect "$machine" --nodes 2 --draw "$work/trees.svg" --channel 13 2>&1)
contains "$out" 'channel 13: no ring'
contains "$(cat "$work/trees.svg")" 'no ring 13: there are 8'
