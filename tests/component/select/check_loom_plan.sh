#!/usr/bin/env bash
# check_loom_plan.sh -- `loom plan` on the command line: what it prints, and how it ends. Usage: LOOM DATA_FOLDER
set -euo pipefail
loom=$1 data=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# expect CODE PATTERN ARGUMENT...: the exit code, and a line of what it says.
expect() {
  local code=$1 pattern=$2 got=0
  shift 2
  "$loom" plan "$@" >"$work/out" 2>&1 </dev/null || got=$?
  if [[ $got -ne $code ]] || ! grep -Eq -- "$pattern" "$work/out"; then
    echo "plan $*: exit code $got, expected $code and /$pattern/ in:" >&2
    cat "$work/out" >&2
    exit 1
  fi
}
lacks() { if grep -Eq -- "$1" "$work/out"; then echo "/$1/ in:" >&2; cat "$work/out" >&2; exit 1; fi; }

expect 0 '^allreduce +8 +immediate +[0-9.]+ ' --ranks-per-host 4 --collective allreduce --bytes 8
expect 0 '^allreduce +8 +tiered +[0-9.]+ ' --ranks-per-host 64 --collective allreduce --bytes 8
expect 0 '^bcast +8 +tiered +[0-9.]+ ' --ranks-per-host 64 --collective bcast --bytes 8
expect 0 '^allreduce +64K +tiered_cico +[0-9.]+ ' --ranks-per-host 64 --collective allreduce --bytes 64K
expect 0 '^bcast +1K +tiered +[0-9.]+ ' --ranks-per-host 64 --collective bcast --bytes 1K
expect 0 '^bcast +1K +immediate +[0-9.]+ ' --ranks-per-host 64 --ranks-per-cache 8 --collective bcast --bytes 1K
expect 0 '^allgather +64K +cico +[0-9.]+ ' --ranks-per-host 64 --collective allgather --bytes 64K
expect 0 '^allgather +64K +tiered_cico +[0-9.]+ ' --ranks-per-host 64 --ranks-per-cache 8 --collective allgather --bytes 64K
expect 0 '^allreduce +8 +immediate +[0-9.]+ ' --ranks-per-host 64 --oversubscribed --collective allreduce --bytes 8
expect 0 '^allreduce +64K +hier +[0-9.]+  - +faster than dbt at this size, as measured$' --hosts 8 --ranks-per-host 4 --collective allreduce --bytes 64K
expect 0 '^allreduce +8 +hier +[0-9.]+  - +the only one that beats the fallback ' --hosts 8 --ranks-per-host 4 --collective allreduce --bytes 8
expect 0 '^bcast +1M +dbt +[0-9.]+  ring [0-9.]+ us +predicted' --hosts 8 --ranks-per-host 4 --collective bcast --bytes 1M
expect 0 '^alltoall ' "$data/dgxh100.xml"
lacks 'kernel'
grep -Fxq '8 ranks on 1 host, buffers on the host (--memory device: on the GPUs of the machine)' "$work/out"
expect 2 'there is no collective "nosuch"' --collective nosuch
for hosts in 9766 65536 1048576; do expect 2 'The job has more than 10 million ranks' --hosts $hosts --ranks-per-host 1024; done
expect 0 '^9999360 ranks on 9765 hosts' --hosts 9765 --ranks-per-host 1024 --collective allreduce,alltoall --bytes 8,1G
expect 2 'where a host has more than 1024 ranks, all calls fall back' --ranks-per-host 2,1025 --hosts 2

# buffers on GPUs
gpus=("$data/dgxh100.xml" --memory device)
expect 0 '^8 GPUs, NVSwitch; 16 rings, 370.8 of at most 370.8 GB/s; 16 trees, ' "${gpus[@]}"
for line in 'kernels may use LL128' 'offline, in no prediction: multicast' \
            '^allreduce +8 +kernel +exchange by LL, 1 channel +[0-9.]+  (rings by LL|trees by LL|zero_copy) [0-9.]+ us +[0-9.]+  ' \
            '^allreduce +1G +zero_copy +buffers of all ranks +[0-9.]+  rings by Simple [0-9.]+ us' \
            '^allgather +8 +kernel +rings by LL, 1 channel +[0-9.]+  zero_copy [0-9.]+ us' '^reduce_scatter ' '^allgatherv ' '^alltoall ' '^scan ' '^gather ' '^alltoallv +any +zero_copy '; do
  grep -Eq -- "$line" "$work/out" || { echo "no /$line/ in:" >&2; cat "$work/out" >&2; exit 1; }
done
lacks '^barrier'
expect 0 '; rings all-gather 423.77 GB/s, trees 423.77$' "${gpus[@]}"
expect 0 '; rings all-gather [0-9.]+ GB/s, trees [0-9.]+$' "$data/pcie-2socket.xml" --memory device
expect 0 'kernels do without LL128' "$data/pcie-2socket.xml" --memory device
expect 0 '^bcast .* probes compare it with staging$' "$data/pcie-2socket.xml" --memory device
expect 0 '^bcast .* buffers are on GPUs$' "$data/pcie-2socket.xml" --memory device --oversubscribed
lacks 'probes'
expect 0 '^alltoall +1M +zero_copy +buffers of all ranks +[0-9.]+  - ' "${gpus[@]}" --collective alltoall --bytes 1M
expect 0 '^bcast +64K +kernel_tree +trees by .* a rule of coll_loom_tune' "${gpus[@]}" --collective bcast --bytes 64K --tune bcast:kernel_tree
expect 0 '^bcast +64K +staged .* a rule of coll_loom_tune' "${gpus[@]}" --collective bcast --bytes 64K --tune all:staged
expect 0 '^bcast +64K +(kernel|zero_copy) ' "${gpus[@]}" --collective bcast --bytes 64K --nonblocking
expect 0 '^bcast +4 +staged .* Open MPI makes such calls itself' "${gpus[@]}" --collective bcast --bytes 4 --nonblocking
expect 0 '^bcast +4 +fallback .* Open MPI makes such calls itself' --collective bcast --bytes 4 --nonblocking
expect 0 '^bcast +64K +kernel +rings by Simple, .* probes compare it with staging$' "${gpus[@]}" --collective bcast --bytes 64K --hosts 2
expect 0 '^allreduce +64K +kernel .* probes of blocking calls, where there are any, compare it with staging$' "${gpus[@]}" --collective allreduce --bytes 64K --hosts 2 --nonblocking
expect 0 '^allreduce +1G +kernel +grids by Simple, .* buffers are on GPUs$' "${gpus[@]}" --collective allreduce --bytes 1G --hosts 2
expect 0 '^bcast +64K +zero_copy ' "${gpus[@]}" --collective bcast --bytes 64K --ranks-per-host 16
expect 0 '^bcast +64K +staged .* ranks share a GPU' "${gpus[@]}" --collective bcast --bytes 64K --ranks-per-host 24
expect 0 '^3 GPUs, NVSwitch; ' "${gpus[@]}" --ranks-per-host 3
expect 0 '^alltoallv +any +kernel +exchange by Simple, [0-9]+ channels +- ' "$data/dgxh100.xml" --memory device --hosts 2 --collective alltoallv
expect 0 '^alltoall +1M +kernel +exchange by Simple, [0-9]+ channels +[0-9.]+ ' "$data/dgxh100.xml" --memory device --hosts 2 --collective alltoall --bytes 1M
expect 0 '^1 GPU; ' "$data/gh200.xml" --memory device
expect 0 '^3 GPUs on 2 hosts, NVSwitch; 4 rings, 48 of at most 48 GB/s; 8 trees, ' "${gpus[@]}" --hosts 2 --ranks-per-host 2,1
expect 0 '^kernels go by Simple alone' "${gpus[@]}" --hosts 2
expect 0 '^allreduce +1M +kernel_tree +trees by Simple, 16 channels .* a rule of coll_loom_tune' "${gpus[@]}" --hosts 3 --bytes 1M --tune all:kernel_tree
expect 2 'for 4096 ranks at the most' "${gpus[@]}" --hosts 1000
expect 0 '"links": "exchange"' "${gpus[@]}" --json
for field in '"ll128": true' '"all_gather_gbps": ' '"channels": "8 GPUs, NVSwitch' '"predicted_us": ' '"probes_staging": ' '"runner_up": ' '"staged": '; do
  grep -Fq -- "$field" "$work/out" || { echo "no $field in the JSON" >&2; exit 1; }
done
expect 2 "$work: this is a folder.\$" --tune-file "$work"

# machines that have none
echo '<system version="1"><cpu numaid="0" affinity="00ff" arch="x86_64"/></system>' >"$work/without.xml"
expect 2 'without.xml: it has no GPUs' "$work/without.xml" --memory device
expect 2 'without.xml: it has no GPUs: give --ranks-per-host' "$work/without.xml"
expect 2 'memory' --memory nowhere
