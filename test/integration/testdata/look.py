"""Prints as JSON what NVIDIA's own Python bindings for NVML see.

Arguments are UUIDs and bus addresses of GPUs to look for by name.
"""

import json
import sys

import pynvml


def attempt(call, *arguments):
    """The answer of an NVML call, or the number of its error."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        return {"error": error.value}


def by_name(name):
    if name.startswith("GPU-"):
        found = attempt(pynvml.nvmlDeviceGetHandleByUUID, name)
    else:
        found = attempt(pynvml.nvmlDeviceGetHandleByPciBusId, name)
    return found if isinstance(found, dict) else pynvml.nvmlDeviceGetUUID(found)


def processes(call, handle):
    found = attempt(call, handle)
    if isinstance(found, dict):
        return found
    return [{"pid": one.pid, "memory": one.usedGpuMemory} for one in found]


def uuids(call, *arguments):
    found = attempt(call, *arguments)
    return found if isinstance(found, dict) else [pynvml.nvmlDeviceGetUUID(one) for one in found]


def amounts(memory):
    return {"total": memory.total, "used": memory.used, "free": memory.free}


def device(handle):
    newer = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return {
        "index": pynvml.nvmlDeviceGetIndex(handle),
        "uuid": pynvml.nvmlDeviceGetUUID(handle),
        "name": pynvml.nvmlDeviceGetName(handle),
        "pci": pynvml.nvmlDeviceGetPciInfo(handle).busId,
        "minor": pynvml.nvmlDeviceGetMinorNumber(handle),
        "memory": amounts(pynvml.nvmlDeviceGetMemoryInfo(handle)),
        "memory2": amounts(newer) | {"reserved": newer.reserved},
        "bar1": pynvml.nvmlDeviceGetBAR1MemoryInfo(handle).bar1Total,
        "gpu": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "compute": processes(pynvml.nvmlDeviceGetComputeRunningProcesses, handle),
        "compute1": processes(pynvml.nvmlDeviceGetComputeRunningProcesses_v2, handle),
        "graphics": processes(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle),
    }


def main():
    pynvml.nvmlInit()
    count = pynvml.nvmlDeviceGetCount()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    past = attempt(pynvml.nvmlDeviceGetHandleByIndex, count)
    levels = [
        [attempt(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other) for other in handles]
        for one in handles
    ]
    system = pynvml.NVML_TOPOLOGY_SYSTEM
    near = [uuids(pynvml.nvmlDeviceGetTopologyNearestGpus, handle, system) for handle in handles]
    look = {
        "devices": [device(handle) for handle in handles],
        "past_the_end": past if isinstance(past, dict) else "found",
        "topology": levels,
        "near": near,
        "of_cpu": [uuids(pynvml.nvmlSystemGetTopologyGpuSet, cpu) for cpu in range(128)],
        "by_name": {name: by_name(name) for name in sys.argv[1:]},
    }
    pynvml.nvmlShutdown()
    json.dump(look, sys.stdout)


main()
