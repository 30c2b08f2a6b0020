/* The shared state: killed processes at any instant, several at once, and the schedule of a GPU's
 * time. */
#define _GNU_SOURCE
#include "simgpu/machine/test/setting.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 4
#ifdef __SANITIZE_THREAD__
#define KILLS 200 /* an instrumented process takes 40 ms to start */
#else
#define KILLS 2000
#endif
#define HELD 6
#define BLOCKS_EACH 20

static const char *directory;

/* What workers publish for each other to import. */
static struct {
    uint32_t object;
    uint64_t key;
} *offers;

static uint32_t random_of(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

struct holding {
    uint32_t n, numbers[BLOCKS_EACH];
    int64_t object;
};

static void take(struct sg_instance *in, struct holding *h, uint32_t *seed) {
    h->n = 1 + random_of(seed) % BLOCKS_EACH;
    h->object = -1;
    if (sg_blocks_take(in, 0, SG_LINEAR, h->n, h->numbers) != 0) {
        h->n = 0;
    }
}

static void share(struct sg_instance *in, struct holding *h, uint32_t place) {
    uint32_t object;

    if (h->object < 0 &&
        sg_object_create(in, 0, h->n, h->numbers, h->n * SG_BLOCK_BYTES, &object) == 0) {
        h->object = object;
        offers[place].object = object;
        offers[place].key = sg_object_key(in, object);
    }
}

static void give(struct sg_instance *in, struct holding *h) {
    if (h->object >= 0) {
        sg_object_drop(in, (uint32_t)h->object);
    } else {
        sg_blocks_return(in, 0, h->n, h->numbers);
    }
    h->n = 0;
}

/* Takes, shares, imports, gives back and computes until it is killed. */
_Noreturn static void work(uint32_t place, uint32_t seed) {
    struct holding held[HELD] = {{0}};
    uint32_t numbers[BLOCKS_EACH];
    struct sg_instance in;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK_EQUAL(sg_open(&in, directory, place % 2 ? "odd" : "even", true), 0);
    for (;;) {
        struct holding *h = &held[random_of(&seed) % HELD];
        sg_state_lock(&in);
        if (h->n == 0) {
            take(&in, h, &seed);
        } else if (random_of(&seed) % 3 == 0) {
            share(&in, h, place);
        } else {
            give(&in, h);
        }
        uint32_t other = random_of(&seed) % WORKERS;
        if (other != place && offers[other].key &&
            sg_object_hold(&in, offers[other].object, offers[other].key, numbers, BLOCKS_EACH) ==
                0 &&
            random_of(&seed) % 4) {
            sg_object_drop(&in, offers[other].object);
        }
        sg_state_unlock(&in);
        setting_submit(&in, 0, 1000);
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

/* All derived figures, to be compared with what counting anew gives. */
struct figures {
    uint32_t free_blocks;
    uint64_t clients[SG_CLIENTS_MAX][SG_CATEGORIES], imported[SG_CLIENTS_MAX], tags[SG_TAGS_MAX];
};

static void note(const struct sg_instance *in, struct figures *out) {
    memset(out, 0, sizeof *out);
    out->free_blocks = in->state->gpus[0].free_blocks;
    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        memcpy(out->clients[i], in->state->clients[i].bytes[0], sizeof out->clients[i]);
        out->imported[i] = in->state->clients[i].imported[0];
    }
    for (uint32_t i = 0; i < SG_TAGS_MAX; i++) {
        out->tags[i] = in->state->tags[i].bytes[0];
    }
}

/* What the GPU executed is what its processes and the dead of all tags did, to the nanosecond. */
static void check_time(struct sg_instance *in) {
    uint64_t sum = 0;

    sg_schedule_lock(in, 0);
    for (uint32_t i = 0; i < SG_TAGS_MAX; i++) {
        sum += in->state->tags[i].gpu_ns[0];
    }
    for (uint32_t i = 0; i < SG_CLIENTS_MAX; i++) {
        const struct sg_channel *channel = sg_channel(in, i, 0);
        CHECK(channel->executed <= channel->submitted);
        sum += channel->executed;
    }
    CHECK_EQUAL(sum, in->state->gpus[0].busy_ns);
    sg_schedule_unlock(in, 0);
}

/* Under the lock the figures are exact, whoever died just before. */
static void check_exact(struct sg_instance *in) {
    static struct figures kept, counted;

    sg_state_lock(in);
    sg_reap(in);
    note(in, &kept);
    sg_recount(in);
    note(in, &counted);
    check_time(in);
    sg_state_unlock(in);
    CHECK_EQUAL(kept.free_blocks, counted.free_blocks);
    for (uint32_t i = 0; i < SG_TAGS_MAX; i++) {
        CHECK_EQUAL(kept.tags[i], counted.tags[i]);
    }
    for (uint32_t i = 0; i < SG_CLIENTS_MAX; i++) {
        CHECK_EQUAL(kept.clients[i][SG_LINEAR], counted.clients[i][SG_LINEAR]);
        CHECK_EQUAL(kept.imported[i], counted.imported[i]);
    }
}

/* Kills a process at a random instant, thousands of times, while the others go on. */
static void check_kills(struct sg_instance *in) {
    pid_t workers[WORKERS];
    uint32_t seed = 1;

    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = start_worker(i, i);
    }
    for (int i = 0; i < KILLS; i++) {
        uint32_t victim = random_of(&seed) % WORKERS;
        struct timespec pause = {.tv_nsec = (long)(random_of(&seed) % 400000)};
        nanosleep(&pause, NULL);
        CHECK_EQUAL(waitpid(workers[victim], NULL, WNOHANG), 0); /* it has found nothing wrong */
        setting_kill(workers[victim]);
        check_exact(in);
        workers[victim] = start_worker(victim, seed);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        setting_kill(workers[i]);
    }
    sg_state_lock(in);
    sg_reap(in);
    CHECK_EQUAL(sg_gpu_used(in, 0), 0);
    for (uint32_t i = 0; i < SG_OBJECTS_MAX; i++) {
        CHECK(!in->state->objects[i].in_use);
    }
    sg_state_unlock(in);
}

/* The sum of a tag's processes has a peak, and the dead do not count for it. */
static void check_peak(struct sg_instance *in) {
    pid_t a = setting_process("t", 1, 30, 0), b = setting_process("t", 1, 40, 0);

    setting_kill(a);
    pid_t c = setting_process("t", 1, 35, 0);
    uint32_t i = 1;
    while (strcmp(in->state->tags[i].name, "t") != 0) {
        CHECK(++i < SG_TAGS_MAX);
    }
    CHECK_EQUAL(in->state->tags[i].bytes[1], 75 * SG_BLOCK_BYTES);
    CHECK_EQUAL(in->state->tags[i].peak[1], 75 * SG_BLOCK_BYTES);
    setting_kill(b);
    setting_kill(c);
}

/* As of the last time that somebody moved the GPU's clock on. */
static uint64_t executed_then(struct sg_instance *in, pid_t process, uint32_t gpu) {
    uint64_t done = 0;

    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        if (in->state->clients[i].who.pid == process) {
            done = sg_channel(in, i, gpu)->executed;
        }
    }
    return done;
}

static uint64_t executed(struct sg_instance *in, pid_t process, uint32_t gpu) {
    sg_advance(in, gpu, sg_now());
    return executed_then(in, process, gpu);
}

/* Two processes with work share the GPU's time equally, slice by slice; when one ends the other has
 * it alone. */
static void check_schedule(struct sg_instance *in) {
    const uint64_t second = 1000000000;
    pid_t a = setting_process("a", 2, 1, 3600 * second),
          b = setting_process("b", 2, 1, 3600 * second);
    /* All figures of one moment: between two moments this process may have to wait for a
       processor. */
    uint64_t a0 = executed(in, a, 2), b0 = executed_then(in, b, 2), from = in->state->gpus[2].clock;

    EVENTUALLY(executed(in, a, 2) + executed(in, b, 2) - a0 - b0 > 200000000);
    uint64_t mine = executed(in, a, 2) - a0, theirs = executed_then(in, b, 2) - b0;
    uint64_t passed = in->state->gpus[2].clock - from;
    CHECK(mine < theirs + 3000000 && theirs < mine + 3000000 + 1000000);
    CHECK(mine + theirs <= passed + 1000000 && mine + theirs + 2000000 >= passed);
    setting_kill(a);
    uint64_t b1 = executed(in, b, 2), t1 = in->state->gpus[2].clock;
    EVENTUALLY(executed(in, b, 2) - b1 > 100000000);
    CHECK(executed(in, b, 2) - b1 + 6000000 >= in->state->gpus[2].clock - t1);
    setting_kill(b);
}

int main(void) {
    struct sg_instance in;
    sim_machine machine;

    setting_describe(&machine);
    directory = setting_make(&machine);
    offers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(offers != MAP_FAILED);
    CHECK_EQUAL(sg_open(&in, directory, "", false), 0);
    check_kills(&in);
    check_peak(&in);
    check_schedule(&in);
    sg_close(&in);
    return 0;
}
