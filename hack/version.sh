#!/usr/bin/env bash
# Copies internal/version/VERSION to the files that repeat it: the chart, and the images that documents and tests name.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(cat internal/version/VERSION)
sed -i -E "s/^(version|appVersion): .*/\1: $version/" deploy/chart/Chart.yaml
grep -rlE 'ghcr\.io/divvy-gpu/[a-z]+:[0-9]' README.md docs test |
    xargs sed -i -E "s#(ghcr\.io/divvy-gpu/[a-z]+):[0-9][0-9A-Za-z_.-]*#\1:$version#g"
