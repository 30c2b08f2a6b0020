/* What launches took, as the processes of a share learned it, for those that come later.
 *
 * A table of fixed size without locks, of words that are read and written one by one. A value
 * repeats a part of its key, so a reader that comes between two writes takes no other key's value.
 * The tenant may write what it likes: a wrong cost is a wrong estimate of its own launches. */
#include "share/state.h"
#include "share/time.h"

#define PROBES 8u
#define TAG_SHIFT (64u - DV_PAGE_COST_TAG_BITS)
#define NS_MASK ((1ull << TAG_SHIFT) - 1)

static uint64_t tag_of(uint64_t key) {
    return key >> TAG_SHIFT << TAG_SHIFT;
}

static dv_page_cost *place(const dv_share *share, unsigned device, uint64_t key, unsigned probe) {
    return &share->gpu[device].cost[(key + probe) & (DV_PAGE_COSTS - 1)];
}

uint64_t dv_time_learned(const dv_share *share, unsigned device, uint64_t key) {
    for (unsigned i = 0; i < PROBES && device < share->device_count && key != 0; i++) {
        const dv_page_cost *cost = place(share, device, key, i);
        uint64_t there = load64(&cost->key);
        if (there == 0) {
            return 0;
        }
        uint64_t value = load64(&cost->value), ns = value & NS_MASK;
        if (there == key && (value & ~NS_MASK) == tag_of(key)) {
            return ns <= DV_TIME_DEBT_NS ? ns : 0;
        }
    }
    return 0;
}

/* The key's place, or a free one, or else its first. */
static dv_page_cost *place_for(const dv_share *share, unsigned device, uint64_t key) {
    for (unsigned i = 0; i < PROBES; i++) {
        dv_page_cost *cost = place(share, device, key, i);
        uint64_t there = load64(&cost->key);
        if (there == key || (there == 0 && swap64(&cost->key, 0, key)) ||
            load64(&cost->key) == key) {
            return cost;
        }
    }
    dv_page_cost *first = place(share, device, key, 0);
    store64(&first->key, key);
    return first;
}

void dv_time_learn(dv_share *share, unsigned device, uint64_t key, uint64_t ns) {
    if (device < share->device_count && key != 0) {
        uint64_t bounded = ns < DV_TIME_DEBT_NS ? ns : DV_TIME_DEBT_NS;
        store64(&place_for(share, device, key)->value, tag_of(key) | (bounded > 0 ? bounded : 1));
    }
}
