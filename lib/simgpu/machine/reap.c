/* Frees what dead processes held, and derives the counters anew. */
#define _GNU_SOURCE
#include "simgpu/machine/state.h"

#include <fcntl.h>
#include <string.h>

uint32_t sg_next_client(const struct sg_instance *in, uint32_t from) {
    while (from < SG_CLIENTS_MAX) {
        uint64_t word =
            __atomic_load_n(&in->state->clients_used[from / 64], __ATOMIC_ACQUIRE) >> (from % 64);
        if (word) {
            return from + (uint32_t)__builtin_ctzll(word);
        }
        from = (from / 64 + 1) * 64;
    }
    return SG_CLIENTS_MAX;
}

uint64_t sg_gpu_used(const struct sg_instance *in, uint32_t gpu) {
    const struct sg_gpu *g = &in->state->gpus[gpu];
    uint32_t ordinary = g->block_count - __atomic_load_n(&g->free_blocks, __ATOMIC_RELAXED);

    return (ordinary + sg_pages_resident(in, gpu, 0)) * SG_BLOCK_BYTES;
}

uint64_t sg_client_used(const struct sg_instance *in, uint32_t client, uint32_t gpu) {
    uint64_t sum = 0;

    for (uint32_t i = 0; i < SG_CATEGORIES; i++) {
        sum += __atomic_load_n(&in->state->clients[client].bytes[gpu][i], __ATOMIC_RELAXED);
    }
    return sum;
}

/* Zeroes the contents of a run of blocks and frees them. */
static void free_run(struct sg_instance *in, uint32_t gpu, uint32_t from, uint32_t to, bool dirty) {
    struct sg_gpu *g = &in->state->gpus[gpu];
    sg_block *blocks = sg_blocks(in, gpu);
    int fd = dirty ? sg_memory_fd(in, gpu) : -1;

    if (fd >= 0) {
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(from * SG_BLOCK_BYTES),
                  (off_t)((to - from) * SG_BLOCK_BYTES));
    }
    for (uint32_t i = from; i < to; i++) {
        __atomic_store_n(&blocks[i], 0, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&g->free_blocks, g->free_blocks + to - from, __ATOMIC_RELAXED);
    if (from < g->search_from) {
        g->search_from = from;
    }
}

static bool holds(const struct sg_object *o, uint32_t client) {
    return (o->holders[client / 64] >> (client % 64) & 1) != 0;
}

/* How many private blocks the client has: its bytes less managed memory and what is an object by now. */
static uint32_t count_private(const struct sg_instance *in, uint32_t gpu, uint32_t client) {
    const struct sg_state *st = in->state;
    uint32_t count = 0;

    for (uint32_t i = 0; i < SG_CATEGORIES; i++) {
        count +=
            i == SG_MANAGED ? 0 : (uint32_t)(st->clients[client].bytes[gpu][i] / SG_BLOCK_BYTES);
    }

    for (uint32_t i = 0; i < st->objects_end; i++) {
        const struct sg_object *o = &st->objects[i];
        if (o->in_use && o->gpu == gpu && o->creator == client && holds(o, client) &&
            o->creator_generation == st->clients[client].generation) {
            count -= o->blocks;
        }
    }
    return count;
}

static void free_private(struct sg_instance *in, uint32_t gpu, uint32_t client) {
    struct sg_state *st = in->state;
    sg_block *blocks = sg_blocks(in, gpu);
    uint32_t count = st->gpus[gpu].block_count, left = count_private(in, gpu, client);

    for (uint32_t i = 0; i < count && left > 0;) {
        uint32_t from = i;
        bool dirty = false;
        for (; i < count; i++) {
            sg_block b = __atomic_load_n(&blocks[i], __ATOMIC_RELAXED);
            if (!(b & SG_BLOCK_PRIVATE) || sg_block_owner(b) != client) {
                break;
            }
            dirty |= (b & SG_BLOCK_DIRTY) != 0;
        }
        if (i > from) {
            free_run(in, gpu, from, i, dirty);
            left -= i - from;
            st->tags[st->clients[client].tag].bytes[gpu] -= (i - from) * SG_BLOCK_BYTES;
            sg_mig_count(in, st->clients[client].place, -(int32_t)(i - from));
        } else {
            i++;
        }
    }
}

/* The state lock and the schedule lock. Whoever finds it half done does it again. */
static void finish_hand_over(struct sg_instance *in) {
    const struct sg_hand_over *what = &in->state->hand_over;

    struct sg_channel *channel = sg_channel(in, what->client, what->gpu);

    in->state->tags[what->tag].gpu_ns[what->gpu] = what->gpu_ns;
    in->state->tags[what->tag].sm_ns[what->gpu] = what->sm_ns;
    __atomic_store_n(&channel->executed, 0, __ATOMIC_RELAXED);
    channel->sm_ns = 0;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    in->state->hand_over.under_way = 0;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void sg_reap_repair(struct sg_instance *in) {
    uint32_t gpu = in->state->hand_over.gpu;

    if (!in->state->hand_over.under_way) {
        return;
    }
    sg_schedule_lock(in, gpu);
    finish_hand_over(in);
    sg_schedule_unlock(in, gpu);
}

static void end_channel(struct sg_instance *in, uint32_t gpu, uint32_t client) {
    struct sg_channel *channel = sg_channel(in, client, gpu);
    struct sg_state *st = in->state;
    uint32_t tag = st->clients[client].tag % SG_TAGS_MAX;

    sg_schedule_lock(in, gpu);
    sg_drop_locked(in, gpu, client);
    st->hand_over = (struct sg_hand_over){.client = client,
                                          .gpu = gpu,
                                          .tag = tag,
                                          .gpu_ns = st->tags[tag].gpu_ns[gpu] + channel->executed,
                                          .sm_ns = st->tags[tag].sm_ns[gpu] + channel->sm_ns};
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    st->hand_over.under_way = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    finish_hand_over(in);
    /* Segments stay: the next owner starts counting at none. */
    memset(channel, 0, offsetof(struct sg_channel, segments));
    channel->engines.multiprocessors = 0;
    sg_schedule_unlock(in, gpu);
}

void sg_reap_client(struct sg_instance *in, uint32_t client) {
    struct sg_state *st = in->state;

    sg_server_ended(in, client);
    for (uint32_t i = 0; i < st->objects_end; i++) {
        if (st->objects[i].in_use) {
            sg_object_drop_for(in, i, client);
        }
    }
    for (uint32_t gpu = 0; gpu < st->gpu_count; gpu++) {
        free_private(in, gpu, client);
        end_channel(in, gpu, client);
    }
    sg_pages_end(in, client, st->clients[client].generation);
    sg_saved_drop(in, client);
    /* Objects that outlive it must not be taken for the next owner's. */
    __atomic_store_n(&st->clients[client].generation, st->clients[client].generation + 1,
                     __ATOMIC_RELEASE);
    st->clients[client].place = 0;
    memset(st->clients[client].bytes, 0, sizeof st->clients[client].bytes);
    __atomic_fetch_and(&st->clients_used[client / 64], ~(UINT64_C(1) << (client % 64)),
                       __ATOMIC_RELEASE);
}

/* The last descriptor of an object without holders may have been closed, which no process is told;
 * or its last holder may have died while freeing it. */
static void settle_objects(struct sg_instance *in) {
    for (uint32_t i = 0; i < in->state->objects_end; i++) {
        if (in->state->objects[i].in_use) {
            sg_object_settle(in, i);
        }
    }
}

static bool has_any(const struct sg_instance *in, uint32_t client, uint32_t gpu) {
    const struct sg_client *c = &in->state->clients[client];

    return c->contexts[gpu] != 0 || c->imported[gpu] != 0 || sg_client_used(in, client, gpu) != 0;
}

/* Reaps the clients of one GPU, or with SG_GPUS_MAX all: finding out who lives takes a system call
 * for each. */
static unsigned reap(struct sg_instance *in, uint32_t gpu) {
    unsigned dead = 0;

    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        if ((gpu == SG_GPUS_MAX || has_any(in, i, gpu)) && !sg_alive(in, i)) {
            sg_reap_client(in, i);
            dead++;
        }
    }
    settle_objects(in);
    return dead;
}

unsigned sg_reap(struct sg_instance *in) {
    return reap(in, SG_GPUS_MAX);
}

void sg_reap_gpu(struct sg_instance *in, uint32_t gpu) {
    reap(in, gpu);
}

static void count_object(struct sg_instance *in, struct sg_object *o, uint32_t blocks) {
    struct sg_state *st = in->state;
    uint64_t bytes = blocks * SG_BLOCK_BYTES;

    sg_mig_count(in, o->place, (int32_t)blocks);
    st->tags[o->tag].bytes[o->gpu] += bytes;
    for (uint32_t i = 0; i < SG_CLIENTS_MAX; i++) {
        if (!holds(o, i)) {
            continue;
        }
        if (i == o->creator && st->clients[i].generation == o->creator_generation) {
            st->clients[i].bytes[o->gpu][o->category] += bytes;
        } else {
            st->clients[i].imported[o->gpu] += bytes;
        }
    }
}

static void count_block(struct sg_instance *in, uint32_t gpu, sg_block b, uint32_t *object_blocks) {
    struct sg_state *st = in->state;

    if (b & SG_BLOCK_PRIVATE) {
        struct sg_client *client = &st->clients[sg_block_owner(b) % SG_CLIENTS_MAX];
        client->bytes[gpu][sg_block_category(b) % SG_CATEGORIES] += SG_BLOCK_BYTES;
        st->tags[client->tag % SG_TAGS_MAX].bytes[gpu] += SG_BLOCK_BYTES;
        sg_mig_count(in, client->place, 1);
    } else {
        object_blocks[sg_block_owner(b) % SG_OBJECTS_MAX]++;
    }
}

void sg_recount(struct sg_instance *in) {
    static uint32_t object_blocks[SG_OBJECTS_MAX]; /* the state lock is held */
    struct sg_state *st = in->state;

    for (uint32_t i = 0; i < SG_CLIENTS_MAX; i++) {
        for (uint32_t k = 0; k < st->gpu_count * SG_CATEGORIES; k++) {
            if (k % SG_CATEGORIES != SG_MANAGED) {
                st->clients[i].bytes[k / SG_CATEGORIES][k % SG_CATEGORIES] = 0;
            }
        }
        memset(st->clients[i].imported, 0, sizeof st->clients[i].imported);
    }
    for (uint32_t i = 0; i < SG_TAGS_MAX; i++) {
        memset(st->tags[i].bytes, 0, sizeof st->tags[i].bytes);
    }
    memset(object_blocks, 0, sizeof object_blocks);
    for (uint32_t gpu = 0; gpu < st->gpu_count; gpu++) {
        struct sg_gpu *g = &st->gpus[gpu];
        const sg_block *blocks = sg_blocks(in, gpu);
        uint32_t taken = 0;
        g->search_from = 0;
        for (uint32_t i = 0; i < SG_MIG_GPU_INSTANCES; i++) {
            g->mig.instances[i].used_blocks = 0;
        }
        for (uint32_t i = 0; i < g->block_count; i++) {
            if (blocks[i]) {
                taken++;
                count_block(in, gpu, blocks[i], object_blocks);
            }
        }
        __atomic_store_n(&g->free_blocks, g->block_count - taken, __ATOMIC_RELAXED);
    }
    for (uint32_t i = 0; i < SG_OBJECTS_MAX; i++) {
        struct sg_object *o = &st->objects[i];
        /* An object's size is the number of blocks that name it: its creator, or who freed it, may
         * have died between two of them. */
        if (o->in_use) {
            o->blocks = object_blocks[i];
            count_object(in, o, object_blocks[i]);
        }
    }
    if (st->pages.end) {
        sg_pages_lock(in);
        sg_pages_recount(in);
        sg_pages_unlock(in);
    }
}

bool sg_opened_elsewhere(struct sg_instance *in, uint32_t gpu) {
    sg_reap_gpu(in, gpu);
    for (uint32_t i = 0; i < SG_CLIENTS_MAX + SG_VISITORS_MAX; i++) {
        if (i != in->id &&
            (i >= SG_CLIENTS_MAX || in->state->clients_used[i / 64] >> (i % 64) & 1) &&
            sg_alive(in, i)) {
            return true;
        }
    }
    return false;
}
