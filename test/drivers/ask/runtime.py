"""Asks NVIDIA's runtime library what it answers on a machine without a GPU, by ctypes, as lines that can be
compared: runtime.py LIBRARY. Each call gets addresses of 64 bytes of one letter; what it leaves there is printed."""

import ctypes
import sys

LETTER = b"Z"
runtime = ctypes.CDLL(sys.argv[1])


def call(name, *numbers, outputs=0):
    """Calls a function with addresses and then numbers, if this runtime has it."""
    function = getattr(runtime, name, None)
    if function is None:
        print(name, "missing")
        return
    left = [ctypes.create_string_buffer(LETTER * 64, 64) for _ in range(outputs)]
    status = function(*left, *(ctypes.c_size_t(n) for n in numbers))
    print(name, status, *(left_there(name, one.raw) for one in left), flush=True)


def left_there(name, raw):
    changed = raw.rstrip(LETTER)
    # An address differs from run to run, and says only that there is one.
    return "address" if name in ADDRESSES and any(changed) else changed.hex()


ADDRESSES = {"cudaHostAlloc", "cudaMallocHost", "cudaStreamCreate", "cudaEventCreate"}


def texts():
    for name in "cudaGetErrorName", "cudaGetErrorString":
        function = getattr(runtime, name)
        function.restype = ctypes.c_char_p
        for status in range(1100):
            print(name, status, function(status))


def entry_points():
    """What the runtime hands on from the driver's cuGetProcAddress."""
    for function in "cudaGetDriverEntryPoint", "cudaGetDriverEntryPointByVersion":
        if getattr(runtime, function, None) is None:
            print(function, "missing")
            continue
        for name in b"cuInit", b"cuMemAlloc", b"cuMemAllocAsync", b"cuCtxGetDevice", b"cuNoSuchName":
            found, word = ctypes.c_void_p(1), ctypes.c_int(-1)
            version = [ctypes.c_uint(12000)] if function.endswith("Version") else []
            status = getattr(runtime, function)(name, ctypes.byref(found), *version, ctypes.c_ulonglong(0), ctypes.byref(word))
            print(function, name, status, "null" if not found.value else "found", word.value)


call("cudaRuntimeGetVersion", outputs=1)
call("cudaDriverGetVersion", outputs=1)
call("cudaPeekAtLastError")
texts()
entry_points()
# The first call that needs a GPU begins the driver's use; the others come after it.
call("cudaGetDeviceCount", outputs=1)
call("cudaPeekAtLastError")
call("cudaGetLastError")
call("cudaGetLastError")
call("cudaGetDevice", outputs=1)
call("cudaSetDevice", 0)
call("cudaDeviceGetAttribute", 16, 0, outputs=1)
call("cudaGetDeviceFlags", outputs=1)
call("cudaMemGetInfo", outputs=2)
call("cudaMalloc", 4096, outputs=1)
call("cudaMallocPitch", 64, 64, outputs=2)
call("cudaMallocManaged", 4096, 1, outputs=1)
call("cudaMallocAsync", 4096, 0, outputs=1)
call("cudaMallocHost", 4096, outputs=1)
call("cudaHostAlloc", 4096, 0, outputs=1)
call("cudaFree", 0)
call("cudaStreamCreate", outputs=1)
call("cudaEventCreate", outputs=1)
call("cudaDeviceSynchronize")
call("cudaMemset", 0, 0, 0)
call("cudaMemcpy", 0, 0, 0, 0)
call("cudaProfilerStart")
call("cudaDeviceGetDefaultMemPool", 0, outputs=1)
call("cudaDeviceReset")
call("cudaGetLastError")
entry_points()
