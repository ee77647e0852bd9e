#!/usr/bin/env bash
# check_uninstall.sh -- the target "uninstall" takes away what was installed, and nothing else. Usage: check_uninstall.sh SOURCE_FOLDER
set -euo pipefail
script=$1/cmake/uninstall.cmake
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf '%s\n' "$1" >&2; exit 1; }

export HOME=$work/home
prefix=$HOME/opt/loom
mkdir -p "$prefix/bin" "$prefix/share/loom" "$HOME/.openmpi/components"
touch "$prefix/bin/loom" "$prefix/share/loom/names with spaces" "$HOME/.openmpi/components/mca_coll_loom.so" "$HOME/.openmpi/mca-params.conf"
ln -s loom "$prefix/bin/link"
manifest=$work/install_manifest.txt
printf '%s\n' "$prefix/bin/loom" "$prefix/bin/link" "$prefix/share/loom/names with spaces" "$prefix/gone" \
  "$HOME/.openmpi/components/mca_coll_loom.so" >"$manifest"

said=$(cmake -Dmanifest="$manifest" -P "$script" 2>&1)
[[ $said == *'Removed 4 files'* ]] || fail "it said: $said"
[[ ! -e $HOME/opt ]] || fail "left: $(find "$HOME/opt")"
[[ ! -e $HOME/.openmpi/components && -e $HOME/.openmpi/mca-params.conf ]] || fail "in ~/.openmpi: $(find "$HOME/.openmpi")"
said=$(cmake -Dmanifest="$manifest" -P "$script" 2>&1) && fail "a second time: $said"
[[ $said == *'Nothing to uninstall'* ]] || fail "a second time: $said"

# Home itself stays, empty or not.
touch "$HOME/one"
rm -r "$HOME/.openmpi"
echo "$HOME/one" >"$manifest"
cmake -Dmanifest="$manifest" -P "$script" >/dev/null 2>&1
[[ -d $HOME ]] || fail "home is gone"
