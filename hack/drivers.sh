#!/usr/bin/env bash
# Unpacks NVIDIA's user-space drivers below a folder, as Debian packages them: drivers.sh FOLDER. Each version's libraries
# lie in FOLDER/VERSION. Installs nothing, and leaves the machine's own sources of packages as they are. A version that
# cannot be had is said and left out.
set -euo pipefail
mkdir -p "$1"
folder=$(cd "$1" && pwd)
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keys" ] || { echo "$keys is missing: this machine does not know Debian's keys" >&2; exit 1; }
# Debian's address as this machine knows it.
address=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 '/debian/*$' || echo http://deb.debian.org/debian)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# unpack VERSION SUITE PACKAGE...
unpack() {
    local version=$1 suite=$2 into=$folder/$1 options
    shift 2
    [ ! -e "$into/.complete" ] || return 0
    rm -rf "$into" "$work/$version"
    mkdir -p "$into" "$work/$version"/{lists/partial,cache/archives/partial,root}
    echo "deb [signed-by=$keys] $address $suite non-free" >"$work/$version/sources.list"
    options=(-qq -o "Dir::Etc::sourcelist=$work/$version/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$work/$version/lists" -o "Dir::Cache=$work/$version/cache" -o Dir::State::status=/dev/null
        -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
    apt-get "${options[@]}" update || return 1
    (cd "$work/$version" && apt-get "${options[@]}" download "${@/%//$suite}") || return 1
    for package in "$work/$version"/*.deb; do
        dpkg -x "$package" "$work/$version/root" || return 1
    done
    # The files lie in folders of the packages' own choice, and are linked by other packages.
    find "$work/$version/root" -type f \( -name 'libcuda.so.*' -o -name 'libnvidia-ml.so.*' -o -name nvidia-smi -perm -100 \) \
        -exec cp -t "$into" {} + || return 1
    touch "$into/.complete"
}

tesla=libnvidia-tesla-470
unpack 470 bookworm $tesla-cuda1 $tesla-ml1 nvidia-tesla-470-smi || echo "driver 470 cannot be had" >&2
unpack 535 bookworm libcuda1 libnvidia-ml1 nvidia-smi || echo "driver 535 cannot be had" >&2
unpack 550 trixie libcuda1 libnvidia-ml1 nvidia-smi || echo "driver 550 cannot be had" >&2
unpack 555 experimental libcuda1 libnvidia-ml1 nvidia-smi || echo "driver 555 cannot be had" >&2
