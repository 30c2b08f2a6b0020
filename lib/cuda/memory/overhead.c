#include "cuda/memory/overhead.h"

#include <string.h>

#include "cuda/attach.h"
#include "cuda/fork.h"
#include "cuda/lock.h"
#include "cuda/memory/measure.h"
#include "share/share.h"

#define MEASUREMENTS_MAX 4 /* tries, until no allocation of another thread disturbs one */

static struct {
    lock lock;
    unsigned contexts; /* alive, of this copy of the library */
} figures[DV_PAGE_DEVICES];

/* Bytes that are charged for allocations of this process, to itself or to the share, and bytes that
 * are reserved for calls under way. */
static dv_own_t own_figures(unsigned device) {
    dv_own_t own;
    dv_own(attached_share(), device, &own);
    own.charged += own.exported;
    return own;
}

static bool measure(unsigned device, uint64_t *overhead) {
    const dv_page_device *gpu = dv_share_device(attached_share(), device);
    for (int i = 0; i < MEASUREMENTS_MAX; i++) {
        dv_own_t before = own_figures(device);
        uint64_t held;
        if (!measure_process(gpu->pci_bus_id, gpu->uuid, &held)) {
            return false;
        }
        dv_own_t after = own_figures(device);
        if (after.charged == before.charged && after.pending == before.pending) {
            *overhead = held > before.charged ? held - before.charged : 0;
            return true;
        }
    }
    return false;
}

static uint64_t estimate(unsigned device) {
    return dv_share_device(attached_share(), device)->context_bytes;
}

static bool has_context(unsigned device) {
    lock_take(&figures[device].lock);
    bool has = figures[device].contexts > 0;
    lock_give(&figures[device].lock);
    return has;
}

static void count(unsigned device, int delta) {
    lock_take(&figures[device].lock);
    if (delta > 0 || figures[device].contexts > 0) {
        figures[device].contexts += (unsigned)delta;
    }
    lock_give(&figures[device].lock);
}

/* A measured figure counts even if no context of ours is left, because another copy of the library
 * in this process may have some. */
static void update(unsigned device) {
    uint64_t bytes;
    if (!measure(device, &bytes)) {
        bytes = has_context(device) ? estimate(device) : 0;
    }
    dv_overhead(attached_share(), device, bytes);
}

/* The estimate is what the first context of a process on a GPU takes; later ones take little. */
CUresult overhead_open(struct reservation *reservation, CUdevice device) {
    CUresult result = reservation_open_on(reservation, device, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    unsigned number = reservation->home.device;
    if (has_context(number)) {
        return reservation_open_number(reservation, number, 0);
    }
    TELL(context_wanted, (number));
    return reservation_open_number(reservation, number, estimate(number));
}

void overhead_settle(struct reservation *reservation, bool made) {
    if (made) {
        overhead_appeared(reservation->home.device);
    }
    /* Settled after the overhead is charged, so that it is counted at every moment. */
    reservation_settle(reservation, 0);
}

void overhead_appeared(unsigned device) {
    count(device, 1);
    update(device);
}
ON(context_met, overhead_appeared);

void overhead_ended(unsigned device) {
    count(device, -1);
    update(device);
}

void overhead_measure(unsigned device) {
    uint64_t bytes;
    if (measure(device, &bytes)) {
        dv_overhead(attached_share(), device, bytes);
    }
}

static void overhead_forked(void) {
    memset(figures, 0, sizeof figures);
}
ON(forked, overhead_forked);
