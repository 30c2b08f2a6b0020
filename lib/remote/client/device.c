/* Questions about devices, answered from the snapshot. */
#include "remote/client/snapshot.h"
#include "remote/generated/cuda_stubs.h"

#include <string.h>

/* The facts of a device that a call names; NULL with what the call answers. */
static const struct remote_device_facts *facts_of(CUdevice device, const void *out,
                                                  CUresult *result) {
    const struct snapshot *s = snapshot(result);

    if (!s) {
        return NULL;
    }
    if (!out) {
        *result = CUDA_ERROR_INVALID_VALUE;
        return NULL;
    }
    if (device < 0 || (uint32_t)device >= s->told) {
        *result = CUDA_ERROR_INVALID_DEVICE;
        return NULL;
    }
    return &s->devices[device];
}

CUresult REMOTE_STUB(cuDeviceGetCount)(int *count) {
    CUresult result;
    const struct snapshot *s = snapshot(&result);

    if (!s) {
        return result;
    }
    if (!count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (s->all.count.result == 0) {
        *count = s->all.count.value;
    }
    return (CUresult)s->all.count.result;
}

CUresult REMOTE_STUB(cuDeviceGet)(CUdevice *device, int ordinal) {
    CUresult result;

    if (facts_of(ordinal, device, &result)) {
        *device = ordinal;
    }
    return result;
}

/* Text of the snapshot, as much as there is room for. */
static CUresult tell_text(char *to, int room, const char *text, int32_t result) {
    if (room <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result == 0) {
        size_t length = strnlen(text, (size_t)room - 1);
        memcpy(to, text, length);
        to[length] = 0;
    }
    return (CUresult)result;
}

CUresult REMOTE_STUB(cuDeviceGetName)(char *name, int room, CUdevice device) {
    CUresult result;
    const struct remote_device_facts *f = facts_of(device, name, &result);

    return f ? tell_text(name, room, f->name, f->name_result) : result;
}

CUresult REMOTE_STUB(cuDeviceGetPCIBusId)(char *bus, int room, CUdevice device) {
    CUresult result;
    const struct remote_device_facts *f = facts_of(device, bus, &result);

    return f ? tell_text(bus, room, f->bus, f->bus_result) : result;
}

/* A value of the snapshot, if the driver had it. */
static CUresult tell(void *to, const void *value, size_t size, int32_t result) {
    if (result == 0) {
        memcpy(to, value, size);
    }
    return (CUresult)result;
}

CUresult REMOTE_STUB(cuDeviceGetUuid)(CUuuid *uuid, CUdevice device) {
    CUresult result;
    const struct remote_device_facts *f = facts_of(device, uuid, &result);

    return f ? tell(uuid, &f->uuid, sizeof *uuid, f->uuid_result) : result;
}

CUresult REMOTE_STUB(cuDeviceGetUuid_v2)(CUuuid *uuid, CUdevice device) {
    CUresult result;
    const struct remote_device_facts *f = facts_of(device, uuid, &result);

    return f ? tell(uuid, &f->uuid_v2, sizeof *uuid, f->uuid_v2_result) : result;
}

CUresult REMOTE_STUB(cuDeviceTotalMem_v2)(size_t *bytes, CUdevice device) {
    CUresult result;
    const struct remote_device_facts *f = facts_of(device, bytes, &result);

    return f ? tell(bytes, &f->memory, sizeof *bytes, f->memory_result) : result;
}

CUresult REMOTE_STUB(cuDeviceGetProperties)(CUdevprop *properties, CUdevice device) {
    CUresult result;
    const struct remote_device_facts *f = facts_of(device, properties, &result);

    return f ? tell(properties, &f->properties, sizeof *properties, f->properties_result) : result;
}

CUresult REMOTE_STUB(cuDeviceComputeCapability)(int *major, int *minor, CUdevice device) {
    CUresult result;
    const struct remote_device_facts *f = facts_of(device, major, &result);

    if (!f) {
        return result;
    }
    if (!minor) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    tell(minor, &f->minor, sizeof *minor, f->capability_result);
    return tell(major, &f->major, sizeof *major, f->capability_result);
}

CUresult REMOTE_STUB(cuDeviceGetLuid)(char *luid, unsigned int *mask, CUdevice device) {
    CUresult result;
    const struct remote_device_facts *f = facts_of(device, luid, &result);

    if (!f) {
        return result;
    }
    if (!mask) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    tell(mask, &f->luid_mask, sizeof *mask, f->luid_result);
    return tell(luid, f->luid, sizeof f->luid, f->luid_result);
}

CUresult REMOTE_STUB(cuDeviceGetAttribute)(int *value, CUdevice_attribute attribute,
                                           CUdevice device) {
    CUresult result;
    const struct remote_device_facts *f = facts_of(device, value, &result);

    if (!f) {
        return result;
    }
    if ((unsigned)attribute >= REMOTE_FACT_ATTRIBUTES) {
        return remote_call_cuDeviceGetAttribute(value, attribute, device);
    }
    const struct remote_fact *fact = &f->attributes[attribute];
    return tell(value, &fact->value, sizeof *value, fact->result);
}

CUresult REMOTE_STUB(cuDeviceCanAccessPeer)(int *can, CUdevice device, CUdevice peer) {
    CUresult result;
    const struct remote_device_facts *f = facts_of(device, can, &result);

    if (!f || !facts_of(peer, can, &result)) {
        return result;
    }
    return tell(can, &f->peers[peer].value, sizeof *can, f->peers[peer].result);
}

CUresult REMOTE_STUB(cuModuleGetLoadingMode)(CUmoduleLoadingMode *mode) {
    CUresult result;
    const struct snapshot *s = snapshot(&result);

    if (!s) {
        return result;
    }
    return mode ? tell(mode, &s->all.loading.value, sizeof *mode, s->all.loading.result)
                : CUDA_ERROR_INVALID_VALUE;
}

/* It may be called before cuInit, and is then asked of a worker that has not begun. */
CUresult REMOTE_STUB(cuDriverGetVersion)(int *version) {
    CUresult result;
    const struct snapshot *s = snapshot(&result);

    if (!version) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (s) {
        return tell(version, &s->all.version.value, sizeof *version, s->all.version.result);
    }
    if (result == CUDA_ERROR_NOT_INITIALIZED) {
        result = remote_session_begin();
    }
    return result == CUDA_SUCCESS ? remote_call_cuDriverGetVersion(version) : result;
}
