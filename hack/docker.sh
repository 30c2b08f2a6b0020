#!/usr/bin/env bash
# Unpacks two versions of Docker with what they need into a folder, for test/containers: docker.sh FOLDER. In FOLDER/20 lies
# that of Debian 12, which is older than CDI, and in FOLDER/26 that of Debian 13. Installs nothing. Fails where they cannot
# be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
unpack_begin "$1" "$0" "$here/debian.sh"
debian_unpack bookworm main "$folder/20" docker.io containerd runc libdevmapper1.02.1 libseccomp2
# They run with the libraries and the runc of Debian 12.
debian_unpack trixie main "$folder/26" docker.io docker-cli containerd
unpack_end
