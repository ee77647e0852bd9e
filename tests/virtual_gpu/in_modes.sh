#!/usr/bin/env bash
# in_modes.sh -- runs a command on the virtual GPU in several modes, which say how kernels run (driver/virtual_gpu.hpp).
#
#   in_modes.sh COMMAND...
#
# A sample of modes and seeds; with LOOM_TEST_FULL=1 all modes with many seeds. Ends with the first that fails.
set -euo pipefail

modes=(weak,random votes,random,weak) seeds=1
[[ ${LOOM_TEST_FULL:-0} == 0 ]] || modes=('' random votes,random weak,random votes,random,weak) seeds=8
for mode in "${modes[@]}"; do
  for ((seed = 1; seed <= seeds; ++seed)); do
    status=0
    VIRTUAL_GPU_MODE=$mode VIRTUAL_GPU_SEED=$seed "$@" || status=$?
    [[ $status == 0 ]] || { echo "in_modes: status $status with VIRTUAL_GPU_MODE=$mode VIRTUAL_GPU_SEED=$seed" >&2; exit "$status"; }
  done
done
