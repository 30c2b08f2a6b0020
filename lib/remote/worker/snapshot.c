/* REMOTE_SNAPSHOT: all facts of devices at once. Word 0: the first device that the client wants to know of. */
#include "remote/facts.h"
#include "remote/worker/hand.h"

#include <string.h>

#define UNKNOWN ((int32_t)CUDA_ERROR_NOT_SUPPORTED)
/* What a driver answers, or that it lacks the function. */
#define ASK(driver, function, ...)                                                                 \
    ((driver)->function ? (int32_t)(driver)->function(__VA_ARGS__) : UNKNOWN)

static void tell_numbers(const struct remote_cuda_driver *d, struct remote_device_facts *f,
                         CUdevice device) {
    size_t memory = 0;
    int major = 0, minor = 0;
    CUdevprop properties = {0};

    f->memory_result = ASK(d, cuDeviceTotalMem_v2, &memory, device);
    f->memory = memory;
    f->capability_result = ASK(d, cuDeviceComputeCapability, &major, &minor, device);
    f->major = major;
    f->minor = minor;
    f->properties_result = ASK(d, cuDeviceGetProperties, &properties, device);
    f->properties = properties;
}

static void tell_names(const struct remote_cuda_driver *d, struct remote_device_facts *f,
                       CUdevice device) {
    unsigned mask = 0;

    f->name_result = ASK(d, cuDeviceGetName, f->name, (int)sizeof f->name - 1, device);
    f->bus_result = ASK(d, cuDeviceGetPCIBusId, f->bus, (int)sizeof f->bus - 1, device);
    f->uuid_result = ASK(d, cuDeviceGetUuid, &f->uuid, device);
    f->uuid_v2_result = ASK(d, cuDeviceGetUuid_v2, &f->uuid_v2, device);
    f->luid_result = ASK(d, cuDeviceGetLuid, f->luid, &mask, device);
    f->luid_mask = mask;
}

static void tell_device(const struct remote_cuda_driver *d, struct remote_device_facts *f,
                        CUdevice device, int count) {
    memset(f, 0, sizeof *f);
    tell_names(d, f, device);
    tell_numbers(d, f, device);
    for (int i = 0; i < REMOTE_FACT_ATTRIBUTES; i++) {
        int value = 0;
        f->attributes[i].result =
            ASK(d, cuDeviceGetAttribute, &value, (CUdevice_attribute)i, device);
        f->attributes[i].value = value;
    }
    for (int i = 0; i < count; i++) {
        int value = 0;
        f->peers[i].result = ASK(d, cuDeviceCanAccessPeer, &value, device, i);
        f->peers[i].value = value;
    }
}

static struct remote_facts tell(const struct remote_cuda_driver *d) {
    int count = 0, version = 0;
    CUmoduleLoadingMode loading = (CUmoduleLoadingMode)0;
    struct remote_facts facts = {
        .count.result = ASK(d, cuDeviceGetCount, &count),
        .version.result = ASK(d, cuDriverGetVersion, &version),
        .loading.result = ASK(d, cuModuleGetLoadingMode, &loading),
    };

    facts.count.value = facts.count.result == 0 && count > 0 ? count : 0;
    facts.version.value = version;
    facts.loading.value = (int32_t)loading;
    return facts;
}

enum remote_outcome remote_hand_snapshot(struct remote_decoder *d) {
    if (!remote_words(d, 1)) {
        return REMOTE_GARBLED;
    }
    uint64_t first = d->words[0];
    struct remote_facts *facts = remote_out(d, 0, 1, sizeof *facts);
    struct remote_device_facts *devices = remote_out(d, 1, REMOTE_FACT_MOST, sizeof *devices);
    uint64_t told = 0;
    if (!remote_taken(d, true)) {
        return remote_not_called(d);
    }
    if (!facts || !devices) {
        return REMOTE_GARBLED;
    }
    *facts = tell(d->cuda);
    int count = facts->count.value < REMOTE_FACT_DEVICES ? facts->count.value : REMOTE_FACT_DEVICES;
    while (told < REMOTE_FACT_MOST && first < (uint64_t)count && told < (uint64_t)count - first) {
        tell_device(d->cuda, &devices[told], (CUdevice)(first + told), count);
        told++;
    }
    remote_answer(d, CUDA_SUCCESS);
    remote_give(d, 0, facts, sizeof *facts, false);
    remote_give_some(d, 1, devices, told, sizeof *devices, false);
    return remote_finish(d);
}
