#!/usr/bin/env bash
# Unpacks libvirt's schemas and xmllint of Debian 12 into FOLDER/tree, with the digests of the packages in FOLDER/digests:
# libvirt.sh FOLDER. Installs nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
unpack_begin "$1" "$0" "$here/debian.sh"
debian_unpack bookworm main "$folder/tree" libvirt0 libxml2-utils libxml2 libicu72
(cd "$folder/tree" && find usr/share/libvirt usr/bin -type f -print0 | sort -z | xargs -0 sha256sum) >"$folder/digests"
unpack_end
