#!/usr/bin/env bash
# check_release.sh ROOT -- scripts/release makes a version of a clone: its number, its changes, a tag, the same archive
# each time, which configures without git; and it refuses what would be no release. Exit code 77: ROOT has no git.
set -euo pipefail
root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git -C "$root" rev-parse HEAD >/dev/null 2>&1 || { echo "SKIPPED: $root is no git work tree"; exit 77; }
git clone --quiet "$root" "$work/loom"
cd "$work/loom"
git config user.name test
git config user.email test@localhost

refused() {  # what it says, arguments
  local says=$1
  shift
  if scripts/release "$@" --out "$work/out" >"$work/said" 2>&1; then echo "release $* was not refused"; exit 1; fi
  grep -q -- "$says" "$work/said" || { echo "release $*: no '$says' in:"; cat "$work/said"; exit 1; }
}
refused "which version" 1.2
touch new-file
refused "not committed: ?? new-file" 9.8.7
rm new-file
scripts/release 9.8.7 --dry-run --out "$work/dry" >"$work/said" || { cat "$work/said"; exit 1; }
[[ -z $(git status --porcelain) && -z $(git tag --list v9.8.7) ]] || { echo "a dry run has changed something"; exit 1; }
scripts/release 9.8.7 --out "$work/out" >"$work/said" || { cat "$work/said"; exit 1; }
grep -q '^project(loom VERSION 9.8.7 ' CMakeLists.txt
grep -q "^## 9.8.7, $(date +%Y)" CHANGELOG.md
[[ $(git describe) == v9.8.7 ]]
refused "a tag v9.8.7 already" 9.8.7
refused "nothing under" 9.8.8
(cd "$work/out" && sha256sum --check --quiet loom-9.8.7.tar.gz.sha256)
git archive --format=tar --prefix=loom-9.8.7/ v9.8.7 | gzip -n -9 | cmp - "$work/out/loom-9.8.7.tar.gz"
if tar -tzf "$work/out/loom-9.8.7.tar.gz" | grep -E '^loom-9.8.7/(\.git/|\.ci/|build/)'; then echo "it holds what is no source"; exit 1; fi
printf -- '- Something new.\n' | sed -i '/^## Unreleased$/r /dev/stdin' CHANGELOG.md
git commit --quiet --all --message "Something new"
refused "9.8.6 is not above the last version, 9.8.7" 9.8.6
