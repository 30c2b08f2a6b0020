#!/usr/bin/env bash
# Unpacks Debian's Apptainer with the C library that it needs into a folder, for test/containers: apptainer.sh FOLDER. Only
# Debian's unstable release has it. Installs nothing. Where it cannot be had it says so, and the test says it again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
unpack_begin "$1" "$0" "$here/debian.sh"
debian_unpack sid main "$folder/debian" apptainer libc6 libseccomp2 libsqlite3-0 && unpack_end || echo "Apptainer cannot be had" >&2
