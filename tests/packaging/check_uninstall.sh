#!/usr/bin/env bash
# check_uninstall.sh -- the target "uninstall" takes away what was installed, and nothing else. Usage: check_uninstall.sh SOURCE_FOLDER
set -euo pipefail
script=$1/cmake/uninstall.cmake
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf '%s\n' "$1" >&2; exit 1; }
manifest=$work/install_manifest.txt
destdir=$work/destdir
uninstall() { cmake -Dmanifest="$manifest" -Ddestdir_file="$destdir" -P "$script" 2>&1; }
export HOME=$work/home

prefix=$HOME/opt/loom
mkdir -p "$prefix/bin" "$prefix/share/loom" "$HOME/.openmpi/components"
touch "$prefix/bin/loom" "$prefix/share/loom/names with spaces" "$HOME/.openmpi/components/mca_coll_loom.so" "$HOME/.openmpi/mca-params.conf"
ln -s loom "$prefix/bin/link"
printf '%s\n' "$prefix/bin/loom" "$prefix/bin/link" "$prefix/share/loom/names with spaces" "$prefix/gone" \
  "$HOME/.openmpi/components/mca_coll_loom.so" >"$manifest"
said=$(uninstall) || fail "$said"
[[ $said == *'Removed 4 files'* ]] || fail "it said: $said"
[[ ! -e $HOME/opt ]] || fail "left: $(find "$HOME/opt")"
[[ ! -e $HOME/.openmpi/components && -e $HOME/.openmpi/mca-params.conf ]] || fail "in ~/.openmpi: $(find "$HOME/.openmpi")"
said=$(uninstall) && fail "a second time: $said"
[[ $said == *'Nothing to uninstall'* ]] || fail "a second time: $said"

# What others have put there stays, whatever characters names have; links to folders do, too.
for prefix in "$work/[team]/sw" "$work/jörg;s" "$work/a*b"; do
  mkdir -p "$prefix/bin" "$work/target"
  ln -s "$work/target" "$prefix/share"
  touch "$prefix/bin/loom" "$prefix/bin/others" "$prefix/share/text"
  printf '%s\n' "$prefix/bin/loom" "$prefix/share/text" >"$manifest"
  said=$(uninstall) || fail "$said"
  [[ ! -e $prefix/bin/loom && ! -e $work/target/text ]] || fail "$prefix: left: $(find "$prefix")"
  [[ -e $prefix/bin/others && -L $prefix/share && -d $work/target ]] || fail "$prefix: taken: $(find "$prefix")"
done

# An installation into another root, and not what the same paths are here.
mkdir -p "$work/stage$work/live" "$work/live"
touch "$work/stage$work/live/loom" "$work/live/loom"
echo "$work/live/loom" >"$manifest"
printf '%s' "$work/stage" >"$destdir"
said=$(uninstall) || fail "$said"
[[ -e $work/live/loom && -d $work/stage && ! -e $work/stage$work/live ]] || fail "with DESTDIR: $(find "$work/live" "$work/stage")"
mkdir -p "$work/stage/usr/local/bin" "$work/stage/usr/local/libexec/loom"
touch "$work/stage/usr/local/bin/loom" "$work/stage/usr/local/libexec/loom/job"
printf '%s\n' /usr/local/bin/loom /usr/local/libexec/loom/job >"$manifest"
said=$(uninstall) || fail "$said"
[[ -d $work/stage/usr/local/bin && ! -e $work/stage/usr/local/libexec ]] || fail "below /usr/local: $(find "$work/stage")"
rm "$destdir"

# Home itself stays, empty or not.
rm -r "$HOME/.openmpi"
for home in "$HOME" "$HOME/"; do
  touch "$HOME/one"
  echo "$work/home/one" >"$manifest"
  said=$(HOME=$home uninstall) || fail "$said"
  [[ -d $work/home ]] || fail "home is gone"
done
# What has been taken away by hand already is told.
echo "$HOME/one" >"$manifest"
said=$(uninstall) && fail "nothing was left: $said"
[[ -e $manifest ]] || fail "the manifest is gone"
