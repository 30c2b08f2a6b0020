#!/usr/bin/env bash
# Unpacks Debian's podman with what it needs into a folder, for test/containers: podman.sh FOLDER. Installs nothing.
# Fails where it cannot be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
unpack_begin "$1" "$0" "$here/debian.sh"
debian_unpack bookworm main "$folder/debian" podman conmon runc libsubid4 libgpgme11 libassuan0 libgpg-error0 \
    libdevmapper1.02.1 libseccomp2 golang-github-containers-common golang-github-containers-image
unpack_end
