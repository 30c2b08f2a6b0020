/* Work that waits for managed memory.
 *
 * Work that touches managed memory has demands: areas, and how they are gone through while it runs. Their touches lie evenly
 * between the positions at which the work begins and ends. A channel executes up to the next touch that misses, then waits
 * and gives the rest of its slice away; when its chunk is there it is runnable again. A touch whose chunk has come counts as
 * done, so that two processes that displace each other's chunks both go on. */
#include "simgpu/machine/paging.h"

#include <errno.h>
#include <string.h>

#include "simgpu/machine/page_moves.h"
#include "simgpu/machine/turns.h"

static bool is_prefetch(const struct sg_demand *d) {
    return d->what.kind == SG_PREFETCH || d->what.kind == SG_PREFETCH_HOST;
}

/* ---- which chunk ---- */

/* The finaliser of SplitMix64: the same touches every time. */
static uint64_t mixed(uint64_t seed, uint64_t i) {
    uint64_t z = (seed << 32 ^ i) + UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint32_t chunk_of(const struct sg_demand *d, uint64_t i) {
    const struct sg_touch *t = &d->what;
    uint64_t pass = i < t->chunks ? 0 : i / t->chunks, at = i - pass * t->chunks + t->seed;

    if (t->kind == SG_SCATTER) {
        uint64_t r = mixed(t->seed, i) >> 32;
        r = t->order == SG_BACKWARD ? r * r >> 32 : r;
        return t->first + (uint32_t)(r * t->chunks >> 32);
    }
    at -= at >= t->chunks ? t->chunks : 0;
    if (t->order == SG_BACKWARD || (t->order == SG_ALTERNATE && pass % 2)) {
        at = t->chunks - 1 - at;
    }
    return t->first + (uint32_t)at;
}

static bool writes(const struct sg_demand *d, uint64_t i) {
    const struct sg_touch *t = &d->what;

    if (t->kind == SG_SCATTER) { /* the writes lie evenly among the reads */
        return (i + 1) * t->writes / d->count > i * t->writes / d->count;
    }
    return t->writes > 0 && (i < t->chunks || i / t->chunks < t->writes);
}

static uint64_t position_of(const struct sg_demand *d, uint64_t i) {
    return d->start + i * d->every + (d->rest ? i * d->rest / d->count : 0);
}

static uint64_t count_of(const struct sg_touch *t) {
    switch (t->kind) {
    case SG_SWEEP:
        return (uint64_t)(t->reads > t->writes ? t->reads : t->writes) * t->chunks;
    case SG_SCATTER:
        return (uint64_t)t->reads + t->writes;
    default:
        return t->chunks;
    }
}

/* ---- demands ---- */

static void forget_done(struct sg_pager *pager) {
    while (pager->count && pager->demands[pager->head].next == pager->demands[pager->head].count) {
        pager->head++;
        pager->count--;
    }
    if (pager->count == 0) {
        pager->head = 0;
    }
}

/* There is no place for another area: its chunks come at once, and nothing waits for them. */
static void come_now(struct sg_instance *in, uint32_t gpu, const struct sg_demand *d) {
    for (uint64_t i = 0; i < d->count && d->what.kind != SG_PREFETCH_HOST; i++) {
        struct sg_chunk *chunk = sg_chunk(in, chunk_of(d, i));
        struct move move = {0};
        if (!move_hits(in, gpu, chunk, writes(d, i)) &&
            move_in(in, gpu, chunk_of(d, i), writes(d, i), !is_prefetch(d), &move) == 0) {
            move_request(in, gpu, in->state->gpus[gpu].clock, &move);
        }
        move_touched(in, gpu, chunk, writes(d, i));
    }
}

static void add(struct sg_instance *in, uint32_t gpu, const struct sg_demand *d) {
    struct sg_pager *pager = sg_pager(in, in->id, gpu);

    forget_done(pager);
    if (pager->head + pager->count == SG_DEMANDS_MAX) {
        memmove(pager->demands, &pager->demands[pager->head],
                pager->count * sizeof pager->demands[0]);
        pager->head = 0;
    }
    if (pager->count == SG_DEMANDS_MAX) {
        come_now(in, gpu, d);
        return;
    }
    uint32_t at = pager->head + pager->count;
    for (; at > pager->head && pager->demands[at - 1].start > d->start; at--) {
        pager->demands[at] = pager->demands[at - 1];
    }
    pager->demands[at] = *d;
    pager->count++;
}

void paging_demand(struct sg_instance *in, uint32_t gpu, const struct sg_work *work, uint64_t start,
                   uint64_t end) {
    for (uint32_t i = 0; i < work->touch_count; i++) {
        struct sg_demand d = {.what = work->touches[i], .start = start};
        uint64_t length = is_prefetch(&d) ? 0 : end - start;
        if (d.what.chunks == 0 || count_of(&d.what) == 0) {
            continue;
        }
        d.count = count_of(&d.what);
        d.count =
            d.count < UINT32_MAX ? d.count : UINT32_MAX; /* so that position_of does not overflow */
        d.what.seed = d.what.kind == SG_SCATTER ? d.what.seed : d.what.seed % d.what.chunks;
        d.every = length / d.count;
        d.rest = length % d.count;
        add(in, gpu, &d);
    }
}

/* ---- touches ---- */

static bool hits(const struct sg_instance *in, uint32_t gpu, const struct sg_demand *d,
                 uint64_t i) {
    const struct sg_chunk *chunk = sg_chunk(in, chunk_of(d, i));

    if (d->what.kind == SG_PREFETCH_HOST) {
        for (uint32_t k = 0; k < in->state->gpu_count && chunk->owner; k++) {
            if (chunk->arrivals[k]) {
                return false;
            }
        }
        return true;
    }
    if (d->what.kind == SG_PREFETCH) {
        return chunk->owner == 0 || chunk->arrivals[gpu] != 0;
    }
    return move_hits(in, gpu, chunk, writes(d, i));
}

/* The demand of which a touch misses first, and its position; NULL when none does before the limit. */
static struct sg_demand *first_miss(const struct sg_instance *in, uint32_t gpu, uint32_t client,
                                    uint64_t *limit) {
    struct sg_pager *pager = sg_pager(in, client, gpu);
    struct sg_demand *found = NULL;

    for (uint32_t k = 0; k < pager->count; k++) {
        struct sg_demand *d = &pager->demands[pager->head + k];
        if (d->start >= *limit) {
            break;
        }
        for (uint64_t i = d->next; i < d->count && position_of(d, i) < *limit; i++) {
            if (!hits(in, gpu, d, i)) {
                *limit = position_of(d, i);
                found = d;
                break;
            }
        }
    }
    return found;
}

uint64_t paging_next(const struct sg_instance *in, uint32_t gpu, uint32_t client, uint64_t limit) {
    if (in->state->clients[client].pages) {
        first_miss(in, gpu, client, &limit);
    }
    return limit;
}

/* Passes touches of a demand that lie before the position and found what they touched. */
static void pass(struct sg_instance *in, uint32_t gpu, struct sg_demand *d, uint64_t position) {
    for (; d->next < d->count && position_of(d, d->next) < position; d->next++) {
        if (!is_prefetch(d)) {
            move_touched(in, gpu, sg_chunk(in, chunk_of(d, d->next)), writes(d, d->next));
        }
    }
}

void paging_pass(struct sg_instance *in, uint32_t gpu, uint32_t client, uint64_t position) {
    struct sg_pager *pager = sg_pager(in, client, gpu);

    if (!in->state->clients[client].pages) {
        return;
    }
    for (uint32_t k = 0; k < pager->count && pager->demands[pager->head + k].start < position;
         k++) {
        pass(in, gpu, &pager->demands[pager->head + k], position);
    }
    forget_done(pager);
}

/* ---- waits ---- */

static void set_stalled(struct sg_instance *in, uint32_t gpu, uint32_t client, uint64_t until) {
    uint64_t *word = &in->state->gpus[gpu].pages.stalled[client / 64], bit = UINT64_C(1)
                                                                             << (client % 64);

    sg_pager(in, client, gpu)->until = until;
    *word = until ? *word | bit : *word & ~bit;
}

static void note_fault(struct sg_instance *in, uint32_t gpu, uint32_t client, uint64_t stalled_ns) {
    struct sg_page_account *account = &sg_pager(in, client, gpu)->account;
    struct sg_page_account *tag =
        &in->state->tags[in->state->clients[client].tag % SG_TAGS_MAX].pages[gpu];

    account->faults++;
    tag->faults++;
    account->stalled_ns += stalled_ns;
    tag->stalled_ns += stalled_ns;
}

static int fetch(struct sg_instance *in, uint32_t gpu, struct sg_demand *d, uint64_t i,
                 struct move *move) {
    if (d->what.kind == SG_PREFETCH_HOST) {
        struct move moves[SG_GPUS_MAX] = {{0}};
        int result = move_to_host(in, chunk_of(d, i), false, false, moves);
        move->out_ns += moves[gpu].out_ns;
        return result;
    }
    return move_in(in, gpu, chunk_of(d, i), writes(d, i), !is_prefetch(d), move);
}

/* All threads of a scattered kernel miss at once, and the faults that fit in a batch are one: what the next touches
 * need comes with it. */
static void fetch_ahead(struct sg_instance *in, uint32_t gpu, struct sg_demand *d,
                        struct move *move) {
    uint64_t batch = in->state->pages.costs.batch, found = 1;

    for (uint64_t i = d->next + 1; i < d->count && found < batch && i < d->next + 16 * batch; i++) {
        if (!hits(in, gpu, d, i)) {
            found++;
            if (fetch(in, gpu, d, i, move) != 0) {
                return;
            }
        }
    }
}

bool paging_stall(struct sg_instance *in, uint32_t gpu, uint32_t client) {
    struct sg_pager *pager = sg_pager(in, client, gpu);
    uint64_t executed = sg_channel(in, client, gpu)->executed, limit = executed + 1;

    if (!in->state->clients[client].pages) {
        return false;
    }
    struct sg_demand *d = first_miss(in, gpu, client, &limit);
    if (!d) {
        return false;
    }
    pass(in, gpu, d, limit);
    while (hits(in, gpu, d, d->next)) { /* others of the same position */
        move_touched(in, gpu, sg_chunk(in, chunk_of(d, d->next)),
                     !is_prefetch(d) && writes(d, d->next));
        d->next++;
    }
    struct move move = {.fault_ns = is_prefetch(d) ? 0 : in->state->pages.costs.fault_ns};
    if (fetch(in, gpu, d, d->next, &move) != 0) {
        /* A prefetch leaves what does not fit; a kernel cannot go on. */
        pager->failed |= !is_prefetch(d);
    } else if (d->what.kind == SG_SCATTER) {
        fetch_ahead(in, gpu, d, &move);
    }
    move_touched(in, gpu, sg_chunk(in, chunk_of(d, d->next)),
                 !is_prefetch(d) && writes(d, d->next));
    d->next++;
    uint64_t now = in->state->gpus[gpu].clock, until = move_request(in, gpu, now, &move);
    if (!is_prefetch(d)) {
        note_fault(in, gpu, client, until - now);
    }
    forget_done(pager);
    set_stalled(in, gpu, client, until > now ? until : now + 1);
    turn_set(in, gpu, client, false);
    return true;
}

/* A prefetch goes on with its next chunk without the GPU. */
static bool goes_on(struct sg_instance *in, uint32_t gpu, uint32_t client) {
    uint64_t limit = sg_channel(in, client, gpu)->executed + 1;
    const struct sg_demand *d = first_miss(in, gpu, client, &limit);

    return d && is_prefetch(d) && paging_stall(in, gpu, client);
}

uint64_t paging_wake(struct sg_instance *in, uint32_t gpu) {
    struct sg_gpu *g = &in->state->gpus[gpu];
    uint64_t next = UINT64_MAX;

    for (uint32_t word = 0; word < SG_CLIENTS_MAX / 64; word++) {
        for (uint64_t left = g->pages.stalled[word]; left; left &= left - 1) {
            uint32_t client = word * 64 + (uint32_t)__builtin_ctzll(left);
            struct sg_pager *pager = sg_pager(in, client, gpu);
            if (pager->until <= g->clock) {
                set_stalled(in, gpu, client, 0);
                if (!goes_on(in, gpu, client)) {
                    const struct sg_channel *channel = sg_channel(in, client, gpu);
                    turn_set(in, gpu, client, channel->submitted > channel->executed);
                }
            }
            if (pager->until && pager->until < next) {
                next = pager->until;
            }
        }
    }
    return next;
}

void paging_drop(struct sg_instance *in, uint32_t gpu, uint32_t client) {
    /* A wait on one GPU may outlast what ended on another. */
    if (in->state->clients[client].pages || turn_bit(in->state->gpus[gpu].pages.stalled, client)) {
        struct sg_pager *pager = sg_pager(in, client, gpu);
        pager->head = pager->count = 0;
        set_stalled(in, gpu, client, 0);
    }
}

uint64_t paging_until(const struct sg_instance *in, uint32_t gpu, uint32_t client) {
    return in->state->clients[client].pages ? sg_pager(in, client, gpu)->until : 0;
}

void paging_repair(struct sg_instance *in, uint32_t gpu, uint32_t client) {
    const struct sg_channel *channel = sg_channel(in, client, gpu);

    if (in->state->clients[client].pages) {
        uint64_t until = sg_pager(in, client, gpu)->until;
        set_stalled(in, gpu, client, until);
        turn_set(in, gpu, client, !until && channel->submitted > channel->executed);
    }
}
