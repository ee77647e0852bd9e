#!/usr/bin/env bash
# check_release.sh ROOT -- scripts/release makes a version of a clone of ROOT's last commit: its number, its changes, the same
# archive each time, which configures without git, and a tag; what would be no release it refuses, and undoes what has failed.
# Exit code 77: git does not take ROOT for a work tree.
set -euo pipefail
unset $(git rev-parse --local-env-vars 2>/dev/null || true)  # in a hook they lead to ROOT's own repository
root=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ $(git -C "$root" rev-parse --show-toplevel 2>&1) == "$root" ]] || { echo "SKIPPED: git does not take $root for a work tree"; exit 77; }
git clone --quiet "$root" "$work/loom"
cd "$work/loom"
git config user.name test
git config user.email test@localhost
git config commit.gpgsign false
git config tag.gpgsign false
something_new() {
  printf -- '- Something new.\n' | sed -i '/^## Unreleased$/r /dev/stdin' CHANGELOG.md
  git commit --quiet --all --message "Something new"
}
something_new

refused() {  # what it says, arguments
  local says=$1 before
  shift
  before=$(git rev-parse HEAD)
  if scripts/release "$@" >"$work/said" 2>&1; then echo "release $* was not refused"; exit 1; fi
  grep -q -- "$says" "$work/said" || { echo "release $*: no '$says' in:"; cat "$work/said"; exit 1; }
  [[ $(git rev-parse HEAD) == "$before" ]] || { echo "release $* has made a commit"; exit 1; }
}
refused "which version" 1.2
touch new-file
refused "not committed: ?? new-file" 9.8.7
rm new-file
touch "$work/file"
refused "cannot make" 9.8.7 --out "$work/file/out"
[[ -z $(git status --porcelain) && -z $(git tag --list v9.8.7) ]] || { echo "a failed release has left something"; git status --short; exit 1; }
scripts/release 9.8.7 --dry-run --out "$work/dry" >"$work/said" || { cat "$work/said"; exit 1; }
(cd "$work/dry" && sha256sum --check --quiet loom-9.8.7.tar.gz.sha256)
[[ -z $(git status --porcelain) && -z $(git tag --list v9.8.7) ]] || { echo "a dry run has changed something"; exit 1; }
scripts/release 9.8.7 --out "$work/out" >"$work/said" || { cat "$work/said"; exit 1; }
grep -q '^project(loom VERSION 9.8.7 ' CMakeLists.txt
grep -q "^## 9.8.7, $(date +%Y)" CHANGELOG.md
grep -q 'version("9.8.7", tag="v9.8.7")' packaging/spack/spack_repo/loom/packages/openmpi_loom/package.py
[[ $(git describe) == v9.8.7 ]]
refused "a tag v9.8.7 already" 9.8.7
refused "nothing under" 9.8.8
(cd "$work/out" && sha256sum --check --quiet loom-9.8.7.tar.gz.sha256)
git archive --format=tar --prefix=loom-9.8.7/ v9.8.7 | gzip -n -9 | cmp - "$work/out/loom-9.8.7.tar.gz"
for file in LICENSE THIRD-PARTY-NOTICES; do
  tar -xzOf "$work/out/loom-9.8.7.tar.gz" "loom-9.8.7/$file" | cmp - "$file"
done
if tar -tzf "$work/out/loom-9.8.7.tar.gz" | grep -E '^loom-9.8.7/(\.git/|\.ci/|build/)'; then echo "it holds what is no source"; exit 1; fi
something_new
refused "9.8.6 is not above the last version, 9.8.7" 9.8.6
