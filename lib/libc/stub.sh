#!/bin/sh
# stub.sh OUT CC...: links OUT, named libc.so.6 or libm.so.6, a library that has the names of this machine's library up to
# GLIBC_2.17 and no code. What is linked against it cannot need anything newer.
set -eu
out=$1
shift
newest=2.17
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The linker's name for a file, or nothing where the C library has no such file.
file() { path=$("$@" "-print-file-name=$name"); case $path in /*) printf '%s\n' "$path" ;; esac; }
soname=$(basename "$out")
case $soname in
# In later C libraries libc.so.6 has what earlier ones have in files of their own.
libc.so.6) parts='libc.so.6 libpthread.so.0 libdl.so.2 librt.so.1 ld-linux-x86-64.so.2 ld-linux-aarch64.so.1' ;;
*) parts=$soname ;;
esac
files=$(for name in $parts; do
    file "$@"
done)
# shellcheck disable=SC2086 # a list of files without blanks
"$(dirname "$0")/names.sh" "$newest" $files >"$work/names"

awk '{ stub = "stub_" NR
    printf ".section .%s,\"%s\"\n.globl %s\n.type %s,%%%s\n.size %s,%d\n%s:\n.zero %d\n.symver %s,%s@@@GLIBC_%s\n",
        $4 == "data" ? "data" : "text", $4 == "data" ? "aw" : "ax", stub, stub, $4 == "data" ? "object" : "function",
        stub, $4 == "data" ? $3 : 1, stub, $4 == "data" ? $3 : 1, stub, $1, $2 }
    END { print ".section .note.GNU-stack,\"\",%progbits" }' "$work/names" >"$work/stub.s"
awk '{ names[$2] = names[$2] " " $1 ";" } END { for (v in names) print "GLIBC_" v " { global:" names[v] " };" }' \
    "$work/names" >"$work/stub.map"
"$@" -nostdlib -shared -Wl,-soname,"$soname" -Wl,--version-script="$work/stub.map" -o "$out" "$work/stub.s"
