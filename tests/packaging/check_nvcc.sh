#!/usr/bin/env bash
# check_nvcc.sh SOURCE NVCC -- configuring the sources where nvcc does not know all architectures, C++20 or the host's compiler. A
# wrapper of a newer nvcc plays these. Exit code 0: as it should be; 1: not.
set -euo pipefail
source_dir=$1 nvcc=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/nvcc" <<EOF
#!/usr/bin/env bash
args=("\$@")
for arg in "\$@"; do
  case \$PLAYS:\$arg in
    no-100:--list-gpu-arch) printf 'compute_70\ncompute_80\ncompute_90\n'; exit 0 ;;
    no-100:*compute_100*) echo "Unsupported gpu architecture 'compute_100'" >&2; exit 1 ;;
    old-for-host:*.cu) echo "unsupported GNU version" >&2; exit 1 ;;
    no-20:-std=c++20) echo "Value 'c++20' is not defined for option 'std'" >&2; exit 1 ;;
  esac
done
args=("\${args[@]//compute_70/compute_80}")
exec "$nvcc" "\${args[@]//sm_70/sm_80}"
EOF
chmod +x "$work/nvcc"

# expect PLAYS TEXT [argument...]: what cmake says has this in it, on one line.
expect() {
  local plays=$1 text=$2 said
  shift 2
  rm -rf "$work/build"
  said=$(PLAYS=$plays CUDACXX=$work/nvcc cmake -S "$source_dir" -B "$work/build" -D LOOM_OPENMPI=OFF -D BUILD_TESTING=OFF "$@" 2>&1 |
         tr -s ' \n' ' ') || true
  [[ $said == *"$text"* ]] && return 0
  echo "$plays: not said: $text" >&2
  echo "$said" >&2
  exit 1
}

expect no-100 "for sm_70, sm_80, sm_90 and later"
expect no-20 "Value 'c++20' is not defined for option 'std' It is not used."
expect old-for-host "unsupported GNU version Set CUDACXX to another nvcc (12.0 or later), CUDAHOSTCXX to" -D LOOM_CUDA=nvcc
