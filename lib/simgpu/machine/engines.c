#include "simgpu/machine/engines.h"

#include <stdbool.h>
#include <string.h>

void sg_engines_start(struct sg_engines *engines, uint32_t multiprocessors) {
    memset(engines, 0, sizeof *engines);
    engines->whole = engines->multiprocessors = multiprocessors ? multiprocessors : 1;
}

void sg_engines_limit(struct sg_engines *engines, uint32_t multiprocessors) {
    engines->multiprocessors = multiprocessors == 0               ? 1
                               : multiprocessors > engines->whole ? engines->whole
                                                                  : multiprocessors;
}

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static struct sg_profile_point *point(struct sg_engines *e, uint32_t i) {
    return &e->points[e->first + i];
}

/* The points, as far as they can be read. */
static uint32_t readable(const struct sg_engines *e, const struct sg_profile_point **points) {
    uint32_t first = e->first < SG_PROFILE_POINTS ? e->first : 0;

    *points = &e->points[first];
    return e->count < SG_PROFILE_POINTS - first ? e->count : SG_PROFILE_POINTS - first;
}

uint32_t sg_engines_used(const struct sg_engines *e, uint64_t at, uint64_t *change) {
    const struct sg_profile_point *points;
    uint32_t count = readable(e, &points), begin = 0, end = count;

    while (begin < end) {
        uint32_t middle = begin + (end - begin) / 2;
        if (points[middle].from <= at) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    *change = begin < count ? points[begin].from : UINT64_MAX;
    uint32_t used = begin > 0 ? points[begin - 1].used : 0;
    return used < e->multiprocessors ? used : e->multiprocessors;
}

uint64_t sg_engines_area(const struct sg_engines *e, uint64_t from, uint64_t to) {
    uint64_t area = 0, change;

    while (from < to) {
        uint32_t used = sg_engines_used(e, from, &change);
        if (change > to) {
            change = to;
        }
        area += used * (change - from);
        from = change;
    }
    return area;
}

/* How many points begin at or before t. */
static uint32_t points_until(struct sg_engines *e, uint64_t t) {
    uint32_t begin = 0, end = e->count;

    while (begin < end) {
        uint32_t middle = begin + (end - begin) / 2;
        if (point(e, middle)->from <= t) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

static void forget_past(struct sg_engines *e, uint64_t done) {
    uint32_t past = points_until(e, done);

    if (past > 1) {
        e->first += past - 1;
        e->count -= past - 1;
    }
}

static void remove_point(struct sg_engines *e, uint32_t i) {
    memmove(point(e, i), point(e, i + 1), (e->count - i - 1) * sizeof e->points[0]);
    e->count--;
}

/* Makes a point at t, which changes nothing yet; returns its number. */
static uint32_t split(struct sg_engines *e, uint64_t t) {
    uint32_t i = points_until(e, t);

    if (i > 0 && point(e, i - 1)->from == t) {
        return i - 1;
    }
    memmove(point(e, i + 1), point(e, i), (e->count - i) * sizeof e->points[0]);
    *point(e, i) = (struct sg_profile_point){t, i > 0 ? point(e, i - 1)->used : 0};
    e->count++;
    return i;
}

/* Room for two more points. When there are too many the nearest hole is given up. */
static void make_room(struct sg_engines *e) {
    while (e->count > SG_PROFILE_POINTS - 2) {
        point(e, 0)->used = e->multiprocessors;
        remove_point(e, 1);
    }
    if (e->first + e->count > SG_PROFILE_POINTS - 2) {
        memmove(e->points, point(e, 0), e->count * sizeof e->points[0]);
        e->first = 0;
    }
}

/* The earliest time from `ready` on at which so many are free for so long. */
static uint64_t find_start(struct sg_engines *e, uint64_t ready, uint64_t ns, uint32_t need) {
    uint32_t next = points_until(e, ready), used = next > 0 ? point(e, next - 1)->used : 0;
    uint64_t start = ready;

    for (;;) {
        bool fits = used + need <= e->multiprocessors;
        /* After the last point everything is free. */
        if (next == e->count || (fits && point(e, next)->from >= start + ns)) {
            return start;
        }
        if (!fits) {
            start = point(e, next)->from;
        }
        used = point(e, next++)->used;
    }
}

/* How many multiprocessors it would take of the whole GPU. */
static uint32_t need_of(const struct sg_engines *e, const struct sg_work *work) {
    uint32_t need = work->multiprocessors ? work->multiprocessors : 1;

    return need < e->whole ? need : e->whole;
}

uint64_t sg_work_ns(const struct sg_engines *e, const struct sg_work *work) {
    uint32_t need = need_of(e, work);

    return work->engine == SG_ON_MULTIPROCESSORS && need > e->multiprocessors
               ? (uint64_t)((double)work->ns * need / e->multiprocessors)
               : work->ns;
}

static uint64_t place_kernel(struct sg_engines *e, uint64_t ready, const struct sg_work *work) {
    uint32_t need = need_of(e, work);
    uint64_t ns = sg_work_ns(e, work);

    if (need > e->multiprocessors) {
        need = e->multiprocessors;
    }
    make_room(e);
    uint64_t start = find_start(e, ready, ns, need);
    uint32_t from = split(e, start), to = split(e, start + ns);
    for (uint32_t i = from; i < to; i++) {
        point(e, i)->used += need;
    }
    /* Points that change nothing go, so that kernels in a row are one piece. */
    if (point(e, to)->used == point(e, to - 1)->used) {
        remove_point(e, to);
    }
    if (from > 0 && point(e, from)->used == point(e, from - 1)->used) {
        remove_point(e, from);
    }
    return start + ns;
}

uint64_t sg_place(struct sg_engines *engines, uint64_t done, const struct sg_work *work) {
    uint64_t ready = later(done, work->after), *copies_free;

    switch (work->engine) {
    case SG_ON_MULTIPROCESSORS:
        forget_past(engines, done);
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
