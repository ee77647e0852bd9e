#!/usr/bin/env bash
# check_rails.sh PROGRAM -- beside two virtual hosts with two links each: of what PROGRAM, loom_bench, sends in long
# messages, each link carries its share.
set -euo pipefail
program=$1
virtual_hosts=$(cd "$(dirname "$0")/../.." && pwd)/scripts/virtual-hosts
sent() { "$virtual_hosts" on 0 cat "/sys/class/net/eth$1/statistics/tx_bytes"; }

before=("$(sent 0)" "$(sent 1)")
"$virtual_hosts" mpirun -n 2 --mca coll_loom_net_devices eth0,eth1 "$program" allreduce --min 16M --max 16M --iterations 3 --require-loom
for link in 0 1; do
  bytes=$(($(sent $link) - before[link]))
  echo "eth$link: $bytes bytes"
  # Of the 16 MiB that a host sends in each of three calls, not counting those before.
  if ((bytes < 3 * (16 << 20) * 4 / 10)); then echo "check_rails: eth$link does not carry its share" >&2; exit 1; fi
done
