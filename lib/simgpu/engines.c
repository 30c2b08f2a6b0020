#include "simgpu/engines.h"

#include <string.h>

void sg_engines_start(struct sg_engines *engines, uint32_t multiprocessors) {
    uint32_t n =
        multiprocessors < SG_MULTIPROCESSORS_MAX ? multiprocessors : SG_MULTIPROCESSORS_MAX;

    engines->multiprocessors = n ? n : 1;
    engines->group_count = 1;
    engines->groups[0].free = 0;
    engines->groups[0].multiprocessors = engines->multiprocessors;
    engines->copies_free[0] = engines->copies_free[1] = 0;
}

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void remove_groups(struct sg_engines *e, uint32_t from, uint32_t count) {
    memmove(&e->groups[from], &e->groups[from + count],
            (e->group_count - from - count) * sizeof e->groups[0]);
    e->group_count -= count;
}

/* All that are free by now are alike. */
static void settle(struct sg_engines *e, uint64_t done) {
    uint32_t n = 0, sum = 0;

    for (; n < e->group_count && e->groups[n].free <= done; n++)
        sum += e->groups[n].multiprocessors;
    if (n < 2)
        return;
    e->groups[n - 1].multiprocessors = sum;
    remove_groups(e, 0, n - 1);
}

static void add_group(struct sg_engines *e, uint64_t free, uint32_t multiprocessors) {
    uint32_t at = e->group_count;

    while (at > 0 && e->groups[at - 1].free > free)
        at--;
    if (at > 0 && e->groups[at - 1].free == free) {
        e->groups[at - 1].multiprocessors += multiprocessors;
        return;
    }
    memmove(&e->groups[at + 1], &e->groups[at], (e->group_count - at) * sizeof e->groups[0]);
    e->groups[at].free = free;
    e->groups[at].multiprocessors = multiprocessors;
    e->group_count++;
}

/* Of the multiprocessors that are free in time it takes those that became so last: what a chain of
 * small kernels does not need stays free for others. */
static uint64_t place_kernel(struct sg_engines *e, uint64_t ready, const struct sg_work *work) {
    uint32_t need =
        work->multiprocessors < e->multiprocessors ? work->multiprocessors : e->multiprocessors;
    uint32_t i = 0, sum = 0;

    need = need ? need : 1;
    while ((sum += e->groups[i].multiprocessors) < need)
        i++;
    uint64_t start = later(ready, e->groups[i].free);
    while (i + 1 < e->group_count && e->groups[i + 1].free <= start)
        i++;
    for (uint32_t left = need; left > 0; i--) {
        uint32_t taken = left < e->groups[i].multiprocessors ? left : e->groups[i].multiprocessors;
        e->groups[i].multiprocessors -= taken;
        left -= taken;
        if (e->groups[i].multiprocessors == 0)
            remove_groups(e, i, 1);
    }
    add_group(e, start + work->ns, need);
    return start + work->ns;
}

uint64_t sg_place(struct sg_engines *engines, uint64_t done, const struct sg_work *work) {
    uint64_t ready = later(done, work->after), *copies_free;

    switch (work->engine) {
    case SG_ON_MULTIPROCESSORS:
        settle(engines, done);
        return place_kernel(engines, ready, work);
    case SG_ON_COPY_IN:
    case SG_ON_COPY_OUT:
        copies_free = &engines->copies_free[work->engine - SG_ON_COPY_IN];
        return *copies_free = later(ready, *copies_free) + work->ns;
    case SG_ON_NONE:
        break;
    }
    return ready + work->ns;
}
