/* Managed memory of processes that are killed at any instant: figures stay exact, the host's limit holds, nothing leaks, and
 * the others go on. */
#define _GNU_SOURCE
#include "simgpu/machine/test/setting.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 4
#define KILLS 500
#define AREAS 4
#define HOST_BLOCKS 150u

static const char *directory;

static uint32_t random_of(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

struct holding {
    uint32_t chunks, first;
};

static void use(struct sg_instance *in, const struct holding *h, uint32_t *seed) {
    static const uint8_t kinds[] = {SG_SWEEP, SG_SWEEP, SG_SCATTER, SG_PREFETCH, SG_PREFETCH_HOST};
    struct sg_touch touch = {.first = h->first,
                             .chunks = 1 + random_of(seed) % h->chunks,
                             .reads = random_of(seed) % 2,
                             .writes = 1,
                             .kind = kinds[random_of(seed) % sizeof kinds]};
    struct sg_work work = {.ns = 1000, .engine = SG_ON_NONE, .touches = &touch, .touch_count = 1};
    uint32_t gpu = random_of(seed) % 2;
    uint64_t end = sg_submit(in, gpu, sg_time(in), &work), left;

    if (random_of(seed) % 4 == 0) { /* waits for it */
        while (sg_reached(in, gpu, sg_time(in), end, &left) == 0) {
            const struct timespec pause = {.tv_nsec = 20000};
            nanosleep(&pause, NULL);
        }
    }
}

static void change_ordinary(struct sg_instance *in, uint32_t *held, uint32_t *numbers,
                            uint32_t *seed) {
    sg_state_lock(in);
    if (*held) {
        sg_blocks_return(in, 0, *held, numbers);
        *held = 0;
    } else {
        uint32_t n = 1 + random_of(seed) % 30;
        *held = sg_blocks_take(in, 0, SG_LINEAR, n, numbers) == 0 ? n : 0;
    }
    sg_state_unlock(in);
}

/* Takes, uses and gives back until it is killed. */
_Noreturn static void work(uint32_t place, uint32_t seed) {
    struct holding held[AREAS] = {{0}};
    uint32_t ordinary = 0, numbers[32];
    struct sg_instance in;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK_EQUAL(sg_open(&in, directory, place % 2 ? "odd" : "even", true), 0);
    for (;;) {
        struct holding *h = &held[random_of(&seed) % AREAS];
        if (random_of(&seed) % 16 == 0) {
            change_ordinary(&in, &ordinary, numbers, &seed);
        } else if (h->chunks == 0) {
            h->chunks = 1 + random_of(&seed) % 60;
            sg_state_lock(&in);
            if (sg_chunks_take(&in, h->chunks, &h->first) != 0) {
                h->chunks = 0;
            }
            sg_state_unlock(&in);
        } else if (random_of(&seed) % 8 == 0) {
            sg_chunks_return(&in, h->first, h->chunks);
            h->chunks = 0;
        } else {
            use(&in, h, &seed);
        }
    }
}

static pid_t start_worker(uint32_t place, uint32_t seed) {
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        work(place, seed);
    }
    return child;
}

struct figures {
    uint32_t used, resident[2];
    uint64_t host, clients[SG_CLIENTS_MAX][2], tags[SG_TAGS_MAX][2];
};

static void note(const struct sg_instance *in, struct figures *out) {
    const struct sg_state *st = in->state;

    memset(out, 0, sizeof *out);
    out->used = st->pages.used;
    out->host = st->pages.host_chunks;
    for (uint32_t gpu = 0; gpu < 2; gpu++) {
        out->resident[gpu] = st->gpus[gpu].pages.resident;
        for (uint32_t i = 0; i < SG_CLIENTS_MAX; i++) {
            out->clients[i][gpu] = st->clients[i].bytes[gpu][SG_MANAGED];
        }
        for (uint32_t i = 0; i < SG_TAGS_MAX; i++) {
            out->tags[i][gpu] = st->tags[i].pages[gpu].resident;
        }
    }
}

static void check_exact(struct sg_instance *in) {
    static struct figures kept, counted;

    sg_state_lock(in);
    sg_reap(in);
    sg_schedule_lock(in, 0);
    sg_schedule_lock(in, 1);
    sg_pages_lock(in);
    note(in, &kept);
    sg_pages_recount(in);
    note(in, &counted);
    sg_pages_unlock(in);
    CHECK_EQUAL(kept.used, counted.used);
    CHECK_EQUAL(kept.host, counted.host);
    for (uint32_t gpu = 0; gpu < 2; gpu++) {
        CHECK_EQUAL(kept.resident[gpu], counted.resident[gpu]);
        for (uint32_t i = 0; i < SG_CLIENTS_MAX; i++) {
            CHECK_EQUAL(kept.clients[i][gpu], counted.clients[i][gpu]);
        }
        for (uint32_t i = 0; i < SG_TAGS_MAX; i++) {
            CHECK_EQUAL(kept.tags[i][gpu], counted.tags[i][gpu]);
        }
    }
    CHECK(counted.host <= HOST_BLOCKS);
    for (uint32_t gpu = 0; gpu < 2; gpu++) {
        CHECK(counted.resident[gpu] <= in->state->gpus[gpu].free_blocks);
    }
    sg_schedule_unlock(in, 1);
    sg_schedule_unlock(in, 0);
    sg_state_unlock(in);
}

int main(void) {
    pid_t workers[WORKERS];
    struct sg_instance in;
    sim_machine machine;
    uint32_t seed = 1;

    setting_describe(&machine);
    machine.gpu_count = 2;
    machine.host_bytes = HOST_BLOCKS * SG_BLOCK_BYTES;
    machine.fault_ns = 100;
    machine.gpus[0].host_rate = SG_BLOCK_BYTES * 5000000;
    directory = setting_make(&machine);
    CHECK_EQUAL(sg_open(&in, directory, "", false), 0);
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = start_worker(i, i);
    }
    for (int i = 0; i < KILLS; i++) {
        uint32_t victim = random_of(&seed) % WORKERS;
        struct timespec pause = {.tv_nsec = (long)(random_of(&seed) % 2000000)};
        nanosleep(&pause, NULL);
        CHECK_EQUAL(waitpid(workers[victim], NULL, WNOHANG), 0); /* it has found nothing wrong */
        setting_kill(workers[victim]);
        check_exact(&in);
        workers[victim] = start_worker(victim, seed);
    }
    uint64_t moved = 0;
    for (uint32_t i = 0; i < SG_TAGS_MAX; i++) {
        moved += in.state->tags[i].pages[0].out;
    }
    CHECK(moved > 0);
    for (uint32_t i = 0; i < WORKERS; i++) {
        setting_kill(workers[i]);
    }
    check_exact(&in);
    CHECK_EQUAL(in.state->pages.used, 0);
    CHECK_EQUAL(in.state->pages.host_chunks, 0);
    CHECK_EQUAL(sg_gpu_used(&in, 0) + sg_gpu_used(&in, 1), 0);
    sg_close(&in);
    return 0;
}
