#!/usr/bin/env bash
# Unpacks NVIDIA's CUDA runtime libraries 11, 12 and 13, and the driver's header of each, into a folder, from the Python
# packages that test/drivers/runtimes.txt names with their hashes: runtimes.sh FOLDER. Installs nothing. Where they cannot
# be had, it says so.
set -euo pipefail
list=$(cd "$(dirname "$0")/.." && pwd)/test/drivers/runtimes.txt
folder=$(mkdir -p "$1" && cd "$1" && pwd)
! cmp -s "$list" "$folder/.complete" || exit 0
rm -rf "${folder:?}"/* "$folder/.complete"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

unpack() {
    local wheel
    python3 -m venv "$work/venv" || return 1
    "$work/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
        --dest "$work" -r "$list" || return 1
    for wheel in "$work"/*.whl; do
        python3 -m zipfile -e "$wheel" "$work/unpacked" || return 1
        find "$work/unpacked" -name cuda.h -exec mv {} "$folder/cuda-$(basename "$wheel" | cut -d- -f2).h" \; || return 1
    done
    find "$work/unpacked" -name 'libcudart.so.*' -exec cp -t "$folder" {} + || return 1
    cp "$list" "$folder/.complete"
}
unpack || echo "NVIDIA's runtime libraries cannot be had" >&2
