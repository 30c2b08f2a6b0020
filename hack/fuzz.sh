#!/usr/bin/env bash
# Runs every fuzz target for a moment: long enough to meet the obvious, short enough for every change.
# DIVVY_FUZZTIME makes it longer (a count such as 100000x, or a time such as 10m). The default is a count,
# because go test may call the end of a time a failure ("context deadline exceeded").
set -euo pipefail
cd "$(dirname "$0")/.."

time=${DIVVY_FUZZTIME:-10000x}
git ls-files -co --exclude-standard '*_test.go' | xargs grep -l '^func Fuzz' | xargs -n1 dirname | sort -u |
    while read -r folder; do
        grep -ho '^func Fuzz[A-Za-z0-9_]*' "$folder"/*_test.go | sort -u | while read -r _ target; do
            printf '%s %s: ' "$folder" "$target"
            if ! said=$(go test "./$folder" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 100x 2>&1); then
                printf 'FAILED\n%s\n' "$said"
                exit 1
            fi
            tail -n 1 <<<"$said"
        done
    done
