#!/bin/sh
# link.sh COMMAND...: runs the command that links libcuda.so.1. If it fails, says what the names mean that the linker
# prints: it knows nothing of their description.
"$@" && exit
status=$?
cat >&2 <<'END'
lib/cuda/link.sh: if a name above is a function of the driver, its line in abi/cuda.yaml does not fit lib/cuda:
  undefined reference: its kind is allocate, free, launch, copy or sync, or it has a hook: shape, so that it needs a hook.
    Write the function in lib/cuda, give the line a hook: shape, or say in reason: why there is none.
  multiple definition: it has a hook: shape or a reason: for having no hook, and lib/cuda defines the function too.
    Keep one of them.
END
exit "$status"
