"""Uses a GPU through numba and prints as JSON what came of it. The first argument is the number of bytes to ask for at last.
With a second one it first puts so many bytes on the GPU, says "held", and goes on when its input ends."""

import json
import sys

import numpy
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

LENGTH = 1 << 20


@cuda.jit
def add(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += x[i]


def copied(data):
    """Whether data comes back from the GPU as it went there, in one piece and on a stream."""
    stream = cuda.stream()
    whole, streamed = cuda.to_device(data), cuda.to_device(data, stream=stream)
    back = streamed.copy_to_host(stream=stream)
    stream.synchronize()
    return bool((whole.copy_to_host() == data).all() and (back == data).all())


def launched(data):
    """How often a kernel that numba compiled was launched. The simulated driver does not execute it."""
    x, y = cuda.to_device(data), cuda.to_device(data)
    for _ in range(10):
        add[LENGTH // 256, 256](x, y)
    cuda.synchronize()
    return 10


def refusal(size):
    """What numba says where the GPU has no such memory, and nothing where it has."""
    try:
        cuda.device_array(size, dtype=numpy.uint8)
    except CudaAPIError as error:
        return str(error)
    return ""


def held(size):
    """A look at what stays on the GPU from now on: whether it is as it was."""
    data = numpy.arange(size // 4, dtype=numpy.uint32)
    there = cuda.to_device(data)
    print("held", flush=True)
    sys.stdin.read()
    return lambda: bool((there.copy_to_host() == data).all())


def main():
    look = held(int(sys.argv[2])) if len(sys.argv) > 2 else lambda: True
    data = numpy.arange(LENGTH, dtype=numpy.float32)
    told = {
        "device": cuda.get_current_device().name.decode(),
        "total": cuda.current_context().get_memory_info().total,
        "copied": copied(data),
        "launched": launched(data),
        "refusal": refusal(int(sys.argv[1])),
        "again": copied(data),
        "held": look(),
    }
    json.dump(told, sys.stdout)


main()
