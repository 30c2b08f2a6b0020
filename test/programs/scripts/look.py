"""Prints as JSON what Python's bindings for NVML see. The argument is the module: pynvml or py3nvml.py3nvml."""

import importlib
import json
import sys

nvml = importlib.import_module(sys.argv[1])


def device(handle):
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {
        "total": memory.total,
        "used": memory.used,
        "processes": {
            one.pid: one.usedGpuMemory
            for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        },
    }


def main():
    nvml.nvmlInit()
    count = nvml.nvmlDeviceGetCount()
    json.dump([device(nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)], sys.stdout)
    nvml.nvmlShutdown()


main()
