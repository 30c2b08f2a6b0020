"""Uses a GPU through cuda-bindings and prints as JSON what came of it. The first argument is the number of bytes to ask for
at last. With a second one it first puts so many bytes on the GPU, says "held", and goes on when its input ends."""

import ctypes
import json
import struct
import sys

from cuda.bindings import driver

# The simulated driver knows this kernel by its name, and adds what it is given.
PTX = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry divvy_vecadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) { ret; }
"""
LENGTH = 1 << 16


def check(answer):
    """The values of an answer that succeeded."""
    result, *values = answer
    if result != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(result.name)
    return values[0] if len(values) == 1 else values


def upload(data):
    address = check(driver.cuMemAlloc(len(data)))
    check(driver.cuMemcpyHtoD(address, data, len(data)))
    return address


def download(address, size):
    data = bytearray(size)
    check(driver.cuMemcpyDtoH(data, address, size))
    return bytes(data)


def copied():
    data = bytes(range(256)) * 4096
    address = upload(data)
    same = download(address, len(data)) == data
    check(driver.cuMemFree(address))
    return same


def computed(launches):
    """Whether a kernel adds what it is given; it is launched so often."""
    numbers = struct.pack(f"{LENGTH}f", *range(LENGTH))
    a, b, c = upload(numbers), upload(numbers), upload(bytes(len(numbers)))
    module = check(driver.cuModuleLoadData(PTX))
    kernel = check(driver.cuModuleGetFunction(module, b"divvy_vecadd"))
    stream = check(driver.cuStreamCreate(0))
    given = ((a, b, c, LENGTH), (None, None, None, ctypes.c_uint))
    for _ in range(launches):
        check(driver.cuLaunchKernel(kernel, LENGTH // 256, 1, 1, 256, 1, 1, 0, stream, given, 0))
    check(driver.cuStreamSynchronize(stream))
    sums = download(c, len(numbers))
    check(driver.cuModuleUnload(module))
    return sums == struct.pack(f"{LENGTH}f", *range(0, 2 * LENGTH, 2))


def refusal(size):
    """What the driver says where the GPU has no such memory, and nothing where it has."""
    result, address = driver.cuMemAlloc(size)
    if result == driver.CUresult.CUDA_SUCCESS:
        check(driver.cuMemFree(address))
        return ""
    return result.name


def held(size):
    """A look at what stays on the GPU from now on: whether it is as it was, and ordinary memory of the GPU as it is told."""
    data = bytes(range(256)) * (size // 256)
    address = upload(data)
    print("held", flush=True)
    sys.stdin.read()
    attribute = driver.CUpointer_attribute
    told = [
        check(driver.cuPointerGetAttribute(one, address))
        for one in (attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
    ]
    ordinary = not told[0] and told[1] == driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    return lambda: ordinary and download(address, size) == data


def main():
    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
    look = held(int(sys.argv[2])) if len(sys.argv) > 2 else lambda: True
    told = {
        "device": check(driver.cuDeviceGetName(100, device)).rstrip(b"\0 ").decode(),
        "total": check(driver.cuMemGetInfo())[1],
        "copied": copied() and computed(10),
        "launched": 10,
        "refusal": refusal(int(sys.argv[1])),
        "again": copied(),
        "held": look(),
    }
    json.dump(told, sys.stdout)


main()
