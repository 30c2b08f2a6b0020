/* The table of managed memory: who has which chunks, and the figures derived from it. */
#define _GNU_SOURCE
#include "simgpu/machine/page_moves.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

struct sg_chunk *sg_chunk(const struct sg_instance *in, uint32_t chunk) {
    return (struct sg_chunk *)(void *)((char *)in->state + in->state->pages.chunks_offset) + chunk;
}

struct sg_pager *sg_pager(const struct sg_instance *in, uint32_t client, uint32_t gpu) {
    return (struct sg_pager *)(void *)((char *)in->state + in->state->pages.pagers_offset) +
           (size_t)client * in->state->gpu_count + gpu;
}

/* ---- the lock ---- */

static void forget_figures(struct sg_instance *in) {
    struct sg_state *st = in->state;

    st->pages.host_chunks = 0;
    for (uint32_t gpu = 0; gpu < st->gpu_count; gpu++) {
        __atomic_store_n(&st->gpus[gpu].pages.resident, 0, __ATOMIC_RELAXED);
        for (uint32_t i = 0; i < SG_MIG_GPU_INSTANCES; i++) {
            st->gpus[gpu].mig.instances[i].resident = 0;
        }
        for (uint32_t i = 0; i < SG_TAGS_MAX; i++) {
            st->tags[i].pages[gpu].resident = 0;
        }
        for (uint32_t i = 0; i < SG_CLIENTS_MAX; i++) {
            __atomic_store_n(&st->clients[i].bytes[gpu][SG_MANAGED], 0, __ATOMIC_RELAXED);
            if (st->clients[i].pages) {
                sg_pager(in, i, gpu)->account.resident = 0;
            }
        }
    }
}

static void count_chunk(struct sg_instance *in, const struct sg_chunk *chunk) {
    struct sg_state *st = in->state;
    uint32_t owner = (chunk->owner - 1) % SG_CLIENTS_MAX;
    struct sg_client *client = &st->clients[owner];

    for (uint32_t gpu = 0; gpu < st->gpu_count; gpu++) {
        if (chunk->arrivals[gpu]) {
            __atomic_store_n(&st->gpus[gpu].pages.resident, st->gpus[gpu].pages.resident + 1,
                             __ATOMIC_RELAXED);
            sg_mig_resident(in, client->place, 1);
            st->tags[client->tag % SG_TAGS_MAX].pages[gpu].resident++;
            sg_pager(in, owner, gpu)->account.resident++;
            __atomic_store_n(&client->bytes[gpu][SG_MANAGED],
                             client->bytes[gpu][SG_MANAGED] + SG_BLOCK_BYTES, __ATOMIC_RELAXED);
        }
    }
    if (chunk->state & SG_CHUNK_HOST) {
        st->pages.host_chunks++;
    }
}

/* The chunks are the truth. */
void sg_pages_recount(struct sg_instance *in) {
    uint32_t used = 0;

    forget_figures(in);
    for (uint32_t i = 0; i < in->state->pages.end; i++) {
        const struct sg_chunk *chunk = sg_chunk(in, i);
        if (chunk->owner) {
            used++;
            count_chunk(in, chunk);
        }
    }
    for (uint32_t gpu = 0; gpu < in->state->gpu_count && in->state->pages.end; gpu++) {
        move_list(in, gpu);
    }
    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        in->state->pages.host_chunks += in->state->clients[i].checkpoint.blocks;
    }
    __atomic_store_n(&in->state->pages.used, used, __ATOMIC_RELEASE);
}

void sg_pages_lock(struct sg_instance *in) {
    pthread_mutex_lock(&in->pages_threads);
    if (sg_acquire(in, &in->state->pages_lock)) {
        sg_pages_recount(in);
    }
}

void sg_pages_unlock(struct sg_instance *in) {
    sg_release(&in->state->pages_lock);
    pthread_mutex_unlock(&in->pages_threads);
}

void sg_pages_inherited(struct sg_instance *in) {
    if (sg_inherited(in, &in->state->pages_lock)) {
        sg_pages_recount(in);
        sg_release(&in->state->pages_lock);
    }
}

/* ---- chunks ---- */

/* Allocates the pages of a part of the file now, so that a full file system is an error here and no SIGBUS later. */
static int back(struct sg_instance *in, uint64_t offset, uint64_t bytes) {
    return -posix_fallocate(in->fd, (off_t)offset, (off_t)bytes);
}

/* What a client with managed memory needs, and the first one of the machine. */
static int back_client(struct sg_instance *in) {
    struct sg_state *st = in->state;
    uint64_t bytes = sizeof(struct sg_pager) * st->gpu_count;
    int result = 0;

    if (st->clients[in->id].pages) {
        return 0;
    }
    for (uint32_t gpu = 0; gpu < st->gpu_count && result == 0; gpu++) {
        const struct sg_gpu_pages *p = &st->gpus[gpu].pages;
        result = back(in, p->arrivals_offset, p->arrivals_room * sizeof(uint64_t));
    }
    if (result == 0) {
        result = back(in, st->pages.pagers_offset + in->id * bytes, bytes);
    }
    for (uint32_t gpu = 0; gpu < st->gpu_count && result == 0; gpu++) {
        memset(sg_pager(in, in->id, gpu), 0, offsetof(struct sg_pager, demands));
    }
    if (result == 0) {
        __atomic_store_n(&st->clients[in->id].pages, 1, __ATOMIC_RELEASE);
    }
    return result;
}

/* The first of so many free chunks in a row. */
static uint32_t find_row(const struct sg_instance *in, uint32_t count) {
    uint32_t row = 0;

    for (uint32_t i = 0; i < in->state->pages.end; i++) {
        row = sg_chunk(in, i)->owner ? 0 : row + 1;
        if (row == count) {
            return i + 1 - count;
        }
    }
    return in->state->pages.end - row;
}

int sg_chunks_take(struct sg_instance *in, uint32_t count, uint32_t *first) {
    struct sg_pages *pages = &in->state->pages;
    uint64_t most = pages->costs.host_bytes / SG_BLOCK_BYTES;

    if (count == 0 || count > SG_CHUNKS_MAX) {
        return -ENOSPC;
    }
    sg_reap(in);
    sg_pages_lock(in);
    uint32_t at = find_row(in, count);
    int result = at > SG_CHUNKS_MAX - count ? -ENOSPC : back_client(in);
    if (result == 0 && most && pages->host_chunks + count > most) {
        result = -ENOMEM;
    }
    if (result == 0) {
        result = back(in, pages->chunks_offset + at * sizeof(struct sg_chunk),
                      count * sizeof(struct sg_chunk));
    }
    if (result == 0) {
        if (at + count > pages->end) {
            pages->end = at + count;
        }
        for (uint32_t i = 0; i < count; i++) {
            *sg_chunk(in, at + i) = (struct sg_chunk){.owner = in->id + 1};
        }
        __atomic_store_n(&pages->used, pages->used + count, __ATOMIC_RELEASE);
        *first = at;
    }
    sg_pages_unlock(in);
    return result;
}

static void forget(struct sg_instance *in, uint32_t chunk) {
    move_forget(in, chunk);
    __atomic_store_n(&in->state->pages.used, in->state->pages.used - 1, __ATOMIC_RELEASE);
}

void sg_chunks_return(struct sg_instance *in, uint32_t first, uint32_t count) {
    for (uint32_t gpu = 0; gpu < in->state->gpu_count; gpu++) {
        sg_schedule_lock(in, gpu);
        sg_advance_locked(in, gpu, sg_time(in));
        sg_pages_lock(in);
        struct sg_pager *pager = sg_pager(in, in->id, gpu);
        for (uint32_t i = 0; i < pager->count; i++) {
            struct sg_demand *d = &pager->demands[pager->head + i];
            if (d->what.first >= first && d->what.first < first + count) {
                d->next = d->count;
            }
        }
        sg_pages_unlock(in);
        sg_schedule_unlock(in, gpu);
    }
    sg_pages_lock(in);
    for (uint32_t i = first; i < first + count; i++) {
        forget(in, i);
    }
    sg_pages_unlock(in);
}

void sg_chunks_advise(struct sg_instance *in, uint32_t first, uint32_t count, uint32_t set,
                      uint32_t clear) {
    sg_pages_lock(in);
    for (uint32_t i = first; i < first + count; i++) {
        sg_chunk(in, i)->state = (sg_chunk(in, i)->state | set) & ~clear;
    }
    sg_pages_unlock(in);
}

uint64_t sg_chunks_host(struct sg_instance *in, uint32_t first, uint32_t count, bool write) {
    struct move moves[SG_GPUS_MAX] = {{0}};
    uint64_t now = sg_time(in), end = now;

    for (uint32_t gpu = 0; gpu < in->state->gpu_count; gpu++) {
        sg_advance(in, gpu, now);
    }
    sg_pages_lock(in);
    for (uint32_t i = first; i < first + count; i++) {
        move_to_host(in, i, true, write, moves);
    }
    for (uint32_t gpu = 0; gpu < in->state->gpu_count; gpu++) {
        uint64_t until = moves[gpu].out_ns ? move_request(in, gpu, now, &moves[gpu]) : now;
        end = until > end ? until : end;
    }
    sg_pages_unlock(in);
    return end;
}

bool sg_chunks_any(struct sg_instance *in, uint32_t first, uint32_t count) {
    bool any = false;

    sg_pages_lock(in);
    for (uint32_t i = 0; i < count * in->state->gpu_count && !any; i++) {
        any =
            sg_chunk(in, first + i / in->state->gpu_count)->arrivals[i % in->state->gpu_count] != 0;
    }
    sg_pages_unlock(in);
    return any;
}

int sg_saved_hold(struct sg_instance *in, uint32_t blocks) {
    struct sg_pages *pages = &in->state->pages;
    uint64_t most = pages->costs.host_bytes / SG_BLOCK_BYTES;

    sg_pages_lock(in);
    bool fits = !most || pages->host_chunks + blocks <= most;
    if (fits) {
        in->state->clients[in->id].checkpoint.blocks = blocks;
        pages->host_chunks += blocks;
    }
    sg_pages_unlock(in);
    return fits ? 0 : -ENOMEM;
}

void sg_saved_drop(struct sg_instance *in, uint32_t client) {
    struct sg_checkpoint *c = &in->state->clients[client].checkpoint;

    if (c->blocks) {
        sg_pages_lock(in);
        in->state->pages.host_chunks -= c->blocks;
        c->blocks = 0;
        sg_pages_unlock(in);
    }
}

void sg_pages_end(struct sg_instance *in, uint32_t client, uint32_t generation) {
    struct sg_client *c = &in->state->clients[client];

    if (!__atomic_load_n(&c->pages, __ATOMIC_ACQUIRE)) {
        return;
    }
    sg_pages_lock(in);
    bool same = __atomic_load_n(&c->generation, __ATOMIC_ACQUIRE) == generation;
    for (uint32_t i = 0; same && i < in->state->pages.end; i++) {
        if (sg_chunk(in, i)->owner == client + 1) {
            forget(in, i);
        }
    }
    if (same) {
        __atomic_store_n(&c->pages, 0, __ATOMIC_RELEASE);
    }
    sg_pages_unlock(in);
}

/* ---- room for ordinary memory ---- */

int sg_pages_give_way(struct sg_instance *in, uint32_t gpu, uint32_t blocks, uint64_t *until) {
    struct sg_gpu *g = &in->state->gpus[gpu];
    uint32_t place = in->state->clients[in->id].place;
    struct move move = {0};
    uint64_t now = sg_time(in);
    int result = 0;

    sg_schedule_lock(in, gpu);
    sg_advance_locked(in, gpu, now);
    sg_pages_lock(in);
    while (result == 0 && !move_room(in, gpu, place, blocks)) {
        result = move_out_oldest(in, gpu, place, &move);
    }
    *until = move.out_ns ? move_request(in, gpu, now, &move) : 0;
    if (result == 0) {
        __atomic_store_n(&g->free_blocks, g->free_blocks - blocks, __ATOMIC_RELAXED);
    }
    sg_pages_unlock(in);
    sg_schedule_unlock(in, gpu);
    return result ? -ENOMEM : 0;
}
