#!/usr/bin/env bash
# Unpacks Debian's podman with what it needs into a folder, for test/containers: podman.sh FOLDER. Installs nothing.
# Fails where it cannot be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
folder=$(mkdir -p "$1" && cd "$1" && pwd)

[ "$(uname -m)" = x86_64 ] || { echo "the programs are for x86-64" >&2; exit 1; }
wanted=$(cat "$0" "$here/debian.sh" | sha256sum)
[ "$(cat "$folder/.complete" 2>/dev/null)" != "$wanted" ] || exit 0
rm -rf "$folder"
mkdir -p "$folder"
debian_unpack bookworm main "$folder/debian" podman conmon runc libsubid4 libgpgme11 libassuan0 libgpg-error0 \
    libdevmapper1.02.1 libseccomp2 golang-github-containers-common golang-github-containers-image
echo "$wanted" >"$folder/.complete"
