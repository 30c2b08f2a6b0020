#include "simgpu/machine/page_moves.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t *arrivals(const struct sg_instance *in, uint32_t gpu) {
    return (uint64_t *)(void *)((char *)in->state + in->state->gpus[gpu].pages.arrivals_offset);
}

static struct sg_gpu_pages *pages_of(const struct sg_instance *in, uint32_t gpu) {
    return &in->state->gpus[gpu].pages;
}

static uint32_t owner_of(const struct sg_chunk *chunk) {
    return (chunk->owner - 1) % SG_CLIENTS_MAX;
}

/* ---- time ---- */

static uint64_t time_of(uint64_t rate) {
    return rate ? (uint64_t)((double)SG_BLOCK_BYTES * 1e9 / (double)rate) : 0;
}

static uint64_t link_ns(const struct sg_instance *in) {
    return time_of(in->state->pages.costs.rate);
}

/* Its pages come as they lie in host memory. */
static uint64_t in_ns(const struct sg_instance *in, const struct sg_chunk *chunk) {
    const struct sg_page_costs *costs = &in->state->pages.costs;

    return (chunk->state & SG_CHUNK_SCATTERED) && costs->scattered_rate
               ? time_of(costs->scattered_rate)
               : link_ns(in);
}

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

uint64_t move_request(struct sg_instance *in, uint32_t gpu, uint64_t now, const struct move *move) {
    struct sg_gpu_pages *p = pages_of(in, gpu);
    uint64_t at = later(now, p->handled) + move->fault_ns;

    if (in->state->pages.costs.half_duplex) {
        at = later(now, later(p->handled, later(p->idle[0], p->idle[1]))) + move->fault_ns;
        at += move->out_ns + move->in_ns;
        p->handled = p->idle[0] = p->idle[1] = at;
        return at;
    }
    p->handled = at;
    if (move->out_ns) {
        at = p->idle[1] = later(at, p->idle[1]) + move->out_ns;
    }
    if (move->in_ns) {
        at = p->idle[0] = later(at, p->idle[0]) + move->in_ns;
    }
    return at;
}

/* ---- who has what ---- */

/* What changes with a chunk on a GPU besides the chunk itself. */
static void count(struct sg_instance *in, uint32_t gpu, const struct sg_chunk *chunk, bool comes) {
    struct sg_client *client = &in->state->clients[owner_of(chunk)];
    struct sg_page_account *account = &sg_pager(in, owner_of(chunk), gpu)->account;
    struct sg_page_account *tag = &in->state->tags[client->tag % SG_TAGS_MAX].pages[gpu];
    uint32_t one = comes ? 1 : (uint32_t)-1;
    uint64_t wide = comes ? 1 : (uint64_t)-1;

    account->resident += wide;
    tag->resident += wide;
    sg_mig_resident(in, client->place, one);
    __atomic_store_n(&client->bytes[gpu][SG_MANAGED], account->resident * SG_BLOCK_BYTES,
                     __ATOMIC_RELAXED);
    __atomic_store_n(&pages_of(in, gpu)->resident, pages_of(in, gpu)->resident + one,
                     __ATOMIC_RELAXED);
    if (comes) {
        sg_note_peak(in, gpu, client->tag);
    }
}

static void count_moved(struct sg_instance *in, uint32_t gpu, const struct sg_chunk *chunk,
                        bool inwards) {
    uint32_t owner = owner_of(chunk);
    struct sg_page_account *tag =
        &in->state->tags[in->state->clients[owner].tag % SG_TAGS_MAX].pages[gpu];
    struct sg_page_account *account = &sg_pager(in, owner, gpu)->account;

    if (inwards) {
        account->in += SG_BLOCK_BYTES;
        tag->in += SG_BLOCK_BYTES;
    } else {
        account->out += SG_BLOCK_BYTES;
        tag->out += SG_BLOCK_BYTES;
    }
}

static bool on_host(struct sg_instance *in, struct sg_chunk *chunk, bool whatever) {
    struct sg_pages *pages = &in->state->pages;
    uint64_t most = pages->costs.host_bytes / SG_BLOCK_BYTES;

    if (chunk->state & SG_CHUNK_HOST) {
        return true;
    }
    if (!whatever && most && pages->host_chunks >= most) {
        return false;
    }
    chunk->state |= SG_CHUNK_HOST;
    pages->host_chunks++;
    return true;
}

static void off_host(struct sg_instance *in, struct sg_chunk *chunk) {
    if (chunk->state & SG_CHUNK_HOST) {
        chunk->state &= ~SG_CHUNK_HOST;
        in->state->pages.host_chunks--;
    }
}

static void put_on(struct sg_instance *in, uint32_t gpu, uint32_t number) {
    struct sg_chunk *chunk = sg_chunk(in, number);
    struct sg_gpu_pages *p = pages_of(in, gpu);

    if (p->arrivals_count == p->arrivals_room) {
        move_list(in, gpu);
    }
    if (++in->state->pages.sequence == 0) {
        in->state->pages.sequence = 1;
    }
    chunk->arrivals[gpu] = in->state->pages.sequence;
    arrivals(in, gpu)[(p->arrivals_head + p->arrivals_count) % p->arrivals_room] =
        (uint64_t)chunk->arrivals[gpu] << 32 | number;
    p->arrivals_count++;
    count(in, gpu, chunk, true);
}

static void take_off(struct sg_instance *in, uint32_t gpu, struct sg_chunk *chunk) {
    chunk->arrivals[gpu] = 0;
    count(in, gpu, chunk, false);
}

static int earlier(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

void move_list(struct sg_instance *in, uint32_t gpu) {
    struct sg_gpu_pages *p = pages_of(in, gpu);
    uint64_t *list = arrivals(in, gpu);
    uint32_t n = 0;

    for (uint32_t i = 0; i < in->state->pages.end && n < p->arrivals_room; i++) {
        const struct sg_chunk *chunk = sg_chunk(in, i);
        if (chunk->owner && chunk->arrivals[gpu]) {
            list[n++] = (uint64_t)chunk->arrivals[gpu] << 32 | i;
        }
    }
    qsort(list, n, sizeof *list, earlier);
    p->arrivals_head = 0;
    p->arrivals_count = n;
}

/* ---- room ---- */

static bool shares_memory(const struct sg_instance *in, uint32_t place,
                          const struct sg_chunk *chunk) {
    return place == 0 ||
           sg_place_gi(in->state->clients[owner_of(chunk)].place) == sg_place_gi(place);
}

bool move_room(const struct sg_instance *in, uint32_t gpu, uint32_t place, uint32_t chunks) {
    uint32_t most = sg_blocks_room_of(in, gpu, place), there = sg_pages_resident(in, gpu, place);
    uint32_t all = __atomic_load_n(&in->state->gpus[gpu].free_blocks, __ATOMIC_RELAXED);

    return chunks <= most && there <= most - chunks && chunks <= all &&
           sg_pages_resident(in, gpu, 0) <= all - chunks;
}

/* The chunk that came longest ago; -1 when there is none. */
static int64_t oldest(struct sg_instance *in, uint32_t gpu, uint32_t place) {
    struct sg_gpu_pages *p = pages_of(in, gpu);
    const uint64_t *list = arrivals(in, gpu);

    for (uint32_t i = 0; i < p->arrivals_count; i++) {
        uint64_t entry = list[(p->arrivals_head + i) % p->arrivals_room];
        const struct sg_chunk *chunk = sg_chunk(in, (uint32_t)entry % SG_CHUNKS_MAX);
        if (!chunk->owner || chunk->arrivals[gpu] != (uint32_t)(entry >> 32)) {
            if (i == 0) {
                p->arrivals_head = (p->arrivals_head + 1) % p->arrivals_room;
                p->arrivals_count--;
                i--; /* the next one is the first now */
            }
        } else if (shares_memory(in, place, chunk)) {
            return (uint32_t)entry;
        }
    }
    return -1;
}

static bool elsewhere(const struct sg_instance *in, const struct sg_chunk *chunk, uint32_t gpu) {
    for (uint32_t i = 0; i < in->state->gpu_count; i++) {
        if (i != gpu && chunk->arrivals[i]) {
            return true;
        }
    }
    return false;
}

/* Its contents go to the host if no other place has them. */
static int leave(struct sg_instance *in, uint32_t gpu, struct sg_chunk *chunk, bool whatever,
                 struct move *move) {
    if ((chunk->state & SG_CHUNK_WRITTEN) && !elsewhere(in, chunk, gpu)) {
        if (!on_host(in, chunk, whatever)) {
            return -ENOMEM;
        }
        chunk->state &= ~(SG_CHUNK_WRITTEN | SG_CHUNK_SCATTERED);
        move->out_ns += link_ns(in);
        count_moved(in, gpu, chunk, false);
    }
    take_off(in, gpu, chunk);
    return 0;
}

int move_out_oldest(struct sg_instance *in, uint32_t gpu, uint32_t place, struct move *move) {
    int64_t number = oldest(in, gpu, place);

    return number < 0 ? -ENOENT : leave(in, gpu, sg_chunk(in, (uint32_t)number), false, move);
}

/* ---- touches ---- */

/* CUDA's documentation of cuMemAdvise: a processor that an advice names reaches the memory where it is, and so does one that
 * touches memory which prefers the host. Nothing moves then. */
static bool stays(const struct sg_chunk *chunk, uint32_t gpu) {
    return (chunk->state & SG_CHUNK_REACHED(gpu)) ||
           ((chunk->state & SG_CHUNK_AT_HOST) && (chunk->state & SG_CHUNK_HOST));
}

bool move_hits(const struct sg_instance *in, uint32_t gpu, const struct sg_chunk *chunk,
               bool write) {
    (void)in;
    /* Nobody's: it was freed under work that touches it. */
    return chunk->owner == 0 ||
           (chunk->arrivals[gpu] &&
            !(write && (chunk->state & SG_CHUNK_READ_MOSTLY) && elsewhere(in, chunk, gpu)));
}

void move_touched(struct sg_instance *in, uint32_t gpu, struct sg_chunk *chunk, bool write) {
    if (!write || !chunk->owner || !chunk->arrivals[gpu]) {
        return;
    }
    chunk->state = (chunk->state | SG_CHUNK_WRITTEN | SG_CHUNK_FILLED) & ~SG_CHUNK_SCATTERED;
    off_host(in, chunk);
}

/* The link of the GPU that has it is as busy as that of the one that it goes to. */
static void leave_others(struct sg_instance *in, uint32_t gpu, struct sg_chunk *chunk, bool copies,
                         uint64_t now) {
    bool sent =
        chunk->arrivals[gpu] || (chunk->state & SG_CHUNK_HOST) || !(chunk->state & SG_CHUNK_FILLED);

    for (uint32_t i = 0; i < in->state->gpu_count; i++) {
        if (i == gpu || !chunk->arrivals[i]) {
            continue;
        }
        if (!sent) {
            move_request(in, i, now, &(struct move){.out_ns = link_ns(in)});
            count_moved(in, i, chunk, false);
            sent = true;
        }
        if (!copies) {
            take_off(in, i, chunk);
        }
    }
}

int move_in(struct sg_instance *in, uint32_t gpu, uint32_t number, bool write, bool faults,
            struct move *move) {
    struct sg_chunk *chunk = sg_chunk(in, number);
    uint32_t place = in->state->clients[owner_of(chunk)].place;
    bool copies = (chunk->state & SG_CHUNK_READ_MOSTLY) && !write;
    int result = 0;

    if (faults && stays(chunk, gpu) && !chunk->arrivals[gpu]) {
        move->in_ns += link_ns(in);
        move->fault_ns = 0;
        return 0;
    }
    while (!chunk->arrivals[gpu] && !move_room(in, gpu, place, 1) && result == 0) {
        result = move_out_oldest(in, gpu, place, move);
    }
    if (result == -ENOMEM) {
        return result;
    }
    if (result != 0) { /* ordinary memory has all of the GPU: the chunk is used where it is */
        move->in_ns += chunk->state & SG_CHUNK_FILLED ? link_ns(in) : 0;
        return 0;
    }
    if (!chunk->arrivals[gpu]) {
        if (chunk->state & SG_CHUNK_FILLED) {
            move->in_ns += in_ns(in, chunk);
            count_moved(in, gpu, chunk, true);
        }
        leave_others(in, gpu, chunk, copies, in->state->gpus[gpu].clock);
        put_on(in, gpu, number);
    } else {
        leave_others(in, gpu, chunk, copies, in->state->gpus[gpu].clock);
    }
    return 0;
}

int move_to_host(struct sg_instance *in, uint32_t number, bool touched, bool write,
                 struct move moves[SG_GPUS_MAX]) {
    struct sg_chunk *chunk = sg_chunk(in, number);
    bool copies = (chunk->state & SG_CHUNK_READ_MOSTLY) && touched && !write, moved = false;

    for (uint32_t i = 0; i < in->state->gpu_count; i++) {
        if (!chunk->arrivals[i]) {
            continue;
        }
        moved = true;
        if (copies && (chunk->state & SG_CHUNK_WRITTEN)) {
            on_host(in, chunk, true);
            chunk->state &= ~SG_CHUNK_WRITTEN;
            moves[i].out_ns += link_ns(in);
            count_moved(in, i, chunk, false);
        } else if (!copies && leave(in, i, chunk, touched, &moves[i]) != 0) {
            return -ENOMEM;
        }
    }
    if (touched && (write || moved || !(chunk->state & SG_CHUNK_FILLED))) {
        on_host(in, chunk, true);
        chunk->state |= SG_CHUNK_FILLED | (copies ? 0 : SG_CHUNK_SCATTERED);
    }
    return 0;
}

void move_forget(struct sg_instance *in, uint32_t number) {
    struct sg_chunk *chunk = sg_chunk(in, number);

    for (uint32_t i = 0; i < in->state->gpu_count; i++) {
        if (chunk->arrivals[i]) {
            take_off(in, i, chunk);
        }
    }
    off_host(in, chunk);
    chunk->state = 0;
    chunk->owner = 0;
}
