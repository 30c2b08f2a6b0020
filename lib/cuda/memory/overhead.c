#include "cuda/memory/overhead.h"

#include <string.h>

#include "cuda/attach.h"
#include "cuda/fork.h"
#include "cuda/lock.h"
#include "cuda/memory/libraries.h"
#include "cuda/memory/measure.h"
#include "share/share.h"

/* Makes one number of two that count operations: it changes with each of them. */
#define BOTH UINT64_C(0x9e3779b97f4a7c15)

#define MEASUREMENTS_MAX 4 /* tries, until no allocation of another thread disturbs one */

static struct {
    lock lock;
    unsigned contexts; /* alive, of this copy of the library */
    uint64_t least;    /* bytes: what the first context was measured to take; atomic */
} figures[DV_PAGE_DEVICES];

/* Overhead never leaves the GPU. */
static unsigned account_of(unsigned device) {
    return dv_share_kept(attached_share(), device);
}

/* Bytes that are charged for allocations of this process, to itself or to the share, and bytes that
 * are reserved for calls under way: in a swap share of both accounts, because the driver's figure
 * has what is on the GPU of either. */
static dv_own_t own_figures(unsigned device) {
    dv_own_t own, turning;
    dv_own(attached_share(), account_of(device), &own);
    own.charged += own.exported;
    if (account_of(device) != device && dv_own(attached_share(), device, &turning)) {
        own.charged += turning.charged + turning.exported;
        own.pending += turning.pending;
        own.operation = own.operation * BOTH + turning.operation;
    }
    return own;
}

/* What the driver shows beyond the charges. *none is true if that cannot be told, because NVML does
 * not show this process. It may be too much by *pending bytes: of calls that were under way, and
 * whose memory the driver may have shown. False if it should be asked later. */
static bool measure(unsigned device, uint64_t *overhead, bool *none, uint64_t *pending) {
    const dv_page_device *gpu = dv_share_device(attached_share(), device);
    *none = false;
    *pending = 0;
    for (int i = 0; i < MEASUREMENTS_MAX && measure_allowed(); i++) {
        dv_own_t before = own_figures(device);
        uint64_t held;
        if (!measure_process(device, gpu->pci_bus_id, gpu->uuid, &held)) {
            *none = true;
            return true;
        }
        dv_own_t after = own_figures(device);
        /* The same figures do not do: memory may have been taken and freed meanwhile. */
        if (after.operation == before.operation) {
            *pending = before.pending;
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

/* Returns how many contexts there are then. */
static unsigned count(unsigned device, int delta) {
    lock_take(&figures[device].lock);
    if (delta > 0 || figures[device].contexts > 0) {
        figures[device].contexts += (unsigned)delta;
    }
    unsigned contexts = figures[device].contexts;
    lock_give(&figures[device].lock);
    return contexts;
}

static void set_due(unsigned device, bool due) {
    __atomic_store_n(&measure_due[device], due, __ATOMIC_RELAXED);
}

/* The first context of this process is there, or the last one gone. A measured figure counts even
 * if no context of ours is left, because another copy of the library in this process may have some.
 */
static void begin_anew(unsigned device, uint64_t unmeasured) {
    uint64_t bytes = 0, pending;
    bool none, told = measure(device, &bytes, &none, &pending);
    set_due(device, !told || pending != 0);
    bytes = told && !none ? bytes : unmeasured;
    __atomic_store_n(&figures[device].least, unmeasured != 0 ? bytes : 0, __ATOMIC_RELAXED);
    dv_overhead(attached_share(), account_of(device), bytes);
}

/* Charges may be more than the driver has of them: managed memory that is on the host, buffers that
 * kernels do not need yet. That is no reason to count less for the context, which would be too little
 * as soon as such a charge ends. */
static uint64_t beyond(unsigned device, uint64_t bytes) {
    uint64_t least = __atomic_load_n(&figures[device].least, __ATOMIC_RELAXED);
    return bytes > least ? bytes : least;
}

/* settled gives the figure to charge for one that may be too much by so many bytes. */
static void look(unsigned device, uint64_t (*settled)(unsigned, uint64_t, uint64_t)) {
    uint64_t bytes, agents, pending;
    bool none;
    if (dv_measured(attached_share(), account_of(device), &agents)) {
        set_due(device, false); /* what is new, the agent sees */
        return;
    }
    set_due(device, true);
    if (!measure(device, &bytes, &none, &pending)) {
        return;
    }
    set_due(device, pending != 0);
    if (!none) {
        /* What an agent found before it left may be part of it, and counts already. */
        bytes = settled(device, bytes > agents ? bytes - agents : 0, pending);
        dv_overhead(attached_share(), account_of(device), beyond(device, bytes));
    }
}

static uint64_t all_of_it(unsigned device, uint64_t bytes, uint64_t pending) {
    (void)device;
    (void)pending;
    return bytes;
}

/* The caller's own call may have taken what it reserved, so all counts. */
void overhead_look(unsigned device) {
    look(device, all_of_it);
}

/* What is charged stands as far as the new figure leaves it possible: it has to be at most that, and
 * at least that without all that was pending. */
static uint64_t nearest(unsigned device, uint64_t bytes, uint64_t pending) {
    uint64_t least = bytes > pending ? bytes - pending : 0;
    dv_own_t own;
    dv_own(attached_share(), account_of(device), &own);
    return own.overhead > bytes ? bytes : own.overhead < least ? least : own.overhead;
}

/* Before the calling thread reserves, so only calls of other threads are under way. Each of them
 * that may add to the overhead looks by itself when it is done. */
static void look_again(unsigned device) {
    look(device, nearest);
}
ON(measure_overdue, look_again);

void overhead_lessened(unsigned device) {
    dv_eased(attached_share(), account_of(device));
    overhead_look(device);
}

/* The estimate is what the first context of a process on a GPU takes; later ones take little. */
CUresult overhead_open(struct reservation *reservation, CUdevice device) {
    CUresult result = reservation_open_on(reservation, device, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    unsigned number = reservation->home.device;
    uint64_t libraries = libraries_bytes();
    if (has_context(number)) {
        return reservation_open_number(reservation, number, libraries);
    }
    TELL(context_wanted, (number));
    return reservation_open_number(reservation, number, estimate(number) + libraries);
}

void overhead_settle(struct reservation *reservation, bool made, CUresult result) {
    if (made) {
        overhead_appeared(reservation->home.device);
    }
    /* Settled after the overhead is charged, so that it is counted at every moment. */
    reservation_fail(reservation, result);
}

void overhead_appeared(unsigned device) {
    unsigned contexts = count(device, 1);
    libraries_contexts(device, contexts);
    if (contexts == 1) {
        begin_anew(device, estimate(device));
    } else {
        overhead_look(device);
    }
}

/* The agent may have counted a context that we did not see made. */
static void overhead_met(unsigned device) {
    overhead_appeared(device);
    dv_eased(attached_share(), account_of(device));
}
ON(context_met, overhead_met);

void overhead_ended(unsigned device) {
    unsigned contexts = count(device, -1);
    libraries_contexts(device, contexts);
    if (contexts == 0) {
        begin_anew(device, 0);
        dv_eased(attached_share(), account_of(device));
    } else {
        overhead_lessened(device);
    }
}

static void overhead_forked(void) {
    memset(figures, 0, sizeof figures);
}
ON(forked, overhead_forked);
