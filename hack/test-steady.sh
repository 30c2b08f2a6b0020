#!/usr/bin/env bash
# Runs `make test` several times, the second half of them beside a load on every core, and counts the failures.
# Each run's output goes to build/steady/. RUNS sets the number of runs, by default 10.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${RUNS:-10}
logs=build/steady
mkdir -p "$logs"

load=()
start_load() {
    for _ in $(seq "$(nproc)"); do
        (while :; do :; done) &
        load+=($!)
    done
}
end_load() {
    [ ${#load[@]} -eq 0 ] || kill "${load[@]}" 2>/dev/null || true
    load=()
}
trap end_load EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

failures=0
for run in $(seq "$runs"); do
    beside=idle
    if [ "$run" -gt $(((runs + 1) / 2)) ]; then
        beside="beside a load"
        [ ${#load[@]} -gt 0 ] || start_load
    fi
    begun=$SECONDS
    if make test >"$logs/$run.log" 2>&1; then
        result=passed
    else
        result="FAILED: see $logs/$run.log"
        failures=$((failures + 1))
    fi
    printf 'run %d of %d (%s): %d s, %s\n' "$run" "$runs" "$beside" $((SECONDS - begun)) "$result"
done
echo "$failures of $runs runs failed"
[ "$failures" -eq 0 ]
