#!/usr/bin/env bash
# gpus_of_host.sh WHICH,WHICH,... PROGRAM ARGUMENTS... -- beside virtual hosts: PROGRAM with the GPUs that its host has.
#   own   each rank one of its own
#   one   all ranks the same
#   none  no driver: `--memory device` becomes `--memory host`
set -euo pipefail
IFS=, read -ra which <<<"$1"
shift
host=$(hostname)
case ${which[${host#host}]} in
  own) export CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK ;;
  one) export CUDA_VISIBLE_DEVICES=0 ;;
  none)
    unset LD_LIBRARY_PATH
    for ((i = 1; i < $#; ++i)); do
      if [[ ${!i} == --memory ]]; then set -- "${@:1:i}" host "${@:i+2}"; fi
    done ;;
  *) echo "gpus_of_host: what is '${which[${host#host}]}'?" >&2; exit 2 ;;
esac
exec "$@"
