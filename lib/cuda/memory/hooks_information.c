/* What the program is told about the GPU's memory: the figures of its share. */
#include "cuda/attach.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/memory/measure.h"

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Replaces the GPU's figures by the share's. Free is what the share may still take, but no more
 * than the GPU has. */
static void show_share(unsigned device, uint64_t *free, uint64_t *total) {
    dv_usage_t usage;
    measure_refresh(device);
    dv_export_settle(attached_share());
    if (dv_usage(attached_share(), device, &usage)) {
        uint64_t left = usage.limit > usage.used ? usage.limit - usage.used : 0;
        *free = least(*free, left);
        *total = least(*total, usage.limit);
    }
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    struct home home;
    CUresult result = DV_CALL(cuMemGetInfo_v2, free, total);
    if (result == CUDA_SUCCESS && !DV_INNER() && free != NULL && total != NULL &&
        context_current(&home) == CUDA_SUCCESS) {
        show_share(home.device, free, total);
    }
    return result;
}

/* The 32-bit interface tells at most 4 GiB minus one byte. The driver caps there too. */
CUresult cuMemGetInfo(unsigned *free, unsigned *total) {
    struct home home;
    CUresult result = DV_CALL(cuMemGetInfo, free, total);
    if (result == CUDA_SUCCESS && !DV_INNER() && free != NULL && total != NULL &&
        context_current(&home) == CUDA_SUCCESS) {
        uint64_t wide_free = *free, wide_total = *total;
        show_share(home.device, &wide_free, &wide_total);
        *free = (unsigned)wide_free;
        *total = (unsigned)wide_total;
    }
    return result;
}

/* The share's limit on a device; UINT64_MAX if there is none. */
static uint64_t limit_of(CUdevice device) {
    int number = device_number(device);
    return number < 0 ? UINT64_MAX : dv_share_limit(attached_share(), (unsigned)number);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUresult result = DV_REAL(cuDeviceTotalMem_v2)(bytes, device);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        *bytes = least(*bytes, limit_of(device));
    }
    return result;
}

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device) {
    CUresult result = DV_REAL(cuDeviceTotalMem)(bytes, device);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        *bytes = (unsigned)least(*bytes, limit_of(device));
    }
    return result;
}
