#!/usr/bin/env bash
# check_rank_killed.sh COMMAND... -- the command runs mpi_rank_killed under mpirun, with coll_loom_verbose 1 or more.
# It ends soon and with an error, and leaves neither a process nor anything in /dev/shm.
set -euo pipefail
limit_s=20

output=$(mktemp)
trap 'rm -f "$output"' EXIT
# Open MPI's own shared memory may outlive a job that it aborts; loom has no names there at all.
names_in_shm() { ls -A /dev/shm | grep -v '^vader_segment\.' || true; }
before=$(names_in_shm)
rc=0
SECONDS=0
timeout --kill-after=5 "$((2 * limit_s))" "$@" >"$output" 2>&1 || rc=$?
cat "$output"
echo "mpirun ended with exit code $rc after $SECONDS s"

failures=0
fail() { echo "check_rank_killed: $1" >&2; failures=1; }
grep -q 'set up in' "$output" || fail "loom did not carry the calls"
[[ "$*" != *" device" ]] || grep -q 'goes by kernel' "$output" || fail "no kernel carried the calls"
[[ $rc -ne 0 ]] || fail "a rank was killed, but mpirun reports success"
(( SECONDS <= limit_s )) || fail "that took longer than $limit_s s"

pids=$(sed -n 's/.*pid \([0-9]*\)$/\1/p' "$output")
[[ -n $pids ]] || fail "the ranks never started"
# A zombie has ended: where nothing reaps orphans, as in a container without an init, it stays in the table.
alive() { for pid in $pids; do if grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status"; then echo "$pid"; fi; done; }
for ((tenths = 0; tenths < 100; ++tenths)); do  # mpirun does not wait for the ranks that it has killed
  [[ -n $(alive) ]] || break
  sleep 0.1
done
for pid in $(alive); do fail "rank still running: $(grep -sE '^(Pid|State|Threads):' "/proc/$pid/status" | tr '\t\n' '  ')"; done

for name in $(comm -13 <(sort <<<"$before") <(names_in_shm | sort)); do fail "left behind: /dev/shm/$name"; done
exit "$failures"
