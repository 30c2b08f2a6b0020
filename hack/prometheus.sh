#!/usr/bin/env bash
# Unpacks Prometheus and promtool below a folder, as Debian packages them: prometheus.sh FOLDER. Installs nothing. Where
# they cannot be had it says so, and the tests that need them say it again.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
folder=$1
[ ! -x "$folder/usr/bin/promtool" ] || exit 0
command -v apt-get >/dev/null || { echo "Prometheus cannot be had: this machine has no apt-get" >&2; exit 0; }
mkdir -p "$(dirname "$folder")"
debian_unpack bookworm main "$folder.part" prometheus && mv -T "$folder.part" "$folder" || echo "Prometheus cannot be had" >&2
