#!/bin/sh
# hooks.sh COMPILER OBJECT...: a library of these objects is linked as abi/cuda.yaml describes it, but neither where a
# name must have a hook that no object defines, nor where one must have none that an object defines.
set -eu
compiler=$1
shift
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/abi/generated"
fail() { echo "hooks.sh: $*" >&2; cat "$dir/said" >&2; exit 1; }

# links NAME HOOKED OBJECT...: links with that name described so.
links() {
    name=$1 hooked=$2
    shift 2
    sed "s/^\(CUDA_FN($name, .*, \)[a-z]*)/\1$hooked)/" lib/abi/generated/cuda_names.inc >"$dir/abi/generated/cuda_names.inc"
    grep -q "^CUDA_FN($name, .*, $hooked)" "$dir/abi/generated/cuda_names.inc" || fail "$name is not described"
    $compiler -std=gnu11 -fPIC -fvisibility=hidden "-I$dir" -Ilib -c lib/cuda/names.c -o "$dir/names.o"
    lib/cuda/link.sh $compiler -shared -Wl,-z,defs -Wl,--version-script=lib/cuda/exports.map -o "$dir/library.so" "$dir/names.o" "$@" >"$dir/said" 2>&1
}

links cuMemAlloc_v2 must "$@" || fail "is not linked as it is described"
! links cuArrayGetPlane must "$@" || fail "is linked although cuArrayGetPlane has no hook"
grep -q 'undefined reference to .cuArrayGetPlane' "$dir/said" || fail "does not name cuArrayGetPlane"
grep -q 'its line in abi/cuda.yaml' "$dir/said" || fail "does not say where cuArrayGetPlane is described"
! links cuMemAlloc_v2 never "$@" || fail "is linked although cuMemAlloc_v2 has a hook"
grep -q 'multiple definition of .cuMemAlloc_v2' "$dir/said" || fail "does not name cuMemAlloc_v2"
