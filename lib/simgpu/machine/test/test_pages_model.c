/* Managed memory: random touches, prefetches, allocations and ends of several processes, against a model of residency that
 * knows a list and nothing else. */
#include <string.h>

#include "simgpu/machine/test/pages_setting.h"

#define PROCESSES 4u
#define AREAS 3u
#define AREA_MOST 25u
#define STEPS 100000u

struct area {
    uint32_t chunks, first; /* 0 chunks: none */
    bool filled[AREA_MOST], written[AREA_MOST];
};

static struct {
    struct sg_instance in;
    struct area areas[AREAS];
    uint32_t ordinary, numbers[BLOCKS];
    uint64_t bytes_in, bytes_out;
} process[PROCESSES];

/* What the model thinks is on the GPU, oldest first. */
static struct resident {
    uint32_t process, area, chunk;
} list[BLOCKS];
static uint32_t listed;

static uint32_t random_of(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void unlist(uint32_t at) {
    memmove(&list[at], &list[at + 1], (listed - at - 1) * sizeof list[0]);
    listed--;
}

static uint32_t position(uint32_t p, uint32_t area, uint32_t chunk) {
    uint32_t i = 0;

    while (i < listed && (list[i].process != p || list[i].area != area || list[i].chunk != chunk)) {
        i++;
    }
    return i;
}

static void leaves(uint32_t at) {
    struct area *area = &process[list[at].process].areas[list[at].area];

    if (area->written[list[at].chunk]) {
        process[list[at].process].bytes_out += SG_BLOCK_BYTES;
        area->written[list[at].chunk] = false;
    }
    unlist(at);
}

static uint32_t ordinary(void) {
    uint32_t sum = 0;

    for (uint32_t i = 0; i < PROCESSES; i++) {
        sum += process[i].ordinary;
    }
    return sum;
}

static void comes(uint32_t p, uint32_t area, uint32_t chunk, bool write, bool prefetch) {
    struct area *a = &process[p].areas[area];

    if (position(p, area, chunk) == listed) {
        while (listed && listed + ordinary() >= BLOCKS) {
            leaves(0);
        }
        if (ordinary() == BLOCKS) {
            return; /* used where it is */
        }
        process[p].bytes_in += a->filled[chunk] ? SG_BLOCK_BYTES : 0;
        list[listed++] = (struct resident){p, area, chunk};
    }
    if (write && !prefetch) {
        a->filled[chunk] = a->written[chunk] = true;
    }
}

static void compare(void) {
    const struct sg_state *st = process[0].in.state;
    uint32_t of[PROCESSES] = {0};

    for (uint32_t i = 0; i < listed; i++) {
        const struct area *a = &process[list[i].process].areas[list[i].area];
        const struct sg_chunk *chunk = sg_chunk(&process[0].in, a->first + list[i].chunk);
        CHECK(chunk->arrivals[0]);
        CHECK_EQUAL((chunk->state & SG_CHUNK_WRITTEN) != 0, a->written[list[i].chunk]);
        of[list[i].process]++;
    }
    CHECK_EQUAL(st->gpus[0].pages.resident, listed);
    CHECK(listed + ordinary() <= BLOCKS);
    CHECK_EQUAL(sg_gpu_used(&process[0].in, 0), (listed + ordinary()) * SG_BLOCK_BYTES);
    for (uint32_t p = 0; p < PROCESSES; p++) {
        const struct sg_client *client = &st->clients[process[p].in.id];
        CHECK_EQUAL(client->bytes[0][SG_MANAGED], of[p] * SG_BLOCK_BYTES);
        CHECK_EQUAL(sg_tag_used(&process[p].in, client->tag, 0),
                    (of[p] + process[p].ordinary) * SG_BLOCK_BYTES);
        if (client->pages) {
            CHECK_EQUAL(account(&process[p].in, 0)->in, process[p].bytes_in);
            CHECK_EQUAL(account(&process[p].in, 0)->out, process[p].bytes_out);
        }
    }
}

/* A sweep: so many times, in an order, from a chunk on. */
static void sweep(uint32_t p, uint32_t area, uint32_t from, uint32_t n, uint32_t *seed) {
    struct area *a = &process[p].areas[area];
    struct sg_touch touch = {.first = a->first + from,
                             .chunks = n,
                             .reads = random_of(seed) % 3,
                             .writes = random_of(seed) % 3,
                             .seed = random_of(seed) % (2 * n),
                             .kind = SG_SWEEP,
                             .order = (uint8_t)(random_of(seed) % SG_TOUCH_ORDERS)};
    uint32_t passes = touch.reads > touch.writes ? touch.reads : touch.writes;

    run(&process[p].in, 0, touch, 10 * US);
    for (uint32_t pass = 0; pass < passes; pass++) {
        bool backward = touch.order == SG_BACKWARD || (touch.order == SG_ALTERNATE && pass % 2);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t at = (i + touch.seed) % n;
            comes(p, area, from + (backward ? n - 1 - at : at), pass < touch.writes, false);
        }
    }
}

static void prefetch(uint32_t p, uint32_t area, uint32_t from, uint32_t n, bool to_host) {
    run(&process[p].in, 0, moving(process[p].areas[area].first + from, n, to_host), 1);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = position(p, area, from + i);
        if (!to_host) {
            comes(p, area, from + i, false, true);
        } else if (at < listed) {
            leaves(at);
        }
    }
}

static void use(uint32_t p, uint32_t area, uint32_t *seed) {
    const struct area *a = &process[p].areas[area];
    uint32_t from = random_of(seed) % a->chunks, n = 1 + random_of(seed) % (a->chunks - from);
    uint32_t kind = random_of(seed) % 6;

    if (kind < 4) {
        sweep(p, area, from, n, seed);
    } else {
        prefetch(p, area, from, n, kind == 5);
    }
}

static void end_area(uint32_t p, uint32_t area) {
    for (uint32_t i = listed; i-- > 0;) {
        if (list[i].process == p && list[i].area == area) {
            unlist(i);
        }
    }
    process[p].areas[area].chunks = 0;
}

static void cpu(uint32_t p, uint32_t area, uint32_t *seed) {
    struct area *a = &process[p].areas[area];
    uint32_t chunk = random_of(seed) % a->chunks, at = position(p, area, chunk);

    sg_chunks_host(&process[p].in, a->first + chunk, 1, true);
    if (at < listed) {
        leaves(at);
    }
    a->filled[chunk] = true;
}

static void change_ordinary(uint32_t p, uint32_t *seed) {
    struct sg_instance *in = &process[p].in;
    uint32_t n = 1 + random_of(seed) % 12;

    sg_state_lock(in);
    if (process[p].ordinary) {
        sg_blocks_return(in, 0, process[p].ordinary, process[p].numbers);
        process[p].ordinary = 0;
    } else if (sg_blocks_take(in, 0, SG_LINEAR, n, process[p].numbers) == 0) {
        while (listed + ordinary() + n > BLOCKS) {
            leaves(0);
        }
        process[p].ordinary = n;
    } else {
        CHECK(ordinary() + n > BLOCKS);
    }
    sg_state_unlock(in);
}

static void end_process(uint32_t p, const char *dir) {
    static const char *const tags[] = {"p", "q", "r", "s"};

    for (uint32_t i = 0; i < AREAS; i++) {
        end_area(p, i);
    }
    sg_close(&process[p].in);
    memset(&process[p], 0, sizeof process[p]);
    enter(&process[p].in, dir, tags[p]);
}

static void check_model(uint32_t seed) {
    const char *dir = make(0, seed % 2);

    listed = 0;
    memset(process, 0, sizeof process);
    for (uint32_t p = 0; p < PROCESSES; p++) {
        static const char *const tags[] = {"p", "q", "r", "s"};
        enter(&process[p].in, dir, tags[p]);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t p = random_of(&seed) % PROCESSES, i = random_of(&seed) % AREAS,
                 what = random_of(&seed) % 32;
        struct area *a = &process[p].areas[i];
        if (what == 0) {
            change_ordinary(p, &seed);
        } else if (what == 1 && random_of(&seed) % 8 == 0) {
            end_process(p, dir);
        } else if (a->chunks == 0) {
            memset(a, 0, sizeof *a);
            a->chunks = 1 + random_of(&seed) % AREA_MOST;
            CHECK_EQUAL(take(&process[p].in, a->chunks, &a->first), 0);
        } else if (what == 2) {
            sg_chunks_return(&process[p].in, a->first, a->chunks);
            end_area(p, i);
        } else if (what < 6) {
            cpu(p, i, &seed);
        } else {
            use(p, i, &seed);
        }
        compare();
    }
    for (uint32_t p = 0; p < PROCESSES; p++) {
        sg_close(&process[p].in);
    }
}

int main(void) {
    check_model(1);
    check_model(2);
    return 0;
}
