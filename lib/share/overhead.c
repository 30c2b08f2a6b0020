/* What the agent measured beside the ledger: memory that the driver shows and no call announced.
 *
 * It counts like memory in use. But it is a figure of the moment at which it was measured, and what
 * it counts may have ended since: then a request that does not fit beside it waits for a figure that
 * began after the request. If none comes, because no agent measures, the old one no longer counts:
 * nobody is refused for memory that may be free. */
#include "share/state.h"

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static bool measured_lately(uint64_t measured) {
    return measured != 0 && os_now_ns() - measured <= DV_PAGE_BLIND_NS;
}

/* How a request that begins now takes the figure. A moment in the future is nobody's. */
overhead_since overhead_now(const dv_share *share, unsigned device) {
    return (overhead_since){.after = least(load64(&share->gpu[device].eased), os_now_ns())};
}

/* Units that count in any case, and those that do until the request has waited. */
uint64_t overhead_counted(const dv_share *share, unsigned device, const overhead_since *since,
                          uint64_t *doubtful) {
    const dv_page_device *page = &share->config->device[device];
    /* Measured first: the agent writes it last, so the figure is of this reading or a later one. */
    uint64_t measured = load64(&page->measured);
    uint64_t units = units_of(load64(&page->overhead));
    *doubtful = 0;
    if (units == 0 || measured > since->after) {
        return units;
    }
    *doubtful = since->waited || !measured_lately(measured) ? 0 : units;
    return 0;
}

void overhead_eased(dv_page_gpu *gpu) {
    store64(&gpu->eased, os_now_ns());
}

void dv_eased(dv_share *share, unsigned device) {
    if (device < share->device_count) {
        overhead_eased(&share->gpu[device]);
    }
}

bool dv_measured(const dv_share *share, unsigned device, uint64_t *bytes) {
    *bytes = 0;
    if (device >= share->device_count) {
        return false;
    }
    overhead_since since = overhead_now(share, device);
    uint64_t doubtful, units = overhead_counted(share, device, &since, &doubtful);
    *bytes = (units + doubtful) * DV_PAGE_UNIT;
    return measured_lately(load64(&share->config->device[device].measured));
}
