/* What the program is told about the GPU's memory: the figures of its share. */
#include "cuda/attach.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/memory/measure.h"
#include "cuda/memory/swap.h"

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Replaces the GPU's figures by the share's. Free is what linear memory may still take, but no more
 * than the GPU has. That of a swap share need not be on the GPU. */
static void show_share(unsigned device, uint64_t *free, uint64_t *total) {
    dv_share *share = attached_share();
    dv_usage_t usage;
    measure_refresh(device);
    dv_export_settle(share);
    if (!dv_usage(share, device, &usage)) {
        return;
    }
    uint64_t left = usage.limit > usage.used ? usage.limit - usage.used : 0;
    if (swaps()) {
        *free = left;
        *total = usage.limit + dv_share_limit(share, dv_share_kept(share, device));
    } else {
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
        *free = (unsigned)least(wide_free, UINT32_MAX);
        *total = (unsigned)least(wide_total, UINT32_MAX);
    }
    return result;
}

/* What the program has of a device, of which the driver tells the total: no more than that, but for
 * a swap share. */
static uint64_t total_of(CUdevice device, uint64_t total) {
    int number = device_number(device);
    if (number < 0) {
        return total;
    }
    uint64_t limit = dv_share_limit(attached_share(), (unsigned)number);
    if (swaps()) {
        return limit +
               dv_share_limit(attached_share(), dv_share_kept(attached_share(), (unsigned)number));
    }
    return least(total, limit);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUresult result = DV_REAL(cuDeviceTotalMem_v2)(bytes, device);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        *bytes = total_of(device, *bytes);
    }
    return result;
}

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device) {
    CUresult result = DV_REAL(cuDeviceTotalMem)(bytes, device);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        *bytes = (unsigned)least(total_of(device, *bytes), UINT32_MAX);
    }
    return result;
}
