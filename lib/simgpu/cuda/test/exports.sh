#!/bin/sh
# exports.sh LIBRARY: the simulated driver exports exactly the names of the driver that are described, under the
# driver's SONAME, and depends on nothing but the C library.
set -eu
library=$1
fail() { echo "$library: $*" >&2; exit 1; }

nm -D --defined-only "$library" | awk '{print $3}' | LC_ALL=C sort | diff lib/abi/generated/cuda_exports.txt - ||
    fail "exports differ from lib/abi/generated/cuda_exports.txt"
dynamic=$(readelf -dW "$library")
needed=$(echo "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
[ "$needed" = "libc.so.6 libpthread.so.0 libdl.so.2 " ] || fail "depends on $needed"
echo "$dynamic" | grep -q 'SONAME.*\[libcuda.so.1\]' || fail "has another SONAME"
