"""Uses a GPU through tinygrad and prints as JSON what came of it. The first argument is the number of bytes to ask for at last.
With a second one it first puts so many bytes on the GPU, says "held", and goes on when its input ends."""

import ctypes
import json
import sys

from tinygrad import Device, GlobalCounters, Tensor, dtypes
from tinygrad.runtime.autogen import cuda

LENGTH = 1 << 16


def copied():
    data = list(range(LENGTH))
    return Tensor(data, dtype=dtypes.int32).realize().tolist() == data


def launched():
    """How many kernels tinygrad compiled and launched. The simulated driver does not execute them."""
    before = GlobalCounters.kernel_count
    number = Tensor.ones(LENGTH).contiguous().realize()
    for _ in range(10):
        number = (number * 2 + 1).realize()
    Device[Device.DEFAULT].synchronize()
    return GlobalCounters.kernel_count - before


def refusal(size):
    """What tinygrad says where the GPU has no such memory, and nothing where it has."""
    try:
        Tensor.empty(size, dtype=dtypes.uint8).uop.buffer.ensure_allocated()
    except MemoryError as error:
        return f"MemoryError: {error}"
    return ""


def held(size):
    """A look at what stays on the GPU from now on: whether it is as it was."""
    data = bytes(range(256)) * (size // 256)
    there = Tensor(data, dtype=dtypes.uint8).realize()
    Device[Device.DEFAULT].synchronize()
    print("held", flush=True)
    sys.stdin.read()
    return lambda: bytes(there.data()) == data


def main():
    look = held(int(sys.argv[2])) if len(sys.argv) > 2 else lambda: True
    Device[Device.DEFAULT]  # makes the context
    name = ctypes.create_string_buffer(100)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.cuDeviceGetName(name, 100, 0)
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    told = {
        "device": name.value.decode(),
        "total": total.value,
        "copied": copied(),
        "launched": launched(),
        "refusal": refusal(int(sys.argv[1])),
        "again": copied(),
        "held": look(),
    }
    json.dump(told, sys.stdout)


main()
