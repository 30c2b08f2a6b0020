/* Memory of the share: the total is its limit, used is what it is charged.
 *
 * Nothing is reserved for the driver within a limit, so version 1, whose `used` includes what the
 * driver reserves, and version 2, which tells it apart, give the same `used` here, but for a swap share. `free` is what
 * an allocation could get now: bounded by what the limit leaves and by what the GPU has left, so
 * with overcommit the sum of used and free may be less than total. */
#include "nvml/gpus.h"

#include <stdint.h>

struct memory {
    uint64_t total, used, free; /* bytes */
    uint64_t reserved;          /* no part of the others */
};

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* A swap share has what leaves the GPU and what is kept there. Free is what linear memory can have,
 * which need not be on the GPU; what is left of the kept part is reserved. */
static struct memory swap_memory(const struct gpu *gpu) {
    dv_usage_t turning = {.limit = 0}, kept = {.limit = 0};
    dv_usage(gpu->share, gpu->device, &turning);
    dv_usage(gpu->share, dv_share_kept(gpu->share, gpu->device), &kept);
    uint64_t taken = turning.used + turning.pending;
    struct memory memory = {.total = turning.limit + kept.limit};
    memory.used = least(taken + kept.used + kept.pending, memory.total);
    memory.free = least(turning.limit - least(taken, turning.limit), memory.total - memory.used);
    memory.reserved = memory.total - memory.used - memory.free;
    return memory;
}

/* The share's figures for a GPU of which the driver says that `physical_free` bytes are free. */
static struct memory share_memory(const struct gpu *gpu, uint64_t physical_total,
                                  uint64_t physical_free) {
    dv_usage_t usage = {.limit = 0};
    dv_reap(
        gpu->share); /* what a killed process held is free, whether an agent has seen it or not */
    if (dv_share_swap(gpu->share)) {
        return swap_memory(gpu);
    }
    dv_usage(gpu->share, gpu->device, &usage);
    struct memory memory = {.total = least(usage.limit, physical_total)};
    memory.used = least(usage.used + usage.pending, memory.total);
    memory.free = least(memory.total - memory.used, physical_free);
    return memory;
}

/* Replaces the driver's figures by the share's; both functions below have its layout. */
static nvmlReturn_t show_memory(nvmlDevice_t device, nvmlMemory_t *found, nvmlMemory_t *memory) {
    struct gpu gpu;
    enum gpu_relation relation = gpu_find(device, &gpu);
    if (relation == GPU_OUTSIDE) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (relation == GPU_SHARED) {
        struct memory own = share_memory(&gpu, found->total, found->free);
        found->total = own.total;
        found->used = own.used + own.reserved;
        found->free = own.free;
    }
    *memory = *found;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    nvmlMemory_t found;
    if (DV_INNER() || memory == NULL) {
        return DV_CALL(nvmlDeviceGetMemoryInfo, device, memory);
    }
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetMemoryInfo, device, &found);
    return result == NVML_SUCCESS ? show_memory(device, &found, memory) : result;
}

nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device,
                                                          nvmlMemory_t *memory) {
    nvmlMemory_t found;
    if (DV_INNER() || memory == NULL) {
        return DV_CALL(nvmlDeviceGetConfComputeProtectedMemoryUsage, device, memory);
    }
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetConfComputeProtectedMemoryUsage, device, &found);
    return result == NVML_SUCCESS ? show_memory(device, &found, memory) : result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    struct gpu gpu;
    if (DV_INNER() || memory == NULL) {
        return DV_CALL(nvmlDeviceGetMemoryInfo_v2, device, memory);
    }
    /* The caller's version goes to the driver, which refuses one that it does not know. A driver
     * that knows a later layout would write beyond our struct, so only version 2 is passed on.
     */
    nvmlMemory_v2_t found = {.version = memory->version};
    if (found.version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)) {
        return gpus_unknown_version();
    }
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetMemoryInfo_v2, device, &found);
    if (result != NVML_SUCCESS) {
        return result;
    }
    enum gpu_relation relation = gpu_find(device, &gpu);
    if (relation == GPU_OUTSIDE) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (relation == GPU_SHARED) {
        struct memory own = share_memory(&gpu, found.total, found.free);
        found.total = own.total;
        found.reserved = own.reserved;
        found.used = own.used;
        found.free = own.free;
    }
    *memory = found;
    return NVML_SUCCESS;
}

/* BAR1, through which the bus reaches the GPU's memory, is not divided, and nothing is charged for
 * it. The figures say what can still be mapped, by the driver or within the limit. */
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    nvmlBAR1Memory_t found;
    struct gpu gpu;
    if (DV_INNER() || memory == NULL) {
        return DV_CALL(nvmlDeviceGetBAR1MemoryInfo, device, memory);
    }
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetBAR1MemoryInfo, device, &found);
    if (result != NVML_SUCCESS) {
        return result;
    }
    enum gpu_relation relation = gpu_find(device, &gpu);
    if (relation == GPU_OUTSIDE) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (relation == GPU_SHARED) {
        unsigned kept = dv_share_kept(gpu.share, gpu.device);
        uint64_t limit = dv_share_limit(gpu.share, gpu.device);
        limit += kept != gpu.device ? dv_share_limit(gpu.share, kept) : 0;
        found.bar1Total = least(found.bar1Total, limit);
        found.bar1Free = least(found.bar1Free, found.bar1Total);
        found.bar1Used = found.bar1Total - found.bar1Free;
    }
    *memory = found;
    return NVML_SUCCESS;
}
