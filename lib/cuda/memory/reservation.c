#include "cuda/memory/reservation.h"

#include "cuda/attach.h"
#include "cuda/device.h"

static bool gives_back(unsigned device) {
    bool less = false;
    TELL(memory_short, (device, &less));
    return less;
}

static CUresult reserve(dv_share *share, unsigned device, uint64_t bytes) {
    dv_status status = dv_reserve(share, device, bytes);
    if (status == DV_NO_MEMORY && gives_back(device)) {
        status = dv_reserve(share, device, bytes);
    }
    switch (status) {
    case DV_OK:
        return CUDA_SUCCESS;
    case DV_NO_SHARE:
    case DV_CORRUPT:
    case DV_OLD_PAGE:
        return CUDA_ERROR_SYSTEM_NOT_READY;
    default:
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

CUresult claim_open_number(struct claim *claim, unsigned number, uint64_t worst) {
    dv_share *share = tenant_share();
    if (share == NULL) {
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    claim->place = (struct place){.device = number};
    claim->reserved = worst;
    return reserve(share, number, worst);
}

/* No device of the share: because the driver is not initialised, or there is none. */
static CUresult why_unknown(void) {
    int count;
    CUresult result = DV_CALL(cuDeviceGetCount, &count);
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_DEVICE;
}

CUresult claim_open_on(struct claim *claim, CUdevice device, uint64_t worst) {
    if (tenant_open() != CUDA_SUCCESS) {
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    int number = device_number(device);
    return number < 0 ? why_unknown() : claim_open_number(claim, (unsigned)number, worst);
}

CUresult claim_open(struct claim *claim, uint64_t worst) {
    if (tenant_share() == NULL && tenant_open() != CUDA_SUCCESS) {
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    CUresult result = context_current(&claim->place);
    claim->reserved = worst;
    return result == CUDA_SUCCESS ? reserve(tenant_share(), claim->place.device, worst) : result;
}

void claim_settle(struct claim *claim, uint64_t charged) {
    dv_settle(tenant_share(), claim->place.device, claim->reserved, charged);
}

void claim_release(unsigned device, uint64_t bytes) {
    if (bytes > 0) {
        dv_release(tenant_share(), device, bytes);
    }
}
