/* Questions whose answers depend on arguments: each is asked once and kept. */
#include "remote/client/snapshot.h"
#include "remote/generated/cuda_stubs.h"

#include <string.h>

/* Whether the answer is kept already; with what the call answers if not even that may be asked. */
static bool is_kept(const struct kept_key *key, uint64_t *value, CUresult *result) {
    *result = (CUresult)remote_gate((enum remote_number)key->call);
    return *result == CUDA_SUCCESS && kept_find(key, value);
}

static CUresult keep(const struct kept_key *key, uint64_t value, CUresult result) {
    if (result == CUDA_SUCCESS) {
        kept_note(key, value);
    }
    return result;
}

CUresult REMOTE_STUB(cuDeviceGetByPCIBusId)(CUdevice *device, const char *bus) {
    struct kept_key key = kept_key(REMOTE_cuDeviceGetByPCIBusId);
    uint64_t value;
    CUresult result;

    if (!device || !bus || strlen(bus) > KEPT_KEY_BYTES) {
        return remote_call_cuDeviceGetByPCIBusId(device, bus);
    }
    kept_with(&key, bus, strlen(bus));
    if (is_kept(&key, &value, &result)) {
        *device = (CUdevice)value;
        return CUDA_SUCCESS;
    }
    result = remote_call_cuDeviceGetByPCIBusId(device, bus);
    return keep(&key, (uint64_t)(result == CUDA_SUCCESS ? *device : 0), result);
}

CUresult REMOTE_STUB(cuDeviceGetExecAffinitySupport)(int *supported, CUexecAffinityType type,
                                                     CUdevice device) {
    struct kept_key key = kept_key(REMOTE_cuDeviceGetExecAffinitySupport);
    uint64_t value;
    CUresult result;

    kept_with(&key, &type, sizeof type);
    kept_with(&key, &device, sizeof device);
    if (supported && is_kept(&key, &value, &result)) {
        *supported = (int)value;
        return CUDA_SUCCESS;
    }
    result = remote_call_cuDeviceGetExecAffinitySupport(supported, type, device);
    return keep(&key, (uint64_t)(supported && result == CUDA_SUCCESS ? *supported : 0), result);
}

CUresult REMOTE_STUB(cuDeviceGetP2PAttribute)(int *to, CUdevice_P2PAttribute attribute,
                                              CUdevice device, CUdevice peer) {
    struct kept_key key = kept_key(REMOTE_cuDeviceGetP2PAttribute);
    uint64_t value;
    CUresult result;

    kept_with(&key, &attribute, sizeof attribute);
    kept_with(&key, &device, sizeof device);
    kept_with(&key, &peer, sizeof peer);
    if (to && is_kept(&key, &value, &result)) {
        *to = (int)value;
        return CUDA_SUCCESS;
    }
    result = remote_call_cuDeviceGetP2PAttribute(to, attribute, device, peer);
    return keep(&key, (uint64_t)(to && result == CUDA_SUCCESS ? *to : 0), result);
}

CUresult REMOTE_STUB(cuDeviceGetTexture1DLinearMaxWidth)(size_t *width, CUarray_format format,
                                                         unsigned int channels, CUdevice device) {
    struct kept_key key = kept_key(REMOTE_cuDeviceGetTexture1DLinearMaxWidth);
    uint64_t value;
    CUresult result;

    kept_with(&key, &format, sizeof format);
    kept_with(&key, &channels, sizeof channels);
    kept_with(&key, &device, sizeof device);
    if (width && is_kept(&key, &value, &result)) {
        *width = (size_t)value;
        return CUDA_SUCCESS;
    }
    result = remote_call_cuDeviceGetTexture1DLinearMaxWidth(width, format, channels, device);
    return keep(&key, width && result == CUDA_SUCCESS ? *width : 0, result);
}

/* These lists differ from call to call: they are asked each time. */
CUresult REMOTE_STUB(cuDeviceGetHostAtomicCapabilities)(unsigned int *to,
                                                        const CUatomicOperation *operations,
                                                        unsigned int count, CUdevice device) {
    return remote_call_cuDeviceGetHostAtomicCapabilities(to, operations, count, device);
}

CUresult REMOTE_STUB(cuDeviceGetP2PAtomicCapabilities)(unsigned int *to,
                                                       const CUatomicOperation *operations,
                                                       unsigned int count, CUdevice from,
                                                       CUdevice peer) {
    return remote_call_cuDeviceGetP2PAtomicCapabilities(to, operations, count, from, peer);
}

CUresult REMOTE_STUB(cuCtxGetStreamPriorityRange)(int *least, int *greatest) {
    struct kept_key key = kept_key(REMOTE_cuCtxGetStreamPriorityRange);
    int both[2] = {0, 0};
    uint64_t value;
    CUresult result = (CUresult)remote_gate(REMOTE_cuCtxGetStreamPriorityRange);

    result = result == CUDA_SUCCESS ? remote_current_result() : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUdevice device = remote_context_device(remote_current());
    kept_with(&key, &device, sizeof device);
    if (!kept_find(&key, &value)) {
        result = remote_call_cuCtxGetStreamPriorityRange(&both[0], &both[1]);
        memcpy(&value, both, sizeof value);
        if (keep(&key, value, result) != CUDA_SUCCESS) {
            return result;
        }
    }
    memcpy(both, &value, sizeof value);
    if (least) {
        *least = both[0];
    }
    if (greatest) {
        *greatest = both[1];
    }
    return CUDA_SUCCESS;
}

CUresult REMOTE_STUB(cuMemGetAllocationGranularity)(size_t *granularity,
                                                    const CUmemAllocationProp *prop,
                                                    CUmemAllocationGranularity_flags option) {
    struct kept_key key = kept_key(REMOTE_cuMemGetAllocationGranularity);
    uint64_t value;
    CUresult result;

    if (!granularity || !prop) {
        return remote_call_cuMemGetAllocationGranularity(granularity, prop, option);
    }
    kept_with(&key, prop, sizeof *prop);
    kept_with(&key, &option, sizeof option);
    if (is_kept(&key, &value, &result)) {
        *granularity = (size_t)value;
        return CUDA_SUCCESS;
    }
    result = remote_call_cuMemGetAllocationGranularity(granularity, prop, option);
    return keep(&key, result == CUDA_SUCCESS ? *granularity : 0, result);
}

/* What the client's table says for sure is answered here. */
CUresult REMOTE_STUB(cuMemGetAddressRange_v2)(CUdeviceptr *base, size_t *size,
                                              CUdeviceptr address) {
    struct remote_range range;
    CUresult result = (CUresult)remote_gate(REMOTE_cuMemGetAddressRange_v2);

    if (!base && !size) {
        return result;
    }
    result = result == CUDA_SUCCESS ? remote_current_result() : result;
    if (result != CUDA_SUCCESS || !remote_range_find(address, &range) ||
        range.kind == REMOTE_RANGE_GRAPH || range.kind == REMOTE_RANGE_CODE) {
        return result == CUDA_SUCCESS ? remote_call_cuMemGetAddressRange_v2(base, size, address)
                                      : result;
    }
    if (base) {
        *base = range.start;
    }
    if (size) {
        *size = range.size;
    }
    return CUDA_SUCCESS;
}
