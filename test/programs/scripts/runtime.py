"""Calls the CUDA runtime library that is given and prints the names of its errors."""

import ctypes
import sys

runtime = ctypes.CDLL(sys.argv[1])
runtime.cudaGetErrorName.restype = ctypes.c_char_p
number, address = ctypes.c_int(), ctypes.c_void_p()
for result in (
    runtime.cudaGetDeviceCount(ctypes.byref(number)),
    runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(100)),
    runtime.cudaSetDevice(0),
):
    print(runtime.cudaGetErrorName(result).decode())
