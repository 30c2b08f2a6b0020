#!/usr/bin/env bash
# Unpacks the programs of other projects that test/programs runs below a folder: programs.sh FOLDER. Those of Debian lie in
# FOLDER/debian with the Python that runs all of them, those of the Python package index in a folder for each list in
# test/programs/requirements. Installs nothing on the machine. Fails where something cannot be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
lists=$here/../test/programs/requirements
unpack_begin "$1" "$0" "$here/debian.sh" "$lists"/*.txt

# What the packages need and a machine with a C compiler has is left out: the C and C++ libraries.
python=(python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libexpat1 libffi8 zlib1g libbz2-1.0 liblzma5)
numba=(python3-numba python3-llvmlite python3-numpy python3-pkg-resources libllvm14 libedit2 libbsd0 libmd0 libtinfo6 libz3-4
    libxml2 libicu72 libgomp1 libblas3 liblapack3 libgfortran5 libquadmath0)
hashcat=(hashcat hashcat-data libminizip1 libxxhash0)
debian_unpack bookworm main "$folder/debian" "${python[@]}" "${numba[@]}" "${hashcat[@]}"
# hashcat looks for its files beside itself wherever it is not in /usr/bin.
ln "$folder/debian/usr/bin/hashcat" "$folder/debian/usr/share/hashcat/hashcat"

python3 -m venv "$folder/tools"
pip() { "$folder/tools/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
pip install --require-hashes --no-deps -r "$lists/tools.txt"
binary=(--only-binary=:all: --implementation cp --python-version 3.11)
for platform in manylinux_2_28 manylinux_2_24 manylinux_2_17 manylinux2014 manylinux1; do
    binary+=(--platform "${platform}_x86_64")
done
for list in numba-0.60 numba-0.61 clients checkpoint cuda; do
    pip install --require-hashes --no-deps "${binary[@]}" --target "$folder/$list" -r "$lists/$list.txt"
done
# One of these comes as source, which needs the tools and no compiler.
pip install --require-hashes --no-deps --no-build-isolation --target "$folder/monitors" -r "$lists/monitors.txt"

# A toolkit as numba looks for it, with the versions in the names.
nvidia=$folder/cuda/nvidia
mkdir -p "$folder/toolkit/nvvm/lib64" "$folder/toolkit/lib64"
ln -s "$nvidia/cuda_nvcc/nvvm/libdevice" "$folder/toolkit/nvvm/libdevice"
ln -s "$nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so" "$folder/toolkit/nvvm/lib64/libnvvm.so.4"
ln -s "$nvidia/cuda_nvrtc/lib/libnvrtc.so.12" "$folder/toolkit/lib64/libnvrtc.so"
ln -s "$nvidia"/cuda_nvrtc/lib/libnvrtc-builtins.so.* "$folder/toolkit/lib64/"
unpack_end
