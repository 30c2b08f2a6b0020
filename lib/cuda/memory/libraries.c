#include "cuda/memory/libraries.h"

#include <string.h>

#include "cuda/attach.h"
#include "cuda/fork.h"
#include "cuda/lock.h"
#include "cuda/memory/variables.h"
#include "cuda/table.h"

static table libraries; /* by handle: bytes of variables */

static struct {
    lock lock;
    uint64_t small, whole; /* bytes of all libraries */
    unsigned contexts[DV_PAGE_DEVICES];
    uint64_t charged[DV_PAGE_DEVICES];
} all;

static uint64_t each(void) {
    return variables_pooled(all.small) + all.whole;
}

uint64_t libraries_bytes(void) {
    lock_take(&all.lock);
    uint64_t bytes = each();
    lock_give(&all.lock);
    return bytes;
}

/* Charges what there is now, and ends the reservation. */
static void follow(struct reservation *reservation) {
    unsigned device = reservation->home.device;
    reservation->account = dv_share_kept(attached_share(), device);
    lock_take(&all.lock);
    uint64_t now = each() * all.contexts[device], before = all.charged[device];
    all.charged[device] = now;
    lock_give(&all.lock);
    reservation_settle(reservation, now > before ? now - before : 0);
    reservation_release(device, now < before ? before - now : 0);
}

static void follow_all(struct library_load *load) {
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        if (load->reservations[i].bytes != 0 ||
            __atomic_load_n(&all.contexts[i], __ATOMIC_RELAXED) != 0) {
            load->reservations[i].home.device = i;
            follow(&load->reservations[i]);
        }
    }
}

void libraries_contexts(unsigned device, unsigned contexts) {
    struct reservation none = {.home = {.device = device}};
    lock_take(&all.lock);
    __atomic_store_n(&all.contexts[device], contexts, __ATOMIC_RELAXED);
    bool empty = each() == 0 && all.charged[device] == 0;
    lock_give(&all.lock);
    if (!empty) {
        follow(&none);
    }
}

static void count(uint64_t bytes, bool comes) {
    lock_take(&all.lock);
    uint64_t *of = variables_small(bytes) ? &all.small : &all.whole;
    bytes = variables_small(bytes) ? bytes : variables_worst(bytes);
    *of = comes ? *of + bytes : *of - bytes;
    lock_give(&all.lock);
}

CUresult library_loading(struct library_load *load, uint64_t bytes) {
    CUresult result = CUDA_SUCCESS;
    *load = (struct library_load){.bytes = bytes};
    for (unsigned i = 0; i < DV_PAGE_DEVICES && bytes != 0 && result == CUDA_SUCCESS; i++) {
        unsigned contexts = __atomic_load_n(&all.contexts[i], __ATOMIC_RELAXED);
        uint64_t worst;
        if (__builtin_mul_overflow(variables_worst(bytes), (uint64_t)contexts, &worst)) {
            worst = UINT64_MAX;
        }
        if (contexts != 0) {
            result = reservation_open_number(&load->reservations[i], i, worst);
            load->reservations[i].bytes = result == CUDA_SUCCESS ? worst : 0;
        }
    }
    if (result != CUDA_SUCCESS) {
        follow_all(load);
    }
    return result;
}

void library_loaded(struct library_load *load, CUresult result, const void *library) {
    if (load->bytes == 0) {
        return;
    }
    if (result == CUDA_SUCCESS) {
        struct entry entry = entry_of_bytes(load->bytes, 0, 0), old;
        bool had = false;
        if (table_put(&libraries, (uint64_t)(uintptr_t)library, entry, &old, &had) && had) {
            count(entry_bytes(old), false); /* ended unseen */
        }
        count(entry_bytes(entry), true);
    }
    follow_all(load);
}

uint64_t library_unloading(const void *library) {
    struct entry entry;
    bool known = library != NULL && table_take(&libraries, (uint64_t)(uintptr_t)library, &entry);
    return known ? entry_bytes(entry) : 0;
}

void library_unloaded(const void *library, uint64_t bytes, CUresult result) {
    struct library_load none = {.bytes = 0};
    if (bytes == 0) {
        return;
    }
    if (result != CUDA_SUCCESS) {
        table_put(&libraries, (uint64_t)(uintptr_t)library, entry_of_bytes(bytes, 0, 0), NULL,
                  NULL);
        return;
    }
    count(bytes, false);
    follow_all(&none);
}

static void libraries_forked(void) {
    table_forget(&libraries);
    memset(&all, 0, sizeof all);
}
ON(forked, libraries_forked);
