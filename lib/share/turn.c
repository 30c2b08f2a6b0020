/* What all processes of a share have once: the turn to launch something of unknown cost, and the
 * way out for a launch that others may wait for.
 *
 * Both are words of the state page with the time at which they were taken. Nobody waits for a
 * process to give them back, so it does not matter whether that process lives. */
#include "share/state.h"
#include "share/time.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "libc/cancel.h"

/* Whether the owner of a turn lives is asked so often; it costs some microseconds. */
#define LOOK_NS 2000000u
/* The owner of a turn whose process has no slot. Only time ends it. */
#define NOBODY_KNOWN ((1u << DV_PAGE_OWNER_BITS) - 1)
/* After so many times the longest wait any work under way counts. */
#define LONG_WAITS 6u
/* A moment so far in the future was not written by this machine's clock. */
#define FUTURE_NS 1000000000u

_Static_assert(offsetof(dv_page_bucket, turn) % 16 == 0, "the pair is aligned to its size");
_Static_assert(offsetof(dv_page_bucket, since) == offsetof(dv_page_bucket, turn) + 8,
               "since is the high half");
_Static_assert(NOBODY_KNOWN > DV_PAGE_SLOTS, "no slot is named so");

/* True once DV_TIME_WAIT_NS have passed since a moment that the page holds. */
static bool is_over(uint64_t since, uint64_t now) {
    return now >= since ? now - since >= DV_TIME_WAIT_NS : since - now > FUTURE_NS;
}

static uint32_t own_name(const dv_share *share) {
    int slot = own_slot(share);
    return slot == SLOT_NONE ? NOBODY_KNOWN : name_owner(share, (unsigned)slot);
}

static bool is_dead(dv_share *share, unsigned device, uint32_t owner, uint64_t now) {
    UNCANCELLED;
    if (owner_slot(owner) >= DV_PAGE_SLOTS || owner == own_name(share)) {
        return false;
    }
    if (abandoned(share, owner)) {
        return true;
    }
    uint64_t looked = __atomic_load_n(&share->turn_looked[device], __ATOMIC_RELAXED);
    if (now - looked < LOOK_NS) {
        return false;
    }
    __atomic_store_n(&share->turn_looked[device], now, __ATOMIC_RELAXED);
    int saved = errno, file = open_state(share, O_RDONLY);
    bool dead = file >= 0 && look_at(share, file, owner_slot(owner)) == FOUND_DEAD;
    if (file >= 0) {
        close(file);
    }
    errno = saved;
    return dead;
}

/* The launch of a process that died was never measured. It took no longer than until now. */
static void charge_dead(dv_share *share, unsigned device, uint64_t since, uint64_t now) {
    uint64_t ns = now > since ? now - since : 0;
    dv_time_charge(share, device, now, ns < DV_TIME_WAIT_NS ? ns : DV_TIME_WAIT_NS, 0);
}

uint64_t dv_time_turn(dv_share *share, unsigned device, uint64_t now) {
    if (device >= share->device_count) {
        return now;
    }
    dv_page_bucket *bucket = &share->gpu[device].bucket;
    word_pair held = {.high = load64(&bucket->since)};
    held.low = load64(&bucket->turn);
    bool dead = held.low != 0 && is_dead(share, device, (uint32_t)held.low, now);
    if (held.low != 0 && !dead && !is_over(held.high, now)) {
        return 0;
    }
    if (!swap_pair(&bucket->turn, held, (word_pair){own_name(share), now})) {
        return 0;
    }
    if (dead) {
        charge_dead(share, device, held.high, now);
    } else if (held.low != 0) {
        __atomic_fetch_add(&bucket->overdrawn, 1, __ATOMIC_RELAXED);
    }
    return now;
}

bool dv_time_turn_taken(const dv_share *share, unsigned device, uint64_t now) {
    if (device >= share->device_count) {
        return false;
    }
    const dv_page_bucket *bucket = &share->gpu[device].bucket;
    return load64(&bucket->turn) != 0 && !is_over(load64(&bucket->since), now);
}

void dv_time_turn_end(dv_share *share, unsigned device, uint64_t turn) {
    if (device < share->device_count && turn != 0) {
        dv_page_bucket *bucket = &share->gpu[device].bucket;
        swap_pair(&bucket->turn, (word_pair){own_name(share), turn}, (word_pair){0, turn});
    }
}

/* Whether what is under way may wait for a launch. */
static bool is_stuck(const dv_share *share, uint64_t now, uint64_t waited) {
    return dv_time_under_way(share, now - DV_TIME_WAIT_NS) ||
           (waited >= LONG_WAITS * DV_TIME_WAIT_NS && dv_time_under_way(share, now));
}

bool dv_time_escape(dv_share *share, unsigned device, uint64_t now, uint64_t began, bool stuck) {
    uint64_t waited = now > began ? now - began : 0;
    if (waited < DV_TIME_WAIT_NS) {
        return false;
    }
    if (device >= share->device_count) {
        return true;
    }
    const dv_page_budget *budget = &share->config->device[device].budget;
    dv_page_bucket *bucket = &share->gpu[device].bucket;
    uint64_t escaped = load64(&bucket->escaped);
    bool shrinks =
        (load32(&budget->flags) & DV_PAGE_BUDGET_YIELD) == 0 && load32(&budget->rate) != 0;
    if ((shrinks && !stuck && !is_stuck(share, now, waited)) || !is_over(escaped, now) ||
        !swap64(&bucket->escaped, escaped, now)) {
        return false;
    }
    __atomic_fetch_add(&bucket->overdrawn, 1, __ATOMIC_RELAXED);
    return true;
}
