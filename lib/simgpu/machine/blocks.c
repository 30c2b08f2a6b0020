/* Device memory in blocks of 2 MiB: who has which, and memory that several processes hold. */
#define _GNU_SOURCE
#include "simgpu/machine/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static sg_block load(const sg_block *b) {
    return __atomic_load_n(b, __ATOMIC_RELAXED);
}

static void store(sg_block *b, sg_block value) {
    __atomic_store_n(b, value, __ATOMIC_RELAXED);
}

static sg_block describe(sg_block kind, enum sg_category category, uint32_t owner, uint32_t place) {
    return kind | (sg_block)category << 56 | (sg_block)owner << 32 | place;
}

static void raise_to(uint64_t *value, uint64_t floor) {
    uint64_t seen = __atomic_load_n(value, __ATOMIC_RELAXED);

    while (seen < floor && !__atomic_compare_exchange_n(value, &seen, floor, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        ;
}

uint64_t sg_tag_used(const struct sg_instance *in, uint32_t tag, uint32_t gpu) {
    const struct sg_tag *t = &in->state->tags[tag % SG_TAGS_MAX];

    return __atomic_load_n(&t->bytes[gpu], __ATOMIC_RELAXED) +
           __atomic_load_n(&t->pages[gpu].resident, __ATOMIC_RELAXED) * SG_BLOCK_BYTES;
}

void sg_note_peak(struct sg_instance *in, uint32_t gpu, uint32_t tag) {
    raise_to(&in->state->tags[tag % SG_TAGS_MAX].peak[gpu], sg_tag_used(in, tag, gpu));
    raise_to(&in->state->gpus[gpu].peak_bytes, sg_gpu_used(in, gpu));
}

/* Whether the dead must be freed before these blocks can be given: to make room, and because no
 * peak may count memory of a process that is gone. */
static bool reap_first(const struct sg_instance *in, uint32_t gpu, uint32_t tag, uint32_t n) {
    uint64_t bytes = n * SG_BLOCK_BYTES;

    return n > sg_blocks_room(in, gpu) ||
           sg_tag_used(in, tag, gpu) + bytes >
               __atomic_load_n(&in->state->tags[tag].peak[gpu], __ATOMIC_RELAXED) ||
           sg_gpu_used(in, gpu) + bytes >
               __atomic_load_n(&in->state->gpus[gpu].peak_bytes, __ATOMIC_RELAXED);
}

/* Takes so many off what is free; managed memory gives way where there are not as many. */
static int reserve(struct sg_instance *in, uint32_t gpu, uint32_t n) {
    struct sg_gpu *g = &in->state->gpus[gpu];

    in->displaced = 0;
    if (sg_paging(in)) {
        return sg_pages_give_way(in, gpu, n, &in->displaced);
    }
    __atomic_store_n(&g->free_blocks, g->free_blocks - n, __ATOMIC_RELAXED);
    return 0;
}

int sg_blocks_take(struct sg_instance *in, uint32_t gpu, enum sg_category category, uint32_t n,
                   uint32_t *numbers) {
    struct sg_state *st = in->state;
    struct sg_gpu *g = &st->gpus[gpu];
    struct sg_client *client = &st->clients[in->id];
    struct sg_tag *tag = &st->tags[client->tag];
    sg_block *blocks = sg_blocks(in, gpu);
    uint32_t at;

    if (reap_first(in, gpu, client->tag, n)) {
        sg_reap(in);
    }
    if (n > sg_blocks_room(in, gpu) || reserve(in, gpu, n) != 0) {
        return -ENOMEM;
    }
    at = g->search_from;
    for (uint32_t i = 0; i < n; at++) {
        if (load(&blocks[at])) {
            continue;
        }
        store(&blocks[at], describe(SG_BLOCK_PRIVATE, category, in->id, 0));
        numbers[i++] = at;
    }
    g->search_from = at;
    sg_mig_count(in, client->place, (int32_t)n);
    client->bytes[gpu][category] += n * SG_BLOCK_BYTES;
    tag->bytes[gpu] += n * SG_BLOCK_BYTES;
    sg_note_peak(in, gpu, client->tag);
    return 0;
}

/* Gives the contents of dirty blocks among `numbers` back to the file system, neighbours at
   once. */
static void clean(struct sg_instance *in, uint32_t gpu, uint32_t n, const uint32_t *numbers,
                  int fd) {
    sg_block *blocks = sg_blocks(in, gpu);

    for (uint32_t i = 0; i < n;) {
        uint32_t from = i++;
        if (!(load(&blocks[numbers[from]]) & SG_BLOCK_DIRTY)) {
            continue;
        }
        while (i < n && numbers[i] == numbers[i - 1] + 1 &&
               (load(&blocks[numbers[i]]) & SG_BLOCK_DIRTY)) {
            i++;
        }
        if (fd >= 0) {
            fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)(numbers[from] * SG_BLOCK_BYTES),
                      (off_t)((i - from) * SG_BLOCK_BYTES));
        }
        for (uint32_t k = from; k < i; k++) {
            __atomic_fetch_and(&blocks[numbers[k]], ~SG_BLOCK_DIRTY, __ATOMIC_RELAXED);
        }
    }
}

static bool any_dirty(const struct sg_instance *in, uint32_t gpu, uint32_t n,
                      const uint32_t *numbers) {
    const sg_block *blocks = sg_blocks(in, gpu);

    for (uint32_t i = 0; i < n; i++) {
        if (load(&blocks[numbers[i]]) & SG_BLOCK_DIRTY) {
            return true;
        }
    }
    return false;
}

void sg_blocks_clean(struct sg_instance *in, uint32_t gpu, uint32_t n, const uint32_t *numbers) {
    if (any_dirty(in, gpu, n, numbers)) {
        clean(in, gpu, n, numbers, sg_memory_fd(in, gpu));
    }
}

static void set_free(struct sg_instance *in, uint32_t gpu, uint32_t n, const uint32_t *numbers) {
    struct sg_gpu *g = &in->state->gpus[gpu];
    sg_block *blocks = sg_blocks(in, gpu);

    sg_blocks_clean(in, gpu, n, numbers);
    for (uint32_t i = 0; i < n; i++) {
        store(&blocks[numbers[i]], 0);
        if (numbers[i] < g->search_from) {
            g->search_from = numbers[i];
        }
    }
    __atomic_store_n(&g->free_blocks, g->free_blocks + n, __ATOMIC_RELAXED);
}

void sg_blocks_return(struct sg_instance *in, uint32_t gpu, uint32_t n, const uint32_t *numbers) {
    struct sg_client *client = &in->state->clients[in->id];
    sg_block *blocks = sg_blocks(in, gpu);

    if (n == 0) {
        return;
    }
    client->bytes[gpu][sg_block_category(load(&blocks[numbers[0]]))] -= n * SG_BLOCK_BYTES;
    in->state->tags[client->tag].bytes[gpu] -= n * SG_BLOCK_BYTES;
    sg_mig_count(in, client->place, -(int32_t)n);
    set_free(in, gpu, n, numbers);
}

uint64_t sg_new_key(struct sg_instance *in) {
    /* The finaliser of SplitMix64 over a counter: unpredictable enough for handles of a test
     * double. */
    uint64_t z = (in->state->key_seed += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t bit(uint32_t client) {
    return UINT64_C(1) << (client % 64);
}

int sg_object_create(struct sg_instance *in, uint32_t gpu, uint32_t n, const uint32_t *numbers,
                     uint64_t bytes, uint32_t *object) {
    struct sg_state *st = in->state;
    struct sg_client *client = &st->clients[in->id];
    sg_block *blocks = sg_blocks(in, gpu);
    uint32_t place = 0;

    while (place < SG_OBJECTS_MAX && st->objects[place].in_use) {
        place++;
    }
    if (place == SG_OBJECTS_MAX || n == 0) {
        return n ? -ENOSPC : -EINVAL;
    }
    if (place >= st->objects_end) {
        st->objects_end = place + 1;
    }
    struct sg_object *o = &st->objects[place];
    enum sg_category category = sg_block_category(load(&blocks[numbers[0]]));
    *o = (struct sg_object){.gpu = gpu,
                            .category = category,
                            .blocks = n,
                            .creator = in->id,
                            .creator_generation = client->generation,
                            .tag = client->tag,
                            .place = client->place,
                            .bytes = bytes,
                            .key = sg_new_key(in)};
    o->holders[in->id / 64] = bit(in->id);
    __atomic_store_n(&o->in_use, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < n; i++) {
        sg_block dirty = load(&blocks[numbers[i]]) & SG_BLOCK_DIRTY;
        store(&blocks[numbers[i]], describe(SG_BLOCK_SHARED, category, place, i) | dirty);
    }
    *object = place;
    return 0;
}

uint64_t sg_object_key(const struct sg_instance *in, uint32_t object) {
    return in->state->objects[object].key;
}

/* Writes the numbers of the object's blocks in order; they are found by a walk through the
   table. */
static void list_blocks(const struct sg_instance *in, uint32_t object, uint32_t *numbers,
                        uint32_t capacity) {
    const struct sg_object *o = &in->state->objects[object];
    const sg_block *blocks = sg_blocks(in, o->gpu);
    uint32_t count = in->state->gpus[o->gpu].block_count;

    for (uint32_t i = 0; i < count; i++) {
        sg_block b = load(&blocks[i]);
        if ((b & SG_BLOCK_SHARED) && sg_block_owner(b) == object && sg_block_place(b) < capacity) {
            numbers[sg_block_place(b)] = i;
        }
    }
}

static bool created_by(const struct sg_state *st, const struct sg_object *o, uint32_t client) {
    return o->creator == client && o->creator_generation == st->clients[client].generation;
}

/* Which figure of a client counts an object that it holds. What no client holds, such as memory
 * that descriptors alone keep, is in no client's figures, but in its tag's. */
static uint64_t *counted_in(struct sg_state *st, const struct sg_object *o, uint32_t client) {
    return created_by(st, o, client) ? &st->clients[client].bytes[o->gpu][o->category]
                                     : &st->clients[client].imported[o->gpu];
}

/* MIG user guide: memory is shared between compute instances of one GPU instance, not between GPU instances. */
static bool within_reach(const struct sg_state *st, const struct sg_object *o, uint32_t client) {
    uint32_t own = st->clients[client].place;

    return (own == 0) == (o->place == 0) &&
           (own == 0 || (sg_place_gpu(own) == sg_place_gpu(o->place) &&
                         sg_place_gi(own) == sg_place_gi(o->place)));
}

int sg_object_hold(struct sg_instance *in, uint32_t object, uint64_t key, uint32_t *numbers,
                   uint32_t capacity) {
    struct sg_state *st = in->state;

    sg_reap(in);
    if (object >= SG_OBJECTS_MAX || !st->objects[object].in_use || st->objects[object].key != key) {
        return -ENOENT;
    }
    struct sg_object *o = &st->objects[object];
    if (!within_reach(st, o, in->id)) {
        return -ENOENT;
    }
    if (!(o->holders[in->id / 64] & bit(in->id))) {
        o->holders[in->id / 64] |= bit(in->id);
        *counted_in(st, o, in->id) += o->blocks * SG_BLOCK_BYTES;
    }
    list_blocks(in, object, numbers, capacity);
    return 0;
}

/* Ends the object; nobody holds it. */
static void free_object(struct sg_instance *in, uint32_t object) {
    struct sg_object *o = &in->state->objects[object];
    sg_block *blocks = sg_blocks(in, o->gpu);
    uint32_t count = in->state->gpus[o->gpu].block_count;

    for (uint32_t i = 0; i < count; i++) {
        sg_block b = load(&blocks[i]);
        if ((b & SG_BLOCK_SHARED) && sg_block_owner(b) == object) {
            set_free(in, o->gpu, 1, &i);
        }
    }
    in->state->tags[o->tag].bytes[o->gpu] -= o->blocks * SG_BLOCK_BYTES;
    sg_mig_count(in, o->place, -(int32_t)o->blocks);
    o->key = 0;
    __atomic_store_n(&o->in_use, 0, __ATOMIC_RELEASE);
}

void sg_object_drop_for(struct sg_instance *in, uint32_t object, uint32_t client) {
    struct sg_object *o = &in->state->objects[object];

    if (!o->in_use || !(o->holders[client / 64] & bit(client))) {
        return;
    }
    o->holders[client / 64] &= ~bit(client);
    *counted_in(in->state, o, client) -= o->blocks * SG_BLOCK_BYTES;
    if (created_by(in->state, o, client)) {
        o->creator_generation = 0; /* should it come back, it is one importer among others */
    }
    sg_object_settle(in, object);
}

void sg_object_settle(struct sg_instance *in, uint32_t object) {
    const struct sg_object *o = &in->state->objects[object];

    for (uint32_t i = 0; i < SG_CLIENTS_MAX / 64; i++) {
        if (o->holders[i]) {
            return;
        }
    }
    if (!o->descriptors || !sg_export_open(in, object)) {
        free_object(in, object);
    }
}

void sg_object_drop(struct sg_instance *in, uint32_t object) {
    sg_object_drop_for(in, object, in->id);
}
