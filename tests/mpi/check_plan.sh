#!/usr/bin/env bash
# check_plan.sh LOOM FILE RANKS COMMAND... -- what a program does on GPUs at coll_loom_verbose 2 is what `loom plan` says of
# the machine in FILE: its channels, and of each call that is told by which links and protocol how many of them carry it.
set -euo pipefail
loom=$1 file=$2 ranks=$3
shift 3
fail() { echo "check_plan: $1" >&2; exit 1; }
output=$("$@" 2>&1) || { printf '%s\n' "$output"; fail "the command fails"; }
printf '%s\n' "$output"
plan() { "$loom" plan "$file" --memory device --ranks-per-host "$ranks" "$@"; }

channels=$(plan --collective allreduce --bytes 8 | head -1)
[[ $output == *": $channels"* ]] || fail "other channels than: $channels"
collectives=
while IFS='|' read -r collective bytes way; do
  planned=$(plan --collective "$collective" --bytes "$bytes" | tail -1)
  [[ $planned == "$collective "*" kernel "*" $way "* ]] || fail "$collective of $bytes bytes goes by $way, but: $planned"
  [[ " $collectives " == *" $collective "* ]] || collectives+=" $collective"
done < <(sed -n 's/^.*: \([a-z_]*\) of \([0-9]*\) bytes goes by kernel (\([^)]*\)): .*$/\1|\2|\3/p' <<<"$output")
[[ $(wc -w <<<"$collectives") -eq 5 ]] || fail "kernels carry no more than:$collectives"
