#!/usr/bin/env bash
# Runs every fuzz target for a moment: long enough to meet the obvious, short enough for every change.
# DIVVY_FUZZTIME makes it longer.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${DIVVY_FUZZTIME:-2s}
git ls-files -co --exclude-standard '*_test.go' | xargs grep -l '^func Fuzz' | xargs -n1 dirname | sort -u |
    while read -r folder; do
        grep -ho '^func Fuzz[A-Za-z0-9_]*' "$folder"/*_test.go | sort -u | while read -r _ target; do
            printf '%s %s: ' "$folder" "$target"
            if ! said=$(go test "./$folder" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s 2>&1); then
                printf 'FAILED\n%s\n' "$said"
                exit 1
            fi
            tail -n 1 <<<"$said"
        done
    done
