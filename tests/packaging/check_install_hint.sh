#!/usr/bin/env bash
# check_install_hint.sh -- the line for mpirun at the end of cmake --install. Usage: check_install_hint.sh SOURCE_FOLDER
set -euo pipefail
script=$1/cmake/install_hint.cmake
unset DESTDIR

# expect TEXT OPENMPI_VERSION FOLDER [CMAKE_OPTION...]: the text, or "" where nothing may be said.
expect() {
  local text=$1 said
  said=$(HOME=/home/me cmake -Dopenmpi_version="$2" -Dopenmpi_component_dir=/own -Dcomponent_dir="$3" "${@:4}" -P "$script" 2>&1)
  if [[ -z $text && -z $said ]] || [[ -n $text && $said == *"$text"* ]]; then return; fi
  printf '%s installed in %s: expected "%s" in:\n%s\n' "$2" "$3" "$text" "$said" >&2
  exit 1
}
quiet='--pmixmca mca_base_component_show_load_errors none --mca coll_loom_enable 1 ./app'
expect 'mpirun --mca coll_loom_enable 1 ./app' 4.1.4 /own
expect 'mpirun --mca coll_loom_enable 1 ./app' 4.1.4 /home/me/.openmpi/components
expect 'mpirun --mca mca_base_component_path /opt/components:/own --mca coll_loom_enable 1 ./app' 4.1.4 /opt/components
expect "mpirun --mca mca_base_component_path /own $quiet" 5.0.7 /own
expect "mpirun --mca mca_base_component_path /home/me/.openmpi/components $quiet" 6.0.0 /home/me/.openmpi/components
expect "mca_base_component_path '/opt/my components:/own' --mca" 4.1.4 '/opt/my components'
expect "mca_base_component_path '/a;\$b/it'\\''s' --pmixmca" 5.0.7 "/a;\$b/it's"
expect "OMPI_MCA_mca_base_component_path='/opt/my components' in the environment" 5.0.7 '/opt/my components'
expect 'OMPI_MCA_mca_base_component_path=/own in the environment' 5.0.7 /own
expect 'loom and loom_bench are in /opt/loom/bin, which is not on PATH' 4.1.4 /own -DCMAKE_INSTALL_PREFIX=/opt/loom
PATH=$PATH:/opt/loom/bin
[[ $(cmake -Dopenmpi_version=4.1.4 -Dopenmpi_component_dir=/own -Dcomponent_dir=/own -DCMAKE_INSTALL_PREFIX=/opt/loom -P "$script" 2>&1) != *'not on PATH'* ]] ||
  { echo 'It says that /opt/loom/bin is not on PATH' >&2; exit 1; }
expect '' 5.0.7 /own -Dplugin_dir=/packages
DESTDIR=/stage expect '' 5.0.7 /own
