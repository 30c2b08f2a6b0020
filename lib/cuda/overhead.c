#include "cuda/overhead.h"

#include <string.h>

#include "common/share.h"
#include "cuda/lock.h"
#include "cuda/measure.h"
#include "cuda/tenant.h"

#define MEASUREMENTS_MAX 4 /* until none is disturbed by another thread's allocation */

static struct {
    lock lock;
    unsigned contexts; /* alive, of this process */
    uint64_t reported; /* overhead, as the ledger has it */
    int64_t moved;     /* bytes charged to the share as exports */
} figures[DV_DEVICES_MAX];

struct own_charge {
    unsigned device;
    uint64_t bytes;
};

static bool find_own(const dv_process *process, void *arg) {
    struct own_charge *own = arg;
    if (process->self) {
        own->bytes = process->used[own->device];
    }
    return !process->self;
}

/* Bytes that this process is charged for its allocations. */
static uint64_t charged(unsigned device) {
    struct own_charge own = {.device = device};
    dv_processes(tenant_share(), find_own, &own);
    lock_take(&figures[device].lock);
    uint64_t bytes = own.bytes - figures[device].reported + (uint64_t)figures[device].moved;
    lock_give(&figures[device].lock);
    return (int64_t)bytes > 0 ? bytes : 0;
}

static bool measure(unsigned device, uint64_t *overhead) {
    const uint8_t *uuid = dv_share_device(tenant_share(), device)->uuid;
    for (int i = 0; i < MEASUREMENTS_MAX; i++) {
        uint64_t before = charged(device), held;
        if (!measure_process(uuid, &held)) {
            return false;
        }
        if (charged(device) == before) {
            *overhead = held > before ? held - before : 0;
            return true;
        }
    }
    return false;
}

static uint64_t estimate(unsigned device) {
    return dv_share_device(tenant_share(), device)->context_bytes;
}

static void set(unsigned device, uint64_t bytes) {
    lock_take(&figures[device].lock);
    uint64_t now = figures[device].contexts > 0 ? bytes : 0;
    if (now != figures[device].reported) {
        dv_overhead(tenant_share(), device, now);
        figures[device].reported = now;
    }
    lock_give(&figures[device].lock);
}

static void count(unsigned device, int delta) {
    lock_take(&figures[device].lock);
    if (delta > 0 || figures[device].contexts > 0) {
        figures[device].contexts += (unsigned)delta;
    }
    lock_give(&figures[device].lock);
}

static void update(unsigned device) {
    uint64_t bytes;
    set(device, measure(device, &bytes) ? bytes : estimate(device));
}

/* Only a process's first context on a GPU brings what the estimate stands for. */
CUresult overhead_open(struct claim *claim, CUdevice device) {
    CUresult result = claim_open_on(claim, device, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    unsigned number = claim->place.device;
    lock_take(&figures[number].lock);
    bool first = figures[number].contexts == 0;
    lock_give(&figures[number].lock);
    return claim_open_number(claim, number, first ? estimate(number) : 0);
}

void overhead_settle(struct claim *claim, bool made) {
    if (made) {
        overhead_appeared(claim->place.device);
    }
    /* After the figure is charged, so that there is no moment at which it is not counted. */
    claim_settle(claim, 0);
}

void overhead_appeared(unsigned device) {
    count(device, 1);
    update(device);
}

void overhead_ended(unsigned device) {
    count(device, -1);
    update(device);
}

void overhead_measure(unsigned device) {
    uint64_t bytes;
    if (measure(device, &bytes)) {
        set(device, bytes);
    }
}

void overhead_moved(unsigned device, int64_t bytes) {
    lock_take(&figures[device].lock);
    figures[device].moved += bytes;
    lock_give(&figures[device].lock);
}

void overhead_forked(void) {
    memset(figures, 0, sizeof figures);
    measure_forked();
}
