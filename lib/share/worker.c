/* Workers, through which this process tells the arbiter about its work.
 *
 * The owner of a worker is a slot and its generation, so a worker ends with its process and never
 * passes to a later process in the same slot. Another copy of the library in this process does not
 * recognise that owner as its own, and takes another worker. */
#include "share/state.h"
#include "share/time.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "libc/cancel.h"

#define RETRY_NS 1000000000u

unsigned owner_slot(uint32_t owner) {
    return (owner & ((1u << DV_PAGE_OWNER_BITS) - 1)) - 1;
}

uint32_t name_owner(const dv_share *share, unsigned slot) {
    return (uint32_t)load64(&share->state->slot[slot].generation) << DV_PAGE_GENERATION_SHIFT |
           (slot + 1);
}

bool abandoned(const dv_share *share, uint32_t owner) {
    unsigned slot = owner_slot(owner);
    return slot >= DV_PAGE_SLOTS || load32(&share->state->slot[slot].pid) == 0 ||
           (name_owner(share, slot) ^ owner) >> DV_PAGE_GENERATION_SHIFT != 0;
}

/* Readers ignore the worker until owner has no flag, so they do not take what the last owner left
 * for ours. If we die before that, the worker belongs to a dead owner like any other. */
static bool take_over(dv_page_worker *worker, uint32_t from, uint32_t owner) {
    if (!swap32(&worker->owner, from, owner | DV_PAGE_OWNER_TAKING)) {
        return false;
    }
    store32(&worker->count, 0);
    store64(&worker->open_since, 0);
    store64(&worker->open_until, 0);
    store64(&worker->unmeasured, 0);
    store32(&worker->owner, owner);
    return true;
}

/* Finds the lowest worker that the page shows to be free, so that readers look at few. If there is
 * none, finds the lowest one whose process has died, which costs a system call for each. */
static int find_worker(const dv_share *share, dv_page_gpu *gpu, uint32_t owner) {
    int found = -1;
    for (int i = 0; i < (int)DV_PAGE_WORKERS && found < 0; i++) {
        uint32_t from = load32(&gpu->worker[i].owner);
        if (abandoned(share, from) && take_over(&gpu->worker[i], from, owner)) {
            found = i;
        }
    }
    int file = found < 0 ? open_state(share, O_RDONLY) : -1;
    for (int i = 0; file >= 0 && i < (int)DV_PAGE_WORKERS && found < 0; i++) {
        uint32_t from = load32(&gpu->worker[i].owner);
        if ((abandoned(share, from) || look_at(share, file, owner_slot(from)) == FOUND_DEAD) &&
            take_over(&gpu->worker[i], from, owner)) {
            found = i;
        }
    }
    if (file >= 0) {
        close(file);
    }
    return found;
}

static __attribute__((noinline)) int take_worker(dv_share *share, unsigned device) {
    UNCANCELLED;
    dv_own_worker *own = &share->worker[device];
    uint64_t now = os_now_ns();
    if (now < load64(&own->retry) ||
        (own_slot(share) == SLOT_NONE && ensure_slot(share) != DV_OK) ||
        !os_lock(&share->taking, &share->waiting)) {
        return -1;
    }
    int saved = errno, number = __atomic_load_n(&own->number, __ATOMIC_ACQUIRE) - 1;
    if (number < 0) {
        number =
            find_worker(share, &share->gpu[device], name_owner(share, (unsigned)own_slot(share)));
        __atomic_store_n(&own->number, number + 1, __ATOMIC_RELEASE);
    }
    if (number < 0) {
        store64(&own->retry, now + RETRY_NS);
    }
    os_unlock(&share->taking, &share->waiting);
    errno = saved;
    return number;
}

int dv_time_worker(dv_share *share, unsigned device) {
    if (device >= share->device_count) {
        return -1;
    }
    int number = __atomic_load_n(&share->worker[device].number, __ATOMIC_ACQUIRE) - 1;
    return __builtin_expect(number >= 0, 1) ? number : take_worker(share, device);
}

static dv_page_worker *own_worker(dv_share *share, unsigned device) {
    int number = device < share->device_count
                     ? __atomic_load_n(&share->worker[device].number, __ATOMIC_ACQUIRE)
                     : 0;
    return number > 0 ? &share->gpu[device].worker[number - 1] : NULL;
}

void dv_time_open(dv_share *share, unsigned device, uint64_t since, uint64_t until) {
    dv_page_worker *worker = own_worker(share, device);
    if (worker != NULL) {
        store64(&worker->open_until, until);
        store64(&worker->open_since, since);
    }
}

void dv_time_interval(dv_share *share, unsigned device, uint64_t begin, uint64_t end,
                      uint64_t charged) {
    dv_page_worker *worker = own_worker(share, device);
    if (worker == NULL) {
        return;
    }
    uint32_t count = load32(&worker->count);
    dv_page_interval *interval = &worker->interval[count % DV_PAGE_INTERVALS];
    store64(&interval->begin, begin);
    store64(&interval->end, end);
    store64(&interval->charged, charged);
    store32(&worker->count, count + 1);
    store64(&worker->open_since, 0);
}

void dv_time_unmeasured(dv_share *share, unsigned device, uint64_t ns) {
    dv_page_worker *worker = own_worker(share, device);
    if (worker != NULL) {
        store64(&worker->unmeasured, load64(&worker->unmeasured) + ns);
    }
}

bool dv_time_under_way(const dv_share *share, uint64_t since) {
    for (unsigned device = 0; device < share->device_count; device++) {
        for (unsigned i = 0; i < DV_PAGE_WORKERS; i++) {
            const dv_page_worker *worker = &share->gpu[device].worker[i];
            uint64_t open = load64(&worker->open_since);
            if (open != 0 && open <= since && !abandoned(share, load32(&worker->owner))) {
                return true;
            }
        }
    }
    return false;
}
