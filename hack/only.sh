#!/usr/bin/env bash
# go test, which fails also if the pattern matches no test.
#
#   hack/only.sh PATTERN [ARGUMENT OF GO TEST …]    an empty pattern stands for all tests
#
# go test itself says "no tests to run" and passes. Of a pattern with levels, as in TestA/case, each must be reached.
set -euo pipefail

pattern=$1
shift
[ -n "$pattern" ] || exec "${GO:-go}" test "$@"

ways=${pattern//[^|]/}
levels=${pattern//[^\/]/}
[ -z "$ways" ] || levels= # its ways may differ in levels
"${GO:-go}" test -v -run "$pattern" "$@" | {
    ran=
    while IFS= read -r line; do
        printf '%s\n' "$line"
        [[ $line != "=== RUN "* ]] || { below=${line//[^\/]/}; [ ${#below} -lt ${#levels} ] || ran=1; }
    done
    [ -n "$ran" ] || { echo "no test matches $pattern" >&2; exit 1; }
}
