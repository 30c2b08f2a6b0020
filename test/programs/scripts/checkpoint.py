"""Takes a program off its GPU and brings it back by NVIDIA's module for checkpoints, and prints as JSON what came of it."""

import json
import subprocess
import sys

from cuda.bindings import driver
from cuda.core import checkpoint

DATA = bytes(range(256)) * 65536


def check(answer):
    """The values of an answer that succeeded."""
    result, *values = answer
    if result != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(result.name)
    return values[0] if len(values) == 1 else values


def hold():
    """The program: whenever it is asked, it says whether its memory is as it was."""
    check(driver.cuInit(0))
    context = check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))
    check(driver.cuCtxSetCurrent(context))
    address = check(driver.cuMemAlloc(len(DATA)))
    check(driver.cuMemcpyHtoD(address, DATA, len(DATA)))
    print("ready", flush=True)
    for _ in sys.stdin:
        back = bytearray(len(DATA))
        check(driver.cuMemcpyDtoH(back, address, len(back)))
        print("same" if bytes(back) == DATA else "changed", flush=True)


def refusal(call, *args, **named):
    try:
        call(*args, **named)
    except Exception as error:
        return str(error)
    return ""


def suspend(program):
    process = checkpoint.Process(program.pid)
    states = [process.state]
    early = refusal(process.checkpoint)
    process.lock(timeout_ms=10000)
    states.append(process.state)
    program.stdin.write("look\n")
    program.stdin.flush()
    process.checkpoint()
    states.append(process.state)
    process.restore()
    states.append(process.state)
    process.unlock()
    states.append(process.state)
    memory = program.stdout.readline().strip()
    thread = process.restore_thread_id
    program.stdin.close()
    program.wait()
    return {"states": states, "early": early, "memory": memory, "thread": thread, "gone": refusal(process.lock)}


def main():
    program = subprocess.Popen(
        [sys.executable, "-S", __file__, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    if program.stdout.readline() != "ready\n":
        raise RuntimeError("the program does not begin")
    check(driver.cuInit(0))
    json.dump(suspend(program), sys.stdout)


hold() if sys.argv[1:] == ["hold"] else main()
