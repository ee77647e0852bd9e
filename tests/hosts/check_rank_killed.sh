#!/usr/bin/env bash
# check_rank_killed.sh PROGRAM RANKS [MEMORY MPIRUN-ARGUMENT...] -- beside virtual hosts: PROGRAM, which kills one of
# its ranks, ends with an error soon, and neither a process nor shared memory of loom remains on any host.
set -euo pipefail
program=$1 ranks=$2 memory=${3:-} arguments=("${@:4}")
virtual_hosts=$(cd "$(dirname "$0")/../.." && pwd)/scripts/hosts/virtual-hosts
limit_s=30

rc=0
SECONDS=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT
timeout "$((2 * limit_s))" "$virtual_hosts" mpirun -n "$ranks" --mca coll_loom_verbose 1 "${arguments[@]}" "$program" 100000 ${memory:+"$memory"} \
  >"$output" 2>&1 || rc=$?
cat "$output"
echo "mpirun ended with exit code $rc after $SECONDS s"
failures=0
fail() { echo "check_rank_killed: $1" >&2; failures=1; }
grep -q 'set up in' "$output" || fail "loom did not carry the calls"
[[ $rc -ne 0 ]] || fail "a rank was killed, but mpirun reports success"
(( SECONDS <= limit_s )) || fail "that took longer than $limit_s s"

# /proc shows the processes of this run alone. The daemons of other hosts may need a moment to end.
# A zombie has ended: nothing reaps orphans here.
left() {
  local comm
  for comm in $(grep -lxE "$(basename "$program" | cut -c 1-15)|orted|prted" /proc/[0-9]*/comm 2>/dev/null); do
    if grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "${comm%comm}status"; then echo "$comm"; fi
  done
}
for ((tenths = 0; tenths < 50; ++tenths)); do
  [[ -n $(left) ]] || break
  sleep 0.1
done
for comm in $(left); do fail "still running: $(tr '\0' ' ' <"${comm%comm}cmdline")"; done
for file in "$LOOM_VHOSTS"/host*/shm/*loom*; do
  [[ ! -e $file ]] || fail "left behind: $file"
done
exit "$failures"
