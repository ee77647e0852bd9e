#!/usr/bin/env bash
# check_licences.sh SOURCE BUILD -- the licences are installed, and those of all libraries whose headers the sources include and
# that are not linked.
set -euo pipefail
source_dir=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A part alone: the manifest of the whole stays as it is.
env -u DESTDIR cmake --install "$build" --prefix "$work" --component licences >/dev/null
installed=$work/share/doc/loom
cmp "$source_dir/LICENSE" "$installed/LICENSE"
cmp "$source_dir/THIRD-PARTY-NOTICES" "$installed/THIRD-PARTY-NOTICES"

folders=(base topo search connect device ucx_transport component tools mpi_examples)
check() {  # what sources include, name, copyright line, a line of its licence
  (cd "$source_dir" && grep -rqE "#include <$1" "${folders[@]}") || { echo "nothing includes $1: are notices of $2 needed?" >&2; exit 1; }
  local text
  for text in "$2: https" "$3" "$4"; do
    grep -Fq -- "$text" "$installed/THIRD-PARTY-NOTICES" || { echo "THIRD-PARTY-NOTICES lacks '$text' of $2" >&2; exit 1; }
  done
}
check fmt/ fmt 'Victor Zverovich' 'Optional exception to the license'
check pugixml pugixml 'Arseny Kapoulkine' 'Permission is hereby granted'
check hwy/ Highway 'Google LLC' 'Apache License'
check CLI/ CLI11 'University of Cincinnati' 'Redistributions in binary form'
check nlohmann/ 'JSON for Modern C++' 'Niels Lohmann' 'Permission is hereby granted'
if (cd "$source_dir" && grep -rnE '#include <(cuda/|cub/|thrust/|nvtx)' "${folders[@]}"); then
  echo "THIRD-PARTY-NOTICES has nothing of CCCL or NVTX" >&2
  exit 1
fi
