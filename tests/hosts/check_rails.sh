#!/usr/bin/env bash
# check_rails.sh PROGRAM -- beside two virtual hosts with two links each: each link carries its share of what
# PROGRAM, loom_bench, sends in long messages.
set -euo pipefail
program=$1
virtual_hosts=$(cd "$(dirname "$0")/../.." && pwd)/scripts/hosts/virtual-hosts
sent() { "$virtual_hosts" on 0 cat "/sys/class/net/eth$1/statistics/tx_bytes"; }

before=("$(sent 0)" "$(sent 1)")
"$virtual_hosts" mpirun -n 2 --mca coll_loom_net_devices eth0,eth1 "$program" allreduce --min 16M --max 16M --iterations 3 --require-loom
bytes=($(($(sent 0) - before[0])) $(($(sent 1) - before[1])))
echo "eth0: ${bytes[0]} bytes, eth1: ${bytes[1]} bytes"
for link in 0 1; do
  if ((bytes[link] * 10 < (bytes[0] + bytes[1]) * 4)); then echo "check_rails: eth$link does not carry its share" >&2; exit 1; fi
done
