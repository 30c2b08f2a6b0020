#!/bin/sh
# exports.sh FOLDER: the client's libraries export the driver's names and nothing else, all code is in the third, which
# depends on the C library alone, and none can be unloaded.
set -eu
cd "$1"
lists=$2
fail() { echo "$PWD: $*" >&2; exit 1; }
names() { nm -D --defined-only "$1" | awk '{print $3}' | LC_ALL=C sort; }
needed() { readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' '; }

names libcuda.so.1 | diff "$lists/cuda_exports.txt" - || fail "libcuda.so.1 exports other names"
names libnvidia-ml.so.1 | diff "$lists/nvml_exports.txt" - || fail "libnvidia-ml.so.1 exports other names"
[ "$(names libdivvy-remote.so.1 | tr '\n' ' ')" = "divvy_remote_cuda divvy_remote_nvml " ] || fail "the code exports more than its tables"
for front in libcuda.so.1 libnvidia-ml.so.1; do
    [ "$(needed $front)" = "libdivvy-remote.so.1 " ] || fail "$front depends on $(needed $front)"
    room=$(readelf -dW $front | sed -n 's/.*(RUNPATH).*\[\(.*\)\]/\1/p' | tr -d '\n' | wc -c)
    [ "$room" -ge 512 ] || fail "$front leaves $room bytes for the run path"
done
needed libdivvy-remote.so.1 | grep -qx 'libc.so.6 libpthread.so.0 libdl.so.2 ' || fail "the code depends on $(needed libdivvy-remote.so.1)"
for file in libcuda.so.1 libnvidia-ml.so.1 libdivvy-remote.so.1; do
    readelf -dW $file | grep -q NODELETE || fail "$file can be unloaded"
    readelf -dW $file | grep -q "SONAME.*\[$file\]" || fail "$file has another SONAME"
    readelf -lW $file | grep -q 'GNU_STACK.* RW ' || fail "$file wants an executable stack"
done
