#define _GNU_SOURCE
#include "remote/test/sequence.h"

#include "remote/test/facts.h"
#include "remote/test/pair.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS 60u
#define BATCH 250u
#define OPERATIONS (CONTEXT_OPERATIONS + MEMORY_OPERATIONS + HOST_OPERATIONS)

struct remote_cuda_driver sequence_driver;
enum way sequence_way;
bool sequence_has_worker;
struct world world;

struct step {
    uint32_t what;
    int32_t result;
    uint64_t seen;
};
static struct step *steps; /* of a batch, shared with the process that runs it */
static struct step *now;
static uint64_t random_state;
static bool telling; /* each call, with TELL */
static uint32_t operations;
static void (*script)(void); /* in place of sequences */

CUresult sequence_told(const char *name, CUresult result) {
    if (telling) {
        fprintf(stderr, "%s %s: %d\n", sequence_way ? "remote" : "direct", name, (int)result);
    }
    return result;
}

static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t draw(uint64_t below) {
    return mix(random_state += UINT64_C(0x9e3779b97f4a7c15)) % below;
}

void see(uint64_t value) {
    now->seen = (now->seen ^ value) * UINT64_C(0x100000001b3) + 1;
}

void see_context(CUcontext ctx) {
    for (unsigned i = 0; i < CONTEXTS + DEVICES; i++) {
        if (ctx && world.contexts[i] == ctx) {
            see(i + 1);
            return;
        }
    }
    see(ctx ? 99 : 0);
}

CUdevice draw_device(void) {
    uint64_t d = draw(12);

    return d == 0 ? -1 : d == 1 ? DEVICES : (CUdevice)(d % DEVICES);
}

CUcontext draw_context(void) {
    unsigned place = (unsigned)draw(CONTEXTS + DEVICES);

    for (unsigned i = 0; draw(9) && !world.contexts[place] && i < CONTEXTS + DEVICES; i++) {
        place = (place + 1) % (CONTEXTS + DEVICES);
    }
    return world.contexts[place];
}

/* Two threads of the program; one of them at a time does something. */
static struct {
    sem_t go, done;
    void (*work)(void);
} turns[2];

static void *take_turns(void *argument) {
    unsigned i = *(unsigned *)argument;

    for (;;) {
        sem_wait(&turns[i].go);
        if (!turns[i].work) {
            return NULL;
        }
        turns[i].work();
        sem_post(&turns[i].done);
    }
}

static void on(unsigned thread, void (*work)(void)) {
    turns[thread].work = work;
    sem_post(&turns[thread].go);
    sem_wait(&turns[thread].done);
}

static bool strict;

static void do_step(void) {
    now->what = (uint32_t)draw(operations);
    if (sequence_way == LOOPBACK) {
        loopback_strict = strict || remote_current() == 0;
    }
    uint32_t of = now->what;
    operation *one = of < CONTEXT_OPERATIONS ? context_operations[of]
                     : of < CONTEXT_OPERATIONS + MEMORY_OPERATIONS
                         ? memory_operations[of - CONTEXT_OPERATIONS]
                         : host_operations[of - CONTEXT_OPERATIONS - MEMORY_OPERATIONS];
    now->result = (int32_t)one();
}

static void pop_all(void) {
    while (CALL(cuCtxPopCurrent_v2, NULL) == CUDA_SUCCESS) {
    }
}

/* Nothing of the worker's is reserved any more. */
static void check_reserved(void) {
    unsigned char resident;

    if (sequence_way == LOOPBACK) {
        CHECK_EQUAL(facts_reserved, 0);
    }
    for (unsigned i = 0; sequence_way >= APART && i < MEMORIES; i++) {
        CUdeviceptr page = world.memory[i].address / 4096 * 4096;
        CHECK(!page || (mincore((void *)(uintptr_t)page, 1, &resident) != 0 && errno == ENOMEM));
    }
}

/* Ends what the sequence has left. */
static void end_sequence(void) {
    CUcontext ctx;

    pop_all();
    loopback_strict = true;
    CALL(cuDevicePrimaryCtxRetain, &ctx, 0);
    CALL(cuCtxPushCurrent_v2, ctx);
    for (unsigned i = 0; i < MEMORIES; i++) {
        CUdeviceptr address = world.memory[i].address;
        CALL(cuMemUnmap, address, 2 * MIB);
        if (CALL(cuMemAddressFree, address, world.memory[i].size) != CUDA_SUCCESS) {
            CALL(cuMemFree_v2, address);
        }
    }
    host_end();
    if (world.block) {
        CALL(cuMemRelease, world.block);
    }
    pop_all();
    for (unsigned i = 0; i < CONTEXTS; i++) {
        CALL(cuCtxDestroy_v2, world.contexts[i]);
    }
    for (CUdevice d = 0; d < DEVICES; d++) {
        CALL(cuDevicePrimaryCtxReset_v2, d);
        while (CALL(cuDevicePrimaryCtxRelease_v2, d) == CUDA_SUCCESS) {
        }
    }
    check_reserved();
    memset(&world, 0, sizeof world);
}

static void run_batch(uint64_t first) {
    pthread_t threads[2];
    unsigned numbers[2] = {0, 1};

    for (unsigned i = 0; i < 2; i++) {
        CHECK(sem_init(&turns[i].go, 0, 0) == 0 && sem_init(&turns[i].done, 0, 0) == 0);
        CHECK(pthread_create(&threads[i], NULL, take_turns, &numbers[i]) == 0);
    }
    for (unsigned i = 0; i < BATCH; i++) {
        random_state = mix(first + i + 17);
        strict = i % 2;
        for (unsigned s = 0; s < STEPS; s++) {
            now = &steps[i * STEPS + s];
            on((unsigned)draw(4) == 0, do_step);
        }
        on(1, pop_all);
        on(0, end_sequence);
    }
    for (unsigned i = 0; i < 2; i++) {
        turns[i].work = NULL;
        sem_post(&turns[i].go);
        pthread_join(threads[i], NULL);
    }
}

static void load(void) {
    remote_cuda_driver_find(&sequence_driver, pair_find);
    CHECK_EQUAL(sequence_driver.cuInit(0), CUDA_SUCCESS);
}

/* In a process of its own, with a machine of its own. A worker must never name what has ended. */
static void begin_and_run(uint64_t first) {
    sim_machine machine;

    alarm(300);
    setting_describe(&machine);
    machine.cuda_version = 13040;
    machine.dead_handles = sequence_way == DIRECT ? SIM_DEAD_COUNT : SIM_DEAD_END;
    setting_make(&machine);
    if (sequence_way >= APART) {
        apart_start(sequence_way == APART_STRICT);
    } else {
        pair_load(SIMGPU_FOLDER "libcuda.so.1");
    }
    load();
    if (sequence_way == LOOPBACK) {
        facts_start(&sequence_driver);
    }
    if (script) {
        now = steps;
        script();
    } else {
        run_batch(first);
    }
    if (sequence_way >= APART) {
        apart_end();
    }
    exit(0);
}

static void run(enum way way, uint64_t first, struct step *to) {
    int status;
    fflush(stdout);
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        sequence_way = way;
        steps = to;
        begin_and_run(first);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

static unsigned long succeeded[OPERATIONS], failed[OPERATIONS];

static void compare(uint64_t first, const struct step *one, const struct step *other) {
    for (unsigned i = 0; i < BATCH * STEPS; i++) {
        if (memcmp(&one[i], &other[i], sizeof *one) != 0) {
            fprintf(stderr, "sequence %llu, step %u, operation %u and %u: results %d and %d%s\n",
                    (unsigned long long)(first + i / STEPS), i % STEPS, one[i].what, other[i].what,
                    one[i].result, other[i].result,
                    one[i].seen == other[i].seen ? "" : ", other answers");
            exit(1);
        }
        (one[i].result ? failed : succeeded)[one[i].what]++;
    }
}

void sequence_noted(CUresult result) {
    now->result = (int32_t)result;
    now++;
}

void sequence_compare_script(void (*with)(void), enum way one, enum way other) {
    struct step *both = mmap(NULL, 2 * BATCH * STEPS * sizeof *both, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(both != MAP_FAILED);
    telling = getenv("TELL") != NULL;
    script = with;
    run(one, 0, both);
    run(other, 0, both + BATCH * STEPS);
    compare(0, both, both + BATCH * STEPS);
    munmap(both, 2 * BATCH * STEPS * sizeof *both);
    script = NULL;
}

void sequence_compare(enum way one, enum way other, uint64_t sequences) {
    const char *given = getenv("SEQUENCES"), *from = getenv("FIRST");
    uint64_t begin = from ? strtoull(from, NULL, 10) : 0;
    struct step *both = mmap(NULL, 2 * BATCH * STEPS * sizeof *both, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(both != MAP_FAILED);
    telling = getenv("TELL") != NULL;
    sequence_has_worker = other >= APART;
    operations = sequence_has_worker ? OPERATIONS : CONTEXT_OPERATIONS + MEMORY_OPERATIONS;
    memset(succeeded, 0, sizeof succeeded);
    memset(failed, 0, sizeof failed);
    sequences = given ? strtoull(given, NULL, 10) : sequences;
    for (uint64_t first = begin; first < begin + sequences; first += BATCH) {
        memset(both, 0, 2 * BATCH * STEPS * sizeof *both);
        run(one, first, both);
        run(other, first, both + BATCH * STEPS);
        compare(first, both, both + BATCH * STEPS);
    }
    munmap(both, 2 * BATCH * STEPS * sizeof *both);
    for (unsigned i = 0; i < operations; i++) {
        /* Nothing is compared where all calls are refused. */
        if (telling) {
            fprintf(stderr, "operation %u: %lu succeeded, %lu failed\n", i, succeeded[i],
                    failed[i]);
        }
        CHECK(succeeded[i] > sequences / 8 && failed[i] > sequences / 50);
    }
    printf("%llu sequences of %u calls\n", (unsigned long long)sequences, STEPS);
}
