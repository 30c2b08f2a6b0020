#!/usr/bin/env bash
# Unpacks NVIDIA's user-space drivers below a folder, as Debian packages them: drivers.sh FOLDER. Each version's libraries
# lie in FOLDER/VERSION. Installs nothing. A version that cannot be had is said and left out.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
folder=$(mkdir -p "$1" && cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# unpack VERSION RELEASE PACKAGE...
unpack() {
    local into=$folder/$1
    [ ! -e "$into/.complete" ] || return 0
    rm -rf "$into"
    mkdir -p "$into"
    debian_unpack "$2" non-free "$work/$1" "${@:3}" || return 1
    # The files lie in folders of the packages' own choice, and are linked by other packages.
    find "$work/$1" -type f \( -name 'libcuda.so.*' -o -name 'libnvidia-ml.so.*' -o -name nvidia-smi -perm -100 \) \
        -exec cp -t "$into" {} + || return 1
    touch "$into/.complete"
}

tesla=libnvidia-tesla-470
unpack 470 bookworm $tesla-cuda1 $tesla-ml1 nvidia-tesla-470-smi || echo "driver 470 cannot be had" >&2
unpack 535 bookworm libcuda1 libnvidia-ml1 nvidia-smi || echo "driver 535 cannot be had" >&2
unpack 550 trixie libcuda1 libnvidia-ml1 nvidia-smi || echo "driver 550 cannot be had" >&2
unpack 555 experimental libcuda1 libnvidia-ml1 nvidia-smi || echo "driver 555 cannot be had" >&2
