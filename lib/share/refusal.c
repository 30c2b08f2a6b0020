/* Counts refused allocations, for people: no word of these decides anything. */
#include "share/state.h"

/* Each failed swap means that another allocation was refused meanwhile. */
#define RAISE_TRIES 16u

static void raise_largest(dv_page_gpu *gpu, uint64_t bytes) {
    for (unsigned i = 0; i < RAISE_TRIES; i++) {
        uint64_t present = load64(&gpu->refused_largest);
        if (bytes <= present || swap64(&gpu->refused_largest, present, bytes)) {
            return;
        }
    }
}

void dv_refused(dv_share *share, unsigned device, uint64_t bytes, bool by_gpu) {
    if (device >= share->device_count) {
        return;
    }
    dv_page_gpu *gpu = &share->gpu[device];
    raise_largest(gpu, bytes);
    store64(&gpu->refused_last, bytes);
    store64(&gpu->refused_at, os_now_ns());
    store32(&gpu->refuser, by_gpu ? DV_PAGE_REFUSER_GPU : DV_PAGE_REFUSER_LIMIT);
    /* Last, so that who sees the count finds the other words. */
    __atomic_fetch_add(by_gpu ? &gpu->refused_by_gpu : &gpu->refused, 1, __ATOMIC_RELEASE);
}
