#!/usr/bin/env bash
# check_open_mpi.sh SOURCE -- which Open MPI a build folder takes, of several that scripts and empty headers play, and what it says
# where it takes none.
set -euo pipefail
source_dir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# open_mpi DIR RELEASE: plays Open MPI 4.1.RELEASE.
open_mpi() {
  local root=$work/$1 header
  mkdir -p "$root/bin" "$root/lib" "$root/include/ompi/mca/coll" "$root/include/ompi/op"
  printf '#define OMPI_%s_VERSION %d\n' MAJOR 4 MINOR 1 RELEASE "$2" >"$root/include/mpi.h"
  for header in ompi_config.h ompi/mca/coll/coll.h ompi/op/op.h; do : >"$root/include/$header"; done
  touch "$root"/lib/lib{mpi,open-pal}.so
  cat >"$root/bin/mpicc" <<EOF
#!/bin/sh
case \$1 in
  --showme:incdirs) echo $root/include ;;
  --showme:libdirs) echo $root/lib ;;
  --showme:libs) echo mpi ;;
  *) exit 1 ;;
esac
EOF
  printf '#!/bin/sh\necho "path:${2}:%s/components"\n' "$root" >"$root/bin/ompi_info"
  printf '#!/bin/sh\n' >"$root/bin/mpirun"
  chmod +x "$root"/bin/*
}

mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(which C)
include($source_dir/cmake/LoomOpenMPI.cmake)
message(STATUS "takes \${LOOM_HAVE_OPENMPI} \${LOOM_OPENMPI_VERSION} \${LOOM_OMPI_INFO} \${LOOM_MPIEXEC} \${LOOM_OPENMPI_WHY_NOT}")
EOF

# expect TEXT [CMAKE_OPTION...]: what cmake says, in the build folder of the call before, has this in it.
expect() {
  local said
  said=$(PATH=${path:+$path:}$PATH cmake -S "$work/project" -B "$work/build" "${@:2}" 2>&1) || { echo "$said" >&2; exit 1; }
  [[ $said == *"$1"* ]] && return
  printf 'expected "%s" in:\n%s\n' "$1" "$said" >&2
  exit 1
}
again() { rm -rf "$work/build"; expect "$@"; }

open_mpi first 1
open_mpi later 2
open_mpi chosen 3
mv "$work/later/bin/mpicc" "$work/later/bin/mpicc.openmpi"  # Debian's name
mkdir -p "$work/mpich/bin"
printf '#!/bin/sh\nexit 1\n' >"$work/mpich/bin/mpicc"
chmod +x "$work/mpich/bin/mpicc"

# The first on PATH that is Open MPI's, with its programs, or the one that is named.
path=$work/first/bin:$work/later/bin
again "takes ON 4.1.1 $work/first/bin/ompi_info $work/first/bin/mpirun"
path=$work/mpich/bin:$work/later/bin
again "takes ON 4.1.2 $work/later/bin/ompi_info $work/later/bin/mpirun"
path=$work/first/bin
again "takes ON 4.1.3 $work/chosen/bin/ompi_info $work/chosen/bin/mpirun" -DLOOM_MPICC="$work/chosen/bin/mpicc"
again "takes OFF" -DLOOM_MPICC="$work/mpich/bin/mpicc"
expect "is it Open MPI's?"
# Another one in a build folder that has taken one: with its programs, but those that are named stay.
again "takes ON 4.1.1 $work/first/bin/ompi_info"
expect "takes ON 4.1.3 $work/chosen/bin/ompi_info $work/chosen/bin/mpirun" -DLOOM_MPICC="$work/chosen/bin/mpicc"
expect "takes ON 4.1.1 $work/first/bin/ompi_info $work/later/bin/mpirun" -DLOOM_MPICC="$work/first/bin/mpicc" \
       -DLOOM_MPIEXEC="$work/later/bin/mpirun"
expect "takes ON 4.1.1 $work/first/bin/ompi_info $work/later/bin/mpirun"
# Headers that are installed after the first try, and others of the same version without them.
mv "$work/first/include/ompi" "$work/aside"
again "takes OFF 4.1.1"
expect "are missing or do not compile"
mv "$work/aside" "$work/first/include/ompi"
expect "takes ON 4.1.1"
open_mpi bare 1
rm -r "$work/bare/include/ompi"
expect "takes OFF 4.1.1" -DLOOM_MPICC="$work/bare/bin/mpicc"

# A build of loom without a plugin says so.
said=$(cmake -S "$source_dir" -B "$work/loom" -DLOOM_MPICC="$work/mpich/bin/mpicc" -DLOOM_CUDA=OFF -DBUILD_TESTING=OFF 2>&1 | tr -s ' \n' ' ')
[[ $said == *"CMake Warning"*"no plugin is built: '$work/mpich/bin/mpicc "* ]] || { echo "no warning in: $said" >&2; exit 1; }
