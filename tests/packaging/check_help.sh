#!/usr/bin/env bash
# check_help.sh SOURCE: each script's --help is the whole comment at its top, from whatever folder it is called.
set -euo pipefail
cd "$1/.."
checked=0
for script in $(cd "$1" && grep -rlI "^#!/usr/bin/env bash" scripts); do
  expected=$(awk 'NR > 1 && !/^#/ { exit } NR > 1' "$1/$script" | sed 's/^# \{0,1\}//')
  grep -q "sed -n '2,/^set" "$1/$script" || continue  # others say it in their own words
  told=$("$(basename "$1")/$script" --help </dev/null) || { echo "$script --help: exit code $?"; exit 1; }
  [[ $told == "$expected" ]] || { echo "$script --help says:"; diff <(echo "$told") <(echo "$expected"); exit 1; }
  checked=$((checked + 1))
done
((checked >= 20)) || { echo "only $checked scripts have --help"; exit 1; }
echo "$checked scripts"
