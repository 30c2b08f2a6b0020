#!/usr/bin/env bash
# Seeks new inputs with every fuzz target, one target after another.
#
#   hack/fuzz.sh [PATTERN]    only targets whose "folder FuzzName" the extended regular expression matches
#
# DIVVY_FUZZTIME is the time for each target, by default 5m. DIVVY_FUZZ_TOTAL, in seconds, ends the whole after that
# time: the targets come in another order for every commit, so that each gets its turn. An input that makes a
# target fail is kept as a seed file in the package's testdata/fuzz, printed here, and fails this script. `make test`
# runs all seeds.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${DIVVY_FUZZTIME:-5m}
total=${DIVVY_FUZZ_TOTAL:-}
started=$SECONDS

targets() {
    git ls-files -co --exclude-standard '*_test.go' | xargs grep -Eo '^func Fuzz[A-Za-z0-9_]*' /dev/null |
        sed -E 's|/[^/]*:func | |' | { grep -E "${1:-.}" || true; } | sort -u
}
seeds() { git ls-files -co --exclude-standard '*/testdata/fuzz/*' | sort; }

if [ -n "$total" ]; then
    mapfile -t list < <(targets "${1:-}" | shuf --random-source=<(yes "$(git rev-parse HEAD)"))
else
    mapfile -t list < <(targets "${1:-}")
fi

[ ${#list[@]} -gt 0 ] || { echo "no fuzz target matches ${1:-}" >&2; exit 1; }

known=$(mktemp)
trap 'rm -f "$known"' EXIT
findings=0
for line in "${list[@]}"; do
    if [ -n "$total" ] && [ $((SECONDS - started)) -ge "$total" ]; then
        echo "the time is over: the remaining targets were not fuzzed"
        break
    fi
    read -r folder target <<<"$line"
    printf '%s %s: ' "$folder" "$target"
    seeds >"$known"
    if said=$(go test "./$folder" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10s 2>&1); then
        grep 'elapsed' <<<"$said" | tail -n 1
        continue
    fi
    mapfile -t new < <(seeds | comm -13 "$known" -)
    # go test may take the end of the time for a failure: then there is no input.
    if [ ${#new[@]} -eq 0 ] && grep -q 'context deadline exceeded' <<<"$said"; then
        grep 'elapsed' <<<"$said" | tail -n 1
        continue
    fi
    findings=$((findings + 1))
    printf 'FAILED\n%s\n' "$said"
    for seed in "${new[@]}"; do
        printf -- '--- seed file %s\n%s\n' "$seed" "$(cat "$seed")"
    done
done
[ "$findings" -eq 0 ]
