#!/usr/bin/env bash
# Unpacks NVIDIA's user-space drivers below a folder, as Debian packages them: drivers.sh FOLDER. In FOLDER/VERSION lie
# each version's libraries, nvidia-smi, the programs of MPS where Debian has them, and `release`, the version of Debian's
# package. Installs nothing. A version that cannot be had is said and left out.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
folder=$(mkdir -p "$1" && cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# unpack VERSION RELEASE PACKAGE..., the one with libcuda first. What an earlier run unpacked from the same packages stays.
unpack() {
    local into=$folder/$1 from=$work/$1 changes
    [ "$(cat "$into/.complete" 2>/dev/null)" != "${*:2}" ] || return 0
    rm -rf "$into"
    mkdir -p "$into"
    debian_unpack "$2" non-free "$from" "${@:3}" || return 1
    # The files lie in folders of the packages' own choice, and are linked by other packages.
    find "$from" -type f \( -name 'libcuda.so.*' -o -name 'libnvidia-ml.so.*' \
        -o -perm -100 \( -name nvidia-smi -o -name nvidia-cuda-mps-control -o -name nvidia-cuda-mps-server \) \) \
        -exec cp -t "$into" {} + || return 1
    changes=$(zcat "$from/usr/share/doc/$3/changelog.Debian.gz") || return 1
    sed -nE '1s/^[^ ]+ \(([^)]+)\).*/\1/p' <<<"$changes" >"$into/release" || return 1
    echo "${*:2}" >"$into/.complete"
}

# Debian's 470 has no package of MPS.
tesla=libnvidia-tesla-470
unpack 470 bookworm $tesla-cuda1 $tesla-ml1 nvidia-tesla-470-smi || echo "driver 470 cannot be had" >&2
current=(libcuda1 libnvidia-ml1 nvidia-smi nvidia-cuda-mps)
unpack 535 bookworm "${current[@]}" || echo "driver 535 cannot be had" >&2
unpack 550 trixie "${current[@]}" || echo "driver 550 cannot be had" >&2
unpack 555 experimental "${current[@]}" || echo "driver 555 cannot be had" >&2
