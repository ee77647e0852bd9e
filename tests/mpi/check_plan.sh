#!/usr/bin/env bash
# check_plan.sh LOOM FILE RANKS COMMAND... -- what a program does on GPUs at coll_loom_verbose 2 is what `loom plan` says of
# the machine in FILE: its channels, and of each call that is told by which links and protocol how many of them carry it.
# RANKS "2,1": on two hosts.
set -euo pipefail
loom=$1 file=$2 ranks=$3
shift 3
fail() { echo "check_plan: $1" >&2; exit 1; }
code=0
output=$("$@" 2>&1) || code=$?
printf '%s\n' "$output"
(( code != 77 )) || exit 77  # the machine has no virtual hosts
(( code == 0 )) || fail "the command fails"
commas=${ranks//[^,]/}
hosts=()
[[ -z $commas ]] || hosts=(--hosts $((${#commas} + 1)))
plan() { "$loom" plan "$file" --memory device --ranks-per-host "$ranks" "${hosts[@]}" "$@"; }

channels=$(plan --collective allreduce --bytes 8 | head -1)
[[ $output == *": $channels"* ]] || fail "other channels than: $channels"
collectives=
while IFS='|' read -r collective bytes way; do
  planned=$(plan --collective "$collective" --bytes "$bytes" | tail -1)
  [[ $planned == "$collective "*" kernel "*" $way "* ]] || fail "$collective of $bytes bytes goes by $way, but: $planned"
  [[ " $collectives " == *" $collective "* ]] || collectives+=" $collective"
done < <(sed -n 's/^.*: \([a-z_]*\) of \([0-9]*\) bytes goes by kernel (\([^)]*\)): .*$/\1|\2|\3/p' <<<"$output")
[[ $(wc -w <<<"$collectives") -eq 5 ]] || fail "kernels carry no more than:$collectives"
