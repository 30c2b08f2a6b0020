#!/usr/bin/env bash
# Unpacks the C library of Debian 11 (GLIBC_2.31) into FOLDER/root, for tests: old-libc.sh FOLDER. Installs nothing.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
release=bullseye
folder=$(mkdir -p "$1" && cd "$1" && pwd)
[ "$(cat "$folder/.release" 2>/dev/null)" != "$release" ] || exit 0
rm -f "$folder/.release"
debian_unpack "$release" main "$folder/root" libc6
echo "$release" >"$folder/.release"
