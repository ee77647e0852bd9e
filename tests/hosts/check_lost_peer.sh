#!/usr/bin/env bash
# check_lost_peer.sh PROGRAM HOW HOSTS PER_HOST [COUNT MPIRUN-ARGUMENT...] -- beside virtual hosts: the last
# rank of PROGRAM goes missing, as HOW says, in the middle of sums of COUNT numbers. The others get errors
# within coll_loom_timeout and a message that names the peer, its host, the device and the last step; then
# PROGRAM ends. Where its GPU fails (launch, fault), the last rank says so itself. LOST_PEER_MEMORY=device: the
# numbers are on GPUs; LOST_PEER_CALL=alltoall or ialltoallv: they are
# exchanged.
set -euo pipefail
program=$1 how=$2 hosts=$3 per_host=$4 count=${5:-1048576} arguments=("${@:6}")
virtual_hosts=$(cd "$(dirname "$0")/../.." && pwd)/scripts/hosts/virtual-hosts
ranks=$((hosts * per_host)) stays=$(((hosts - 1) * per_host))

rc=0
SECONDS=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT
recovery=() limit_s=90
if [[ $how == kill ]]; then recovery=(--with-ft ulfm) limit_s=30; fi
timeout "$limit_s" "$virtual_hosts" mpirun -n "$ranks" --map-by "ppr:$per_host:node" "${recovery[@]}" --mca coll_loom_timeout 3 "${arguments[@]}" \
  "$program" "$how" "$count" "${LOST_PEER_MEMORY:-host}" "${LOST_PEER_CALL:-allreduce}" \
  >"$output" 2>&1 || rc=$?
cat "$output"
echo "mpirun ended with exit code $rc after $SECONDS s"
failures=0
fail() { echo "check_lost_peer: $1" >&2; failures=1; }
# Once a process has failed, mpirun of 5.0 and 6.0 may not end after MPI_Abort, with loom and without.
[[ $rc -eq 7 ]] || [[ $how == kill && $rc -eq 124 ]] || fail "the exit code is not MPI_Abort's"
(( $(grep -c 'the rest goes on' "$output") == stays )) || fail "not all of the $stays other ranks went on"
! grep -q 'the rest fails' "$output" || fail "a communicator without the missing rank failed"
! grep -q 'error class 0\|error class -1\|then 0\|then -1' "$output" || fail "a call with the missing rank succeeded"
# A rank that learns before its own limit that another gave up says nothing; some reach their limits at the
# same moment.
who=$(sed -n 's/^ *Communicator: rank \([0-9]*\) of .*/\1/p' "$output")
[[ -n $who ]] || fail "no message"
[[ -z $(sort <<<"$who" | uniq -d) ]] || fail "more than one message from one rank"
if [[ $how == launch || $how == fault ]]; then
  [[ $who == $((ranks - 1)) ]] || fail "not the rank whose GPU has failed says so"
  grep -q 'driver fails with error 719' "$output" || fail "the message does not name the error"
  exit "$failures"
fi
# The message comes from a rank that waits for the lost one, across the network or on its host: the first to
# reach its limit.
named="[0-9]* (process [0-9]* on host host$((hosts - 1)))[^.]* over tcp/eth0[^: ]*: [0-9]* slots"
if [[ $how == stop ]] && ((per_host > 1)); then
  named="\\($named\\|$((ranks - 1)) (process [0-9]* on host host$((hosts - 1)))\\.\\)"
fi
tr '\n' ' ' <"$output" | tr -s ' ' | grep -q "rank $named" ||
  fail "no message names the peer, its host, the device and the last step"
if [[ $how == kill ]]; then
  named=$(grep -c 'MPIX_ERR_PROC_FAILED' "$output" || true)
  (( named == ranks - 1 )) || fail "$named of the $((ranks - 1)) others were told that a process has failed"
fi
exit "$failures"
