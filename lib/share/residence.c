#include "share/residence.h"

#include "share/state.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "libc/cancel.h"

#define STEP_NS 1000000u /* present.called is told so exactly */

/* Whether a device is a GPU. Behind the GPUs are the kept parts, which have no turns. */
static bool is_gpu(const dv_share *share, unsigned device) {
    return device < dv_share_device_count(share);
}

static const dv_page_turn *turn_of(const dv_share *share, unsigned device) {
    return &share->config->device[device].turn;
}

/* NULL without a slot. */
static dv_page_present *present_of(const dv_share *share, unsigned device) {
    int slot = is_gpu(share, device) ? own_slot(share) : SLOT_NONE;
    return slot != SLOT_NONE ? &share->gpu[device].present[slot] : NULL;
}

const uint64_t *dv_turn_word(const dv_share *share, unsigned device) {
    static const uint64_t open = DV_PAGE_TURN_OPEN;
    return is_gpu(share, device) ? &turn_of(share, device)->order : &open;
}

uint64_t dv_turn_order(const dv_share *share, unsigned device) {
    return __atomic_load_n(dv_turn_word(share, device), __ATOMIC_SEQ_CST);
}

bool dv_turn_closed(const dv_share *share, unsigned device, uint64_t now) {
    if (dv_turn_opens(dv_turn_order(share, device))) {
        return false;
    }
    uint64_t valid = load64(&turn_of(share, device)->valid);
    return now <= valid && valid - now <= DV_TURN_AHEAD_NS;
}

uint64_t dv_turn_give(const dv_share *share, unsigned device) {
    return is_gpu(share, device) ? load64(&turn_of(share, device)->give) : 0;
}

uint64_t dv_turn_room(const dv_share *share, unsigned device) {
    return is_gpu(share, device) ? load64(&turn_of(share, device)->room) : 0;
}

/* What all processes were charged that live, as far as their locks tell. */
static uint64_t charged_to_living(const dv_share *share, unsigned device) {
    UNCANCELLED;
    int saved = errno, file = open_state(share, O_RDONLY);
    unsigned count = slot_count(share);
    uint64_t sum = 0;
    for (unsigned slot = 0; slot < count; slot++) {
        uint64_t charged = amounts_used(journal_read(&share->gpu[device], slot).amounts);
        bool counts = load32(&share->state->slot[slot].pid) != 0 && charged > 0;
        if (counts && (file < 0 || look_at(share, file, slot) != FOUND_DEAD)) {
            sum += charged;
        }
    }
    if (file >= 0) {
        close(file);
    }
    errno = saved;
    return sum;
}

uint64_t dv_turn_part(const dv_share *share, unsigned device, uint64_t bytes) {
    int self = is_gpu(share, device) ? own_slot(share) : SLOT_NONE;
    if (self == SLOT_NONE) {
        return bytes;
    }
    uint64_t all = charged_to_living(share, device);
    uint64_t own = amounts_used(journal_read(&share->gpu[device], (unsigned)self).amounts);
    if (own >= all) {
        return bytes;
    }
    uint64_t part = (uint64_t)((double)bytes * ((double)own / (double)all));
    return part < bytes ? part : bytes;
}

void dv_present_takes_part(dv_share *share, unsigned device, bool takes_part) {
    dv_page_present *own = present_of(share, device);
    if (own != NULL) {
        store32(&own->takes_part, takes_part);
    }
}

void dv_present_done(dv_share *share, unsigned device, uint64_t order) {
    dv_page_present *own = present_of(share, device);
    if (own != NULL) {
        store64(&own->done, order);
    }
}

void dv_present_there(dv_share *share, unsigned device, uint64_t bytes) {
    dv_page_present *own = present_of(share, device);
    if (own != NULL) {
        store64(&own->there, bytes);
    }
}

void dv_present_called(dv_share *share, unsigned device, uint64_t now) {
    dv_page_present *own = present_of(share, device);
    if (own != NULL && now - load64(&own->called) + STEP_NS > 2ull * STEP_NS) {
        store64(&own->called, now);
    }
}

void dv_present_waits(dv_share *share, unsigned device, uint64_t since) {
    dv_page_present *own = present_of(share, device);
    if (own != NULL) {
        store64(&own->waits, since);
    }
}

void dv_present_unsaved(dv_share *share, uint32_t what) {
    dv_page_present *present = present_of(share, 0);
    if (present != NULL) {
        __atomic_fetch_or(&present->unsaved, what, __ATOMIC_RELAXED);
    }
}

/* A span that began before what is counted already is counted from there on. */
void dv_residence_held(dv_share *share, unsigned device, uint64_t from, uint64_t now) {
    if (!is_gpu(share, device)) {
        return;
    }
    dv_page_residence *residence = &share->gpu[device].residence;
    uint64_t until = load64(&residence->held_until);
    /* One far in the future is another clock's, or damage. */
    uint64_t begin = until > from && until <= now + DV_TURN_AHEAD_NS ? until : from;
    if (now > begin && swap64(&residence->held_until, until, now)) {
        __atomic_fetch_add(&residence->held, now - begin, __ATOMIC_RELAXED);
    }
}

void dv_residence_moved(dv_share *share, unsigned device, uint64_t in, uint64_t out, uint64_t ns) {
    if (is_gpu(share, device)) {
        dv_page_residence *residence = &share->gpu[device].residence;
        __atomic_fetch_add(&residence->moved_in, in, __ATOMIC_RELAXED);
        __atomic_fetch_add(&residence->moved_out, out, __ATOMIC_RELAXED);
        __atomic_fetch_add(&residence->moving, ns, __ATOMIC_RELAXED);
    }
}
