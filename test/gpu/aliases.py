"""Finds names that the driver answers with one and the same function.

Divvy recognises what cuGetProcAddress returned by the pointer. Where two names that it treats differently
share a pointer, it must decide by name, version and flags instead, so the pairs are worth knowing.
"""

import json
import sys

# Runs in a process of its own, natively, because it must see the driver and not Divvy's library.
PROGRAM = r"""
import ctypes, json, sys
driver = ctypes.CDLL("libcuda.so.1")
names = json.load(sys.stdin)
def address(name):
    try:
        return ctypes.cast(getattr(driver, name), ctypes.c_void_p).value
    except AttributeError:
        return None
found = {name: address(name) for name in names}
groups = {}
for name, pointer in found.items():
    if pointer is not None:
        groups.setdefault(pointer, []).append(name)
unlisted = 0
driver.cuInit(0)
version = ctypes.c_int()
driver.cuDriverGetVersion(ctypes.byref(version))
for name in names:
    for flags in (0, 2):
        out, status = ctypes.c_void_p(), ctypes.c_int()
        code = driver.cuGetProcAddress_v2(name.encode(), ctypes.byref(out), version, ctypes.c_uint64(flags),
                                          ctypes.byref(status))
        unlisted += code == 0 and out.value is not None and out.value not in groups
print(json.dumps({"named": len(names), "present": sum(p is not None for p in found.values()),
                  "groups": [g for g in groups.values() if len(g) > 1], "unlisted": unlisted}))
"""


def report(exports, bench):
    """Looks up every name listed in the file `exports`, one a line."""
    names = [line.strip() for line in exports.read_text().splitlines() if line.startswith("cu")]
    program = PROGRAM.replace("json.load(sys.stdin)", f"json.loads({json.dumps(json.dumps(names))})")
    result = bench.native(sys.executable, "-c", program)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
