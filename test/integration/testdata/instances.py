"""Makes and lists MIG instances with NVIDIA's own Python bindings for NVML.

instances.py make GPU PROFILE:SLICE...: makes an instance of each profile on a GPU, with the compute
instance of that profile which fills it; both are NVML's numbers.
instances.py list: prints as JSON what each GPU has.
"""

import json
import sys

import pynvml


def make(gpu, profiles):
    device = pynvml.nvmlDeviceGetHandleByIndex(int(gpu))
    for profile in profiles:
        whole, part = (int(number) for number in profile.split(":"))
        instance = pynvml.nvmlDeviceCreateGpuInstance(device, whole)
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, part)


def processes(handle):
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return [{"pid": one.pid, "gi": one.gpuInstanceId, "ci": one.computeInstanceId} for one in found]


def describe(handle):
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return {
        "index": pynvml.nvmlDeviceGetIndex(handle),
        "uuid": pynvml.nvmlDeviceGetUUID(handle),
        "name": pynvml.nvmlDeviceGetName(handle),
        "gi": pynvml.nvmlDeviceGetGpuInstanceId(handle),
        "ci": pynvml.nvmlDeviceGetComputeInstanceId(handle),
        "total": memory.total,
        "used": memory.used,
        "processes": processes(handle),
    }


def instances(device):
    found = []
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            found.append(describe(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, number)))
        except pynvml.NVMLError_NotFound:
            pass
    return found


def lookup(uuid):
    try:
        return pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError_NotFound:
        return None


def main():
    pynvml.nvmlInit()
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3:])
    else:
        count = pynvml.nvmlDeviceGetCount()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        gpus = [
            {
                "uuid": pynvml.nvmlDeviceGetUUID(device),
                "mode": pynvml.nvmlDeviceGetMigMode(device)[0],
                "processes": processes(device),
                "instances": instances(device),
            }
            for device in devices
        ]
        json.dump({"gpus": gpus, "found": [lookup(uuid) for uuid in sys.argv[2:]]}, sys.stdout)
    pynvml.nvmlShutdown()


main()
