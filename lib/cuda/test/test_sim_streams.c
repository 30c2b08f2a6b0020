/*
 * What our library inserts among the calls of programs that use streams in every way: the driver of
 * watch.c judges each call. Directed programs first, then random ones of several threads:
 *
 *     sim_streams [OPERATIONS [SEED]]
 */
#define _GNU_SOURCE
#include "cuda/test/program.h"

#include <pthread.h>
#include <sched.h>

#define THREADS 6
#define OPERATIONS 3000
#define OWN 4        /* streams of a thread */
#define BYTES 65536u /* of a buffer on the device */

/* Two contexts, each with the kernel and two buffers. */
static struct world {
    CUcontext context;
    CUfunction kernel;
    CUdeviceptr buffers[2];
} worlds[2];

/* ---- directed ---- */

static void make_world(struct world *world, CUcontext context) {
    world->context = context;
    world->kernel = program_kernel();
    DO(cuMemAlloc_v2, &world->buffers[0], BYTES);
    DO(cuMemAlloc_v2, &world->buffers[1], BYTES);
}

static void make_worlds(void) {
    CUcontext first, second;
    DO(cuCtxGetCurrent, &first);
    make_world(&worlds[0], first);
    DO(cuCtxCreate_v2, &second, 0, 0);
    make_world(&worlds[1], second);
    DO(cuCtxSetCurrent, first);
}

static void launch_many(CUfunction kernel, CUstream stream, unsigned count) {
    while (count-- > 0) {
        program_launch(kernel, stream, 20 * US);
    }
}

/* An event in the legacy stream after work of other streams would make them wait for it. */
static void legacy_stands_beside_others(void) {
    CUstream stream;
    launch_many(worlds[0].kernel, NULL, 40);
    DO(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    for (unsigned i = 0; i < 20; i++) {
        launch_many(worlds[0].kernel, stream, 10);
        launch_many(worlds[0].kernel, NULL, 10);
        launch_many(worlds[0].kernel, stream, 10);
        if (i % 4 == 0) {
            DO(cuCtxSynchronize, );
        }
    }
    IN(stream, cuStreamDestroy_v2, stream);
    CHECK_EQUAL(program_wrong(), 0);
}

/* Where nobody waits for the legacy stream its work is measured in batches. */
static void legacy_alone_is_measured_in_batches(void) {
    CUcontext context;
    DO(cuCtxCreate_v2, &context, 0, 0);
    CUfunction kernel = program_kernel();
    launch_many(kernel, NULL, 40);
    DO(cuCtxSynchronize, );
    unsigned events = program_inserted("cuEventRecord");
    launch_many(kernel, NULL, 400);
    DO(cuCtxSynchronize, );
    events = program_inserted("cuEventRecord") - events;
    CHECK(events > 0 && events < 100);
    DO(cuCtxDestroy_v2, context);
    DO(cuCtxSetCurrent, worlds[0].context);
    CHECK_EQUAL(program_wrong(), 0);
}

/* The legacy stream of one context is open while another context is current. */
static void contexts_are_kept_apart(void) {
    CUstream stream;
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < 20; i++) {
        DO(cuCtxSetCurrent, worlds[0].context);
        launch_many(worlds[0].kernel, stream, 20);
        launch_many(worlds[0].kernel, NULL, 20);
        DO(cuCtxSetCurrent, worlds[1].context);
        launch_many(worlds[0].kernel, stream, 20);
        DO(cuCtxSynchronize, );
        IN(stream, cuStreamSynchronize, stream);
    }
    DO(cuCtxSetCurrent, worlds[0].context);
    IN(stream, cuStreamDestroy_v2, stream);
    CHECK_EQUAL(program_wrong(), 0);
}

/* The driver is asked about addresses that are not its own. */
static void host_memory_is_no_error(void) {
    static char here[256];
    CUdeviceptr host = (CUdeviceptr)(uintptr_t)here;
    CUstream stream;
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    IN(stream, cuMemcpyAsync, worlds[0].buffers[0], host, sizeof here, stream);
    IN(stream, cuMemcpyAsync, host, worlds[0].buffers[0], sizeof here, stream);
    IN(stream, cuMemcpyAsync, worlds[0].buffers[0], worlds[0].buffers[1], sizeof here, stream);
    DO(cuMemcpy, host, worlds[0].buffers[0], sizeof here);
    IN(stream, cuStreamDestroy_v2, stream);
    CHECK(program_inserted("cuPointerGetAttributes") > 0);
    CHECK_EQUAL(program_wrong(), 0);
}

static void priorities_reach_the_driver(void) {
    for (int priority = 0; priority >= -5; priority--) {
        CUstream stream;
        int got = 1;
        DO(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, priority);
        CHECK_EQUAL((__extension__(__typeof__(&cuStreamGetPriority))
                         setting_real(&program, "cuStreamGetPriority"))(stream, &got),
                    CUDA_SUCCESS);
        CHECK_EQUAL(got, priority);
        IN(stream, cuStreamDestroy_v2, stream);
    }
}

/* ---- random ---- */

/* Captures forbid calls to others. Taken in this order; each for reading by what is forbidden, for
 * writing by what forbids it. */
static pthread_rwlock_t any = PTHREAD_RWLOCK_INITIALIZER;    /* the other way round: by captures */
static pthread_rwlock_t global = PTHREAD_RWLOCK_INITIALIZER; /* captures in global mode */
static pthread_rwlock_t implicit = PTHREAD_RWLOCK_INITIALIZER; /* captures of blocking streams */

struct thread {
    pthread_t id;
    uint64_t random;
    unsigned operations;
    struct own {
        CUstream stream; /* NULL: none */
        struct world *world;
        bool blocks;
    } own[OWN];
    CUevent events[2]; /* of each context */
    CUdeviceptr buffers[2][2];
    char here[256];
};

static unsigned below(struct thread *t, unsigned bound) {
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(t->random >> 33) % bound;
}

static struct own *some_own(struct thread *t) {
    struct own *own = &t->own[below(t, OWN)];
    if (own->stream == NULL) {
        own->world = &worlds[below(t, 2)];
        own->blocks = below(t, 2) == 0;
        DO(cuCtxSetCurrent, own->world->context);
        DO(cuStreamCreateWithPriority, &own->stream,
           own->blocks ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING, -(int)below(t, 6));
    }
    return own;
}

static void leave(struct thread *t, struct own *own) {
    if (below(t, 12) == 0) {
        IN(own->stream, cuStreamDestroy_v2, own->stream);
        own->stream = NULL;
    }
}

static struct world *enter(struct thread *t) {
    struct world *world = &worlds[below(t, 2)];
    DO(cuCtxSetCurrent, world->context);
    return world;
}

static void launch_some(struct thread *t, CUfunction kernel, CUstream stream) {
    for (unsigned i = below(t, 6) + 1; i > 0; i--) {
        program_launch(kernel, stream, (1 + below(t, 8)) * US);
    }
}

/* Whatever context is current. */
static void use_own(struct thread *t) {
    struct own *own = some_own(t);
    launch_some(t, own->world->kernel, own->stream);
    if (below(t, 4) == 0) {
        IN(own->stream, cuStreamSynchronize, own->stream);
    }
    leave(t, own);
}

static void use_legacy(struct thread *t) {
    const struct world *world = enter(t);
    pthread_rwlock_rdlock(&implicit);
    launch_some(t, world->kernel, NULL);
    if (below(t, 4) == 0) {
        IN(NULL, cuStreamSynchronize, NULL);
    }
    pthread_rwlock_unlock(&implicit);
}

static void use_per_thread(struct thread *t) {
    const struct world *world = enter(t);
    uint64_t ns = 5 * US;
    void *parameters[] = {&ns};
    for (unsigned i = below(t, 6) + 1; i > 0; i--) {
        IN(CU_STREAM_PER_THREAD, cuLaunchKernel_ptsz, world->kernel, 1, 1, 1, 1, 1, 1, 0, NULL,
           parameters, NULL);
    }
    if (below(t, 4) == 0) {
        IN(CU_STREAM_PER_THREAD, cuStreamSynchronize_ptsz, NULL);
    }
}

static void wait_for_each_other(struct thread *t) {
    const struct own *own = some_own(t), *other = some_own(t);
    CUevent event = t->events[own->world - worlds];
    launch_some(t, own->world->kernel, own->stream);
    IN(own->stream, cuEventRecord, event, own->stream);
    IN(other->stream, cuStreamWaitEvent, other->stream, event, 0);
    launch_some(t, other->world->kernel, other->stream);
    if (below(t, 2) == 0) {
        pthread_rwlock_rdlock(&global);
        CUresult result =
            below(t, 2) ? SAY(NULL, cuEventQuery, event) : SAY(NULL, cuEventSynchronize, event);
        pthread_rwlock_unlock(&global);
        CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY);
    }
}

static void synchronise(struct thread *t) {
    pthread_rwlock_wrlock(&any);
    enter(t);
    DO(cuCtxSynchronize, );
    pthread_rwlock_unlock(&any);
}

static void move(struct thread *t) {
    struct own *own = some_own(t);
    const CUdeviceptr *buffers = t->buffers[own->world - worlds];
    DO(cuCtxSetCurrent, own->world->context);
    IN(own->stream, cuMemcpyHtoDAsync_v2, buffers[0], t->here, sizeof t->here, own->stream);
    IN(own->stream, cuMemcpyAsync, buffers[1], buffers[0], BYTES, own->stream);
    IN(own->stream, cuMemcpyAsync, buffers[0], (CUdeviceptr)(uintptr_t)t->here, sizeof t->here,
       own->stream);
    IN(own->stream, cuMemsetD8Async, buffers[0], 0, BYTES, own->stream);
    leave(t, own);
}

static void allocate(struct thread *t) {
    struct own *own = some_own(t);
    CUdeviceptr address;
    DO(cuCtxSetCurrent, own->world->context);
    IN(own->stream, cuMemAllocAsync, &address, BYTES, own->stream);
    IN(own->stream, cuMemFreeAsync, address, own->stream);
    leave(t, own);
}

/* A capture in one of the modes, while the others go on. All that was launched is in the graph, and
 * nothing else. */
static void capture(struct thread *t) {
    struct own *own = some_own(t);
    CUstreamCaptureMode mode = (CUstreamCaptureMode)below(t, 3);
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;
    unsigned count = 1 + below(t, 6);
    DO(cuCtxSetCurrent, own->world->context);
    pthread_rwlock_rdlock(&any);
    if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
        pthread_rwlock_wrlock(&global);
    }
    if (own->blocks) {
        pthread_rwlock_wrlock(&implicit);
    }
    launch_some(t, own->world->kernel, own->stream);
    IN(own->stream, cuStreamBeginCapture_v2, own->stream, mode);
    for (unsigned i = 0; i < count; i++) {
        program_launch(own->world->kernel, own->stream, 5 * US);
        sched_yield();
    }
    IN(own->stream, cuStreamEndCapture, own->stream, &graph);
    if (own->blocks) {
        pthread_rwlock_unlock(&implicit);
    }
    if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
        pthread_rwlock_unlock(&global);
    }
    pthread_rwlock_unlock(&any);
    DO(cuGraphGetNodes, graph, NULL, &nodes);
    CHECK_EQUAL(nodes, count);
    DO(cuGraphInstantiateWithFlags, &exec, graph, 0);
    IN(own->stream, cuGraphLaunch, exec, own->stream);
    DO(cuGraphExecDestroy, exec);
    DO(cuGraphDestroy, graph);
    leave(t, own);
}

static void operate(struct thread *t) {
    static void (*const operations[])(struct thread *) = {
        use_own, use_own,  use_own,     use_legacy, use_legacy, use_per_thread, wait_for_each_other,
        move,    allocate, synchronise, capture,    capture};
    operations[below(t, sizeof operations / sizeof *operations)](t);
}

static void equip(struct thread *t) {
    for (unsigned i = 0; i < 2; i++) {
        DO(cuCtxSetCurrent, worlds[i].context);
        DO(cuEventCreate, &t->events[i], CU_EVENT_DISABLE_TIMING);
        DO(cuMemAlloc_v2, &t->buffers[i][0], BYTES);
        DO(cuMemAlloc_v2, &t->buffers[i][1], BYTES);
    }
}

static void *operate_all(void *arg) {
    struct thread *t = arg;
    DO(cuCtxSetCurrent, worlds[0].context);
    for (unsigned i = 0; i < t->operations; i++) {
        operate(t);
    }
    return NULL;
}

static void run(unsigned operations, uint64_t seed) {
    static struct thread threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        threads[i] =
            (struct thread){.random = seed * THREADS + i, .operations = operations / THREADS};
        equip(&threads[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i].id, NULL, operate_all, &threads[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i].id, NULL);
    }
    CHECK_EQUAL(program_wrong(), 0);
}

int main(int count, char **words) {
    unsigned operations = count > 1 ? (unsigned)strtoul(words[1], NULL, 10) : OPERATIONS;
    uint64_t seed = count > 2 ? strtoull(words[2], NULL, 10) : 1;
    program_make(WATCH);
    make_worlds();
    legacy_alone_is_measured_in_batches();
    legacy_stands_beside_others();
    contexts_are_kept_apart();
    host_memory_is_no_error();
    priorities_reach_the_driver();
    run(operations, seed);
    /* Launches wait now and then, also for the share's turn. */
    busy_budget.flags |= DV_PAGE_BUDGET_CAPPED;
    busy_budget.rate = busy_budget.base = DV_PAGE_WHOLE / 2;
    busy_budget.burst = 2 * (uint64_t)MS;
    busy_budget.depth = MS;
    busy_grant(&program, 0);
    run(operations, seed + 1);
    return 0;
}
