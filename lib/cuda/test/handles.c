#define _GNU_SOURCE
#include "cuda/test/handles.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "abi/generated/cuda_functions.h"
#include "test/check.h"

#define SLOTS 16
#define WORLDS 4
#define THREADS_MAX 64
#define KERNEL_NS 5000u
#define BYTES (3u << 20)

static void *library;

static void *function(const char *name) {
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

/* The driver's function, looked up once in each place. */
#define CALL(fn, ...)                                                                              \
    (__extension__({                                                                               \
        static __typeof__(&fn) known_;                                                             \
        __typeof__(&fn) at_ = __atomic_load_n(&known_, __ATOMIC_RELAXED);                          \
        if (at_ == NULL) {                                                                         \
            at_ = (__typeof__(&fn))function(#fn);                                                  \
            __atomic_store_n(&known_, at_, __ATOMIC_RELAXED);                                      \
        }                                                                                          \
        at_(__VA_ARGS__);                                                                          \
    }))
#define OK(fn, ...) CHECK_EQUAL(CALL(fn, __VA_ARGS__), CUDA_SUCCESS)

/* Objects of the shared context. A thread takes one out to use it, and puts it back or destroys
 * it. */
static CUcontext shared;
static CUfunction shared_kernel;
static CUstream streams[SLOTS];
static CUevent events[SLOTS];
static CUmemoryPool pools[SLOTS];

/* A context with what is in it, passed on in the same way. */
struct world {
    CUcontext context;
    CUfunction kernel;
    CUstream stream;
    CUevent event;
};
static struct world *worlds[WORLDS];

/* A context that has ended may be current in other threads, and calls of theirs are answered. Only
 * at the very moment of its end they must not call. */
static pthread_rwlock_t ending = PTHREAD_RWLOCK_INITIALIZER;

/* The primary context: used by many at once, and reset by one alone. */
static pthread_rwlock_t primary = PTHREAD_RWLOCK_INITIALIZER;

struct thread {
    pthread_t id;
    uint64_t random, operations;
};

static unsigned below(struct thread *t, unsigned bound) {
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(t->random >> 33) % bound;
}

static void *take(struct thread *t, void *slots, unsigned count) {
    return __atomic_exchange_n((void **)slots + below(t, count), NULL, __ATOMIC_ACQ_REL);
}

/* False if there was no empty place where it looked. */
static bool put(struct thread *t, void *slots, unsigned count, void *object) {
    void *none = NULL;
    return __atomic_compare_exchange_n((void **)slots + below(t, count), &none, object, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static CUfunction load(void) {
    static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                                ".visible .entry divvy_busy_ns(.param .u64 a) { ret; }\n";
    CUmodule module;
    CUfunction kernel;
    OK(cuModuleLoadData, &module, image);
    OK(cuModuleGetFunction, &kernel, module, "divvy_busy_ns");
    return kernel;
}

static void launch(struct thread *t, CUfunction kernel, CUstream stream) {
    for (unsigned i = below(t, 4) + 1; i > 0; i--) {
        uint64_t ns = KERNEL_NS;
        void *parameters[] = {&ns};
        OK(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    }
}

static CUstream some_stream(struct thread *t) {
    CUstream stream = take(t, streams, SLOTS);
    if (stream == NULL) {
        OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    }
    return stream;
}

static CUevent some_event(struct thread *t) {
    CUevent event = take(t, events, SLOTS);
    if (event == NULL) {
        OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    }
    return event;
}

static void leave_stream(struct thread *t, CUstream stream) {
    if (below(t, 3) == 0 || !put(t, streams, SLOTS, stream)) {
        OK(cuStreamDestroy_v2, stream);
    }
}

static void leave_event(struct thread *t, CUevent event) {
    if (below(t, 4) == 0 || !put(t, events, SLOTS, event)) {
        OK(cuEventDestroy_v2, event);
    }
}

static void look(struct thread *t, CUevent event) {
    if (below(t, 2) == 0) {
        OK(cuEventSynchronize, event);
    } else {
        CUresult result = CALL(cuEventQuery, event);
        CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY);
    }
}

/* A launch, a record, the end of the stream, a wait for the event. */
static void stream_ends_first(struct thread *t) {
    CUevent event = some_event(t);
    CUstream stream = some_stream(t);
    launch(t, shared_kernel, stream);
    OK(cuEventRecord, event, stream);
    OK(cuStreamDestroy_v2, stream);
    look(t, event);
    leave_event(t, event);
}

static void streams_pass_on(struct thread *t) {
    CUstream stream = some_stream(t);
    launch(t, shared_kernel, stream);
    if (below(t, 4) == 0) {
        OK(cuStreamSynchronize, stream);
    }
    leave_stream(t, stream);
}

static void streams_wait(struct thread *t) {
    CUstream stream = some_stream(t), other = some_stream(t);
    CUevent event = some_event(t);
    OK(cuEventRecord, event, stream);
    OK(cuStreamWaitEvent, other, event, 0);
    launch(t, shared_kernel, other);
    leave_stream(t, stream);
    leave_event(t, event);
    leave_stream(t, other);
}

static void look_at_any(struct thread *t) {
    CUevent event = some_event(t);
    look(t, event);
    leave_event(t, event);
}

static struct world *new_world(void) {
    struct world *world = calloc(1, sizeof *world);
    CHECK(world != NULL);
    if (CALL(cuCtxCreate_v2, &world->context, 0, 0) != CUDA_SUCCESS) {
        free(world); /* the memory is used up */
        return NULL;
    }
    world->kernel = load();
    OK(cuStreamCreate, &world->stream, 0);
    OK(cuEventCreate, &world->event, 0);
    return world;
}

/* Leaves the context current: another thread may destroy it meanwhile. */
static void worlds_pass_on(struct thread *t) {
    struct world *world = take(t, worlds, WORLDS);
    if (world == NULL && (world = new_world()) == NULL) {
        return;
    }
    OK(cuCtxSetCurrent, world->context);
    launch(t, world->kernel, below(t, 2) ? world->stream : NULL);
    OK(cuEventRecord, world->event, world->stream);
    look(t, world->event);
    if (below(t, 4) == 0 || !put(t, worlds, WORLDS, world)) {
        pthread_rwlock_wrlock(&ending);
        OK(cuCtxDestroy_v2, world->context);
        pthread_rwlock_unlock(&ending);
        free(world);
    }
}

/* Whatever is current may have ended. */
static void use_what_is_current(struct thread *t) {
    CUdeviceptr address;
    (void)t;
    pthread_rwlock_rdlock(&ending);
    if (CALL(cuMemAlloc_v2, &address, BYTES) == CUDA_SUCCESS) {
        CALL(cuMemFree_v2, address);
    }
    CALL(cuStreamSynchronize, NULL);
    pthread_rwlock_unlock(&ending);
}

static void use_primary(struct thread *t) {
    CUcontext context;
    CUstream stream;
    pthread_rwlock_rdlock(&primary);
    if (CALL(cuDevicePrimaryCtxRetain, &context, 0) == CUDA_SUCCESS) {
        OK(cuCtxSetCurrent, context);
        OK(cuStreamCreate, &stream, 0);
        launch(t, load(), stream);
        OK(cuStreamDestroy_v2, stream);
        OK(cuCtxSetCurrent, shared);
        OK(cuDevicePrimaryCtxRelease_v2, 0);
    }
    pthread_rwlock_unlock(&primary);
}

static void reset_primary(struct thread *t) {
    CUcontext context;
    (void)t;
    if (pthread_rwlock_trywrlock(&primary) != 0) {
        return;
    }
    if (CALL(cuDevicePrimaryCtxRetain, &context, 0) == CUDA_SUCCESS) {
        OK(cuCtxSetCurrent, context);
        launch(t, load(), NULL);
        OK(cuCtxSetCurrent, shared);
        OK(cuDevicePrimaryCtxReset_v2, 0);
    }
    pthread_rwlock_unlock(&primary);
}

/* The limit is near, so a refused allocation asks about pools and about frees that wait. */
static void allocate(struct thread *t) {
    CUdeviceptr address;
    CUstream stream = some_stream(t);
    if (CALL(cuMemAlloc_v2, &address, BYTES << below(t, 4)) == CUDA_SUCCESS) {
        OK(cuMemFreeAsync, address, stream);
    }
    leave_stream(t, stream);
}

static void use_pool(struct thread *t) {
    CUdeviceptr address;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUstream stream = some_stream(t);
    CUmemoryPool pool = take(t, pools, SLOTS);
    if (pool == NULL) {
        OK(cuMemPoolCreate, &pool, &props);
    }
    if (CALL(cuMemAllocFromPoolAsync, &address, BYTES, pool, stream) == CUDA_SUCCESS) {
        OK(cuMemFreeAsync, address, stream);
    }
    if (below(t, 3) == 0 || !put(t, pools, SLOTS, pool)) {
        OK(cuMemPoolDestroy, pool);
    }
    leave_stream(t, stream);
}

static void use_graph(struct thread *t) {
    CUgraph graph;
    CUgraphExec exec;
    CUstream stream = some_stream(t);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    launch(t, shared_kernel, stream);
    OK(cuStreamEndCapture, stream, &graph);
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    OK(cuGraphLaunch, exec, stream);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
    leave_stream(t, stream);
}

static void operate(struct thread *t) {
    static void (*const rare[])(struct thread *) = {
        worlds_pass_on, use_what_is_current, use_primary, reset_primary, allocate, use_pool,
        use_graph};
    static void (*const common[])(struct thread *) = {stream_ends_first, streams_pass_on,
                                                      streams_wait, look_at_any};
    if (below(t, 4) == 0) {
        rare[below(t, sizeof rare / sizeof *rare)](t);
        if (below(t, 4) == 0) {
            use_what_is_current(t);
        }
        OK(cuCtxSetCurrent, shared);
    } else {
        common[below(t, sizeof common / sizeof *common)](t);
    }
}

static void *operate_all(void *arg) {
    struct thread *t = arg;
    OK(cuCtxSetCurrent, shared);
    for (uint64_t i = 0; i < t->operations; i++) {
        operate(t);
    }
    return NULL;
}

/* Takes nearly all of the share's memory, so that allocations are refused now and then. */
static void fill(void) {
    CUdeviceptr last[3] = {0};
    unsigned count = 0;
    for (CUdeviceptr address; CALL(cuMemAlloc_v2, &address, 32u << 20) == CUDA_SUCCESS; count++) {
        last[count % 3] = address;
    }
    for (unsigned i = 0; i < 3 && i < count; i++) {
        OK(cuMemFree_v2, last[i]);
    }
}

void handles_run(void *opened, unsigned count, uint64_t operations, uint64_t seed) {
    struct thread threads[THREADS_MAX];
    CHECK(count > 0 && count <= THREADS_MAX);
    library = opened;
    OK(cuCtxCreate_v2, &shared, 0, 0);
    shared_kernel = load();
    fill();
    for (unsigned i = 0; i < count; i++) {
        threads[i] =
            (struct thread){.random = seed * THREADS_MAX + i, .operations = operations / count};
        CHECK_EQUAL(pthread_create(&threads[i].id, NULL, operate_all, &threads[i]), 0);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i].id, NULL);
    }
    for (unsigned i = 0; i < WORLDS; i++) {
        free(worlds[i]);
    }
}
