#!/usr/bin/env bash
# Unpacks Jupyter's client and its kernel for Python from the Python package index, and Debian's Python that runs them, into a
# folder, for test/containers: jupyter.sh FOLDER. Installs nothing on the machine. Fails where something cannot be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
list=$here/../test/containers/jupyter.txt
unpack_begin "$1" "$0" "$here/debian.sh" "$list"
debian_unpack bookworm main "$folder/debian" python3-minimal python3.11-minimal libpython3.11-minimal libpython3.11-stdlib \
    libexpat1 libffi8 zlib1g libbz2-1.0 liblzma5 libsqlite3-0 libssl3

python3 -m venv "$folder/tools"
"$folder/tools/bin/python" -m pip --quiet --disable-pip-version-check install --require-hashes --no-deps --only-binary=:all: \
    --implementation cp --python-version 3.11 --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 \
    --platform manylinux2010_x86_64 --target "$folder/modules" -r "$list"
rm -rf "$folder/tools"
unpack_end
