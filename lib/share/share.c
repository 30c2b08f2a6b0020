/* What a share is and how full it is. */
#include "share/state.h"

#include <string.h>

unsigned dv_share_device_count(const dv_share *share) {
    return share->swap ? share->device_count / 2 : share->device_count;
}

bool dv_share_swap(const dv_share *share) {
    return share->swap;
}

unsigned dv_share_kept(const dv_share *share, unsigned device) {
    return share->swap && device < share->device_count / 2 ? device + share->device_count / 2
                                                           : device;
}

const dv_page_device *dv_share_device(const dv_share *share, unsigned device) {
    return device < share->device_count ? &share->device[device] : NULL;
}

int dv_share_find(const dv_share *share, const uint8_t uuid[16]) {
    for (unsigned i = 0; i < share->device_count; i++) {
        if (memcmp(share->device[i].uuid, uuid, sizeof share->device[i].uuid) == 0) {
            return (int)i;
        }
    }
    return -1;
}

const char *dv_share_mps_pipe(const dv_share *share) {
    return share->mps ? share->mps_pipe : NULL;
}

bool dv_share_mig(const dv_share *share) {
    return share->mig;
}

uid_t dv_share_owner(const dv_share *share) {
    return share->owner_of_config;
}

uint64_t dv_share_limit(const dv_share *share, unsigned device) {
    return device < share->device_count ? present_limit(share, device) : 0;
}

bool dv_usage(dv_share *share, unsigned device, dv_usage_t *usage) {
    if (device >= share->device_count) {
        return false;
    }
    const dv_page_gpu *gpu = &share->gpu[device];
    uint64_t amounts = load64(&gpu->amounts), overhead = 0, measured;
    unsigned count = slot_count(share);
    for (unsigned slot = 0; slot < count; slot++) {
        if (load32(&share->state->slot[slot].pid) != 0) {
            overhead += (uint32_t)journal_read(gpu, slot).rest;
        }
    }
    dv_measured(share, device, &measured);
    *usage = (dv_usage_t){
        .limit = dv_share_limit(share, device),
        .used = (uint64_t)amounts_used(amounts) * DV_PAGE_UNIT + measured,
        .pending = (uint64_t)amounts_pending(amounts) * DV_PAGE_UNIT,
        .overhead = overhead * DV_PAGE_UNIT + measured,
    };
    return true;
}
