#!/usr/bin/env bash
# check_gpu_ports.sh PROGRAM VIRTUAL-GPUS MACHINE -- beside two virtual hosts with two links each: each link carries
# half of what kernels send, to 5 %, for MACHINE has as many GPUs next to each of two ports. PROGRAM is loom_bench.
# With LOOM_TEST_FULL also by trees and hosts.
set -euo pipefail
program=$1 gpus=$2 machine=$3
scripts=$(cd "$(dirname "$0")/../.." && pwd)/scripts
sent() { "$scripts/hosts/virtual-hosts" on 0 cat "/sys/class/net/eth$1/statistics/tx_bytes"; }
die() { echo "check_gpu_ports: kernel_$way: $1" >&2; exit 1; }

ways="ring"
if [[ -n ${LOOM_TEST_FULL:-} ]]; then ways+=" hier tree"; fi
for way in $ways; do
  before=("$(sent 0)" "$(sent 1)")
  log=$("$scripts/hosts/virtual-hosts" mpirun -n 8 -x LD_LIBRARY_PATH="$gpus" -x VIRTUAL_GPU_MACHINE="$machine" \
    --mca coll_loom_topo_file "$machine" --mca coll_loom_net_devices eth0,eth1 --mca coll_loom_verbose 1 \
    --mca coll_loom_tune "all:kernel,all:kernel_$way" "$scripts/own-gpu" "$program" allreduce --memory device \
    --min 4M --max 4M --iterations 4 --warmup 0 --check --require-loom 2>&1) || { echo "$log"; die "it failed"; }
  bytes=($(($(sent 0) - before[0])) $(($(sent 1) - before[1])))
  echo "kernel_$way: eth0: ${bytes[0]} bytes, eth1: ${bytes[1]} bytes"
  grep -q 'Channels go through the ports that they were planned for; on this rank eth' <<<"$log" || { echo "$log"; die "its ports are not used"; }
  for link in 0 1; do
    if ((bytes[link] * 2 * 100 < (bytes[0] + bytes[1]) * 95)); then die "eth$link does not carry its share"; fi
  done
done
