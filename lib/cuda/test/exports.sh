#!/bin/sh
# exports.sh LIBRARY: the library exports the driver's names and nothing else, depends on the driver under its
# other name and on the C library (which had three files before 2.34) alone, and cannot be unloaded.
set -eu
library=$1
fail() { echo "$library: $*" >&2; exit 1; }

nm -D --defined-only "$library" | awk '{print $3}' | LC_ALL=C sort | diff lib/abi/generated/cuda_exports.txt - ||
    fail "exports differ from lib/abi/generated/cuda_exports.txt"
dynamic=$(readelf -dW "$library")
needed=$(echo "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
[ "$needed" = "libcuda-real.so.1 libc.so.6 libpthread.so.0 libdl.so.2 " ] || fail "depends on $needed"
echo "$dynamic" | grep -q 'SONAME.*\[libcuda.so.1\]' || fail "has another SONAME"
echo "$dynamic" | grep -q 'NODELETE' || fail "can be unloaded"
room=$(echo "$dynamic" | sed -n 's/.*(RUNPATH).*\[\(.*\)\]/\1/p' | tr -d '\n' | wc -c)
[ "$room" -eq 512 ] || fail "leaves $room bytes for the run path"
readelf -lW "$library" | grep -q 'GNU_STACK.* RW ' || fail "wants an executable stack"
