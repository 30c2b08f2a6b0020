/* Sequences of calls that make contexts current and memory: what the client answers by itself or around the worker is what
 * the simulated driver answers to the same sequence. Each sequence runs directly in one process and through client and
 * worker in another; two threads of the program take turns. */
#define _GNU_SOURCE
#include "remote/generated/cuda_decode.h"
#include "remote/generated/cuda_stubs.h"
#include "remote/test/facts.h"
#include "remote/test/pair.h"
#include "simgpu/machine/test/setting.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CUDA_BY_HAND(name, manner, subject) __typeof__(name) REMOTE_STUB(name);
#include "remote/generated/cuda_by_hand.inc"

#define STEPS 60u
#define BATCH 250u
#define CONTEXTS 8u
#define DEVICES 4
#define MEMORIES 24u

static struct remote_cuda_driver driver;
static bool remote;
static bool told; /* each call, with TELL */
static CUresult tell(const char *name, CUresult result) {
    if (told) {
        fprintf(stderr, "%s %s: %d\n", remote ? "remote" : "direct", name, (int)result);
    }
    return result;
}
#define CALL(name, ...)                                                                            \
    tell(#name, remote ? REMOTE_STUB(name)(__VA_ARGS__) : driver.name(__VA_ARGS__))

struct step {
    uint32_t what;
    int32_t result;
    uint64_t seen;
};
static struct step *steps; /* of a batch, shared with the process that runs it */
static struct step *now;
static uint64_t random_state;

static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t draw(uint64_t below) {
    return mix(random_state += UINT64_C(0x9e3779b97f4a7c15)) % below;
}

/* What the program has. Contexts that have ended keep their place until it is drawn again. */
static struct {
    CUcontext contexts[CONTEXTS + DEVICES];
    struct {
        CUdeviceptr address;
        size_t size;
        bool held; /* one that was freed keeps its place until another takes it */
    } memory[MEMORIES];
    CUmemGenericAllocationHandle block;
} world;

static void see(uint64_t value) {
    now->seen = (now->seen ^ value) * UINT64_C(0x100000001b3) + 1;
}

/* A context, told by the place that it was put into last. */
static void see_context(CUcontext ctx) {
    for (unsigned i = 0; i < CONTEXTS + DEVICES; i++) {
        if (ctx && world.contexts[i] == ctx) {
            see(i + 1);
            return;
        }
    }
    see(ctx ? 99 : 0);
}

static CUdevice draw_device(void) {
    uint64_t d = draw(12);

    return d == 0 ? -1 : d == 1 ? DEVICES : (CUdevice)(d % DEVICES);
}

/* Mostly one that was made, though it may have ended. */
static CUcontext draw_context(void) {
    unsigned place = (unsigned)draw(CONTEXTS + DEVICES);

    for (unsigned i = 0; draw(9) && !world.contexts[place] && i < CONTEXTS + DEVICES; i++) {
        place = (place + 1) % (CONTEXTS + DEVICES);
    }
    return world.contexts[place];
}

static CUresult create(void) {
    unsigned place = (unsigned)draw(CONTEXTS), flags = draw(8) ? (unsigned)draw(9) : 0x100u;
    CUdevice device = draw_device();
    CUcontext made = (CUcontext)UINT64_C(0x7777), *to = draw(10) ? &made : NULL;
    CUexecAffinityParam affinity = {.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT, .param.smCount.val = 4};
    CUctxCreateParams params = {.execAffinityParams = &affinity, .numExecAffinityParams = 1};
    CUresult result;

    switch (draw(5)) {
    case 0:
        result = CALL(cuCtxCreate, to, flags, device);
        break;
    case 1:
        result =
            CALL(cuCtxCreate_v3, to, draw(2) ? &affinity : NULL, (int)draw(3) - 1, flags, device);
        break;
    case 2:
        result = CALL(cuCtxCreate_v4, to, draw(2) ? &params : NULL, flags, device);
        break;
    default:
        result = CALL(cuCtxCreate_v2, to, flags, device);
    }
    if (result == CUDA_SUCCESS) {
        /* What had this place is ended by nobody any more: it stays current where it is. */
        CALL(cuCtxDestroy_v2, world.contexts[place]);
        world.contexts[place] = made;
    } else {
        see((uint64_t)made);
    }
    return result;
}

static CUresult destroy(void) {
    CUcontext ctx = draw_context();

    return draw(2) ? CALL(cuCtxDestroy, ctx) : CALL(cuCtxDestroy_v2, ctx);
}

static CUresult attach(void) {
    CUcontext ctx = NULL, *to = draw(8) ? &ctx : NULL;
    CUresult result = CALL(cuCtxAttach, to, draw(8) == 0);

    see_context(ctx);
    return result;
}

static CUresult detach(void) {
    CUcontext ctx = draw_context();

    if (draw(2)) {
        CALL(cuCtxGetCurrent, &ctx);
    }
    /* Nothing is attached to NULL; the simulated driver looks into what it is given. */
    return CALL(cuCtxDetach, ctx);
}

static CUresult push(void) {
    CUcontext ctx = draw_context();

    return draw(2) ? CALL(cuCtxPushCurrent, ctx) : CALL(cuCtxPushCurrent_v2, ctx);
}

static CUresult pop(void) {
    CUcontext ctx = NULL, *to = draw(4) ? &ctx : NULL;
    CUresult result = draw(2) ? CALL(cuCtxPopCurrent, to) : CALL(cuCtxPopCurrent_v2, to);

    see_context(ctx);
    return result;
}

static CUresult set(void) {
    return CALL(cuCtxSetCurrent, draw(6) ? draw_context() : NULL);
}

static CUresult get(void) {
    CUcontext ctx = NULL;
    CUdevice device = 7;
    CUresult result;

    if (draw(2)) {
        result = CALL(cuCtxGetCurrent, draw(8) ? &ctx : NULL);
        see_context(ctx);
    } else {
        result = CALL(cuCtxGetDevice, draw(8) ? &device : NULL);
        see((uint64_t)device);
    }
    return result;
}

/* Calls that are generated, and need a context. */
static CUresult use(void) {
    unsigned value = 3;
    int least = 5, greatest = 6;
    CUresult result;

    switch (draw(4)) {
    case 0:
        result = CALL(cuCtxGetFlags, &value);
        break;
    case 1:
        result = CALL(cuCtxGetApiVersion, draw(2) ? draw_context() : NULL, &value);
        break;
    case 2:
        result =
            CALL(cuCtxGetStreamPriorityRange, draw(2) ? &least : NULL, draw(2) ? &greatest : NULL);
        break;
    default:
        result = CALL(cuCtxSynchronize);
    }
    see(value);
    see((uint64_t)least);
    see((uint64_t)greatest);
    return result;
}

static CUresult retain(void) {
    CUdevice device = draw_device();
    CUcontext ctx = NULL;
    CUresult result = CALL(cuDevicePrimaryCtxRetain, draw(8) ? &ctx : NULL, device);

    if (result == CUDA_SUCCESS) {
        world.contexts[CONTEXTS + (unsigned)device] = ctx;
    }
    return result;
}

static CUresult release(void) {
    CUdevice device = draw_device();
    unsigned flags = 0;
    int active = 0;
    CUresult result;

    switch (draw(6)) {
    case 0:
        result = CALL(cuDevicePrimaryCtxReset, device);
        break;
    case 1:
        result = CALL(cuDevicePrimaryCtxReset_v2, device);
        break;
    case 2:
        result = CALL(cuDevicePrimaryCtxGetState, device, &flags, &active);
        break;
    case 3:
        result = CALL(cuDevicePrimaryCtxRelease, device);
        break;
    default:
        result = CALL(cuDevicePrimaryCtxRelease_v2, device);
    }
    see((uint64_t)active);
    return result;
}

static size_t draw_size(void) {
    static const size_t sizes[] = {
        0, 1, 511, 512, 4096, 65536, MIB, MIB + 1, 3 * MIB, 17 * MIB, UINT64_C(1) << 40};

    return sizes[draw(sizeof sizes / sizeof *sizes)];
}

/* A place for an allocation; MEMORIES if all are held. */
static unsigned place_for_memory(void) {
    unsigned first = (unsigned)draw(MEMORIES);

    for (unsigned i = 0; i < MEMORIES; i++) {
        if (!world.memory[(first + i) % MEMORIES].held) {
            return (first + i) % MEMORIES;
        }
    }
    return MEMORIES;
}

/* Of allocations that follow each other at one address only the last is held. */
static void freed(CUdeviceptr address) {
    for (unsigned i = 0; i < MEMORIES; i++) {
        if (world.memory[i].address == address) {
            world.memory[i].held = false;
        }
    }
}

static CUresult allocate(void) {
    CUdeviceptr address = 0, *to = draw(16) ? &address : NULL;
    size_t size = draw_size(), pitch = 0, width = draw(5000), height = draw(40);
    unsigned place = place_for_memory();
    CUmemoryPool pool = NULL;
    CUstream stream = (CUstream)draw(3);
    CUresult result;

    if (place == MEMORIES) {
        return CUDA_SUCCESS;
    }
    switch (draw(6)) {
    case 0:
        result = CALL(cuMemAllocPitch_v2, to, draw(8) ? &pitch : NULL, width, height,
                      (unsigned)draw(3) * 4 + 4);
        see(pitch);
        break;
    case 1:
        result = draw(2) ? CALL(cuMemAllocAsync, to, size, stream)
                         : CALL(cuMemAllocAsync_ptsz, to, size, stream);
        break;
    case 2:
        result = CALL(cuDeviceGetDefaultMemPool, &pool, (CUdevice)draw(DEVICES));
        result = draw(2) ? CALL(cuMemAllocFromPoolAsync, to, size, draw(8) ? pool : NULL, stream)
                         : CALL(cuMemAllocFromPoolAsync_ptsz, to, size, pool, stream);
        break;
    case 3:
        size = 2 * MIB * draw(4) + (draw(6) == 0);
        result = CALL(cuMemAddressReserve, to, size, 0, draw(4) ? 0 : draw(100), draw(9) == 0);
        break;
    default:
        result = CALL(cuMemAlloc_v2, to, size);
    }
    see(address != 0);
    if (result == CUDA_SUCCESS) {
        world.memory[place].address = address;
        world.memory[place].size = size;
        world.memory[place].held = true;
    }
    return result;
}

static CUdeviceptr draw_address(void) {
    uint64_t d = draw(20);

    if (d == 0) {
        return 0;
    }
    unsigned place = (unsigned)draw(MEMORIES);
    for (unsigned i = 0; !world.memory[place].address && i < MEMORIES; i++) {
        place = (place + 1) % MEMORIES;
    }
    CUdeviceptr address = world.memory[place].address;
    return address && d < 4 ? address + draw(3000) : address;
}

static CUresult release_memory(void) {
    CUdeviceptr address = draw_address();
    CUstream stream = (CUstream)draw(3);
    size_t size = 2 * MIB * draw(4);
    CUresult result;

    switch (draw(5)) {
    case 0:
        result = draw(2) ? CALL(cuMemFreeAsync, address, stream)
                         : CALL(cuMemFreeAsync_ptsz, address, stream);
        break;
    case 1:
        for (unsigned i = 0; i < MEMORIES && draw(8); i++) {
            if (world.memory[i].address == address) {
                size = world.memory[i].size;
            }
        }
        result = CALL(cuMemAddressFree, address, size);
        break;
    default:
        result = CALL(cuMemFree_v2, address);
    }
    if (result == CUDA_SUCCESS) {
        freed(address);
    }
    return result;
}

/* Physical memory at reserved addresses. */
static CUresult map(void) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUdeviceptr address = draw_address();
    size_t granularity = 0;

    switch (draw(4)) {
    case 0:
        return world.block ? CUDA_SUCCESS : CALL(cuMemCreate, &world.block, 2 * MIB, &prop, 0);
    case 1: {
        CUresult result = CALL(cuMemGetAllocationGranularity, draw(8) ? &granularity : NULL,
                               draw(8) ? &prop : NULL, (CUmemAllocationGranularity_flags)draw(3));
        see(granularity);
        return result;
    }
    case 2:
        return world.block ? CALL(cuMemMap, address, 2 * MIB, 0, world.block, 0) : CUDA_SUCCESS;
    default:
        return CALL(cuMemUnmap, address, 2 * MIB);
    }
}

/* What is the same in both processes: addresses are told by how far they are from the one that was asked about. Numbers of
 * buffers are only compared with zero, and what is not served is left out. */
static void see_attribute(CUpointer_attribute attribute, uint64_t value, CUdeviceptr address) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        see_context((CUcontext)value);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        see(value ? value - address : 1);
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        see(value != 0);
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
        uint64_t is = value ? 9 : 0;
        for (CUdevice d = 0; value && d < DEVICES; d++) {
            CUmemoryPool pool = NULL;
            CALL(cuDeviceGetDefaultMemPool, &pool, d);
            is = (uint64_t)pool == value ? (uint64_t)d + 1 : is;
        }
        see(is);
        break;
    }
    default:
        see(value);
    }
}

static CUresult ask_pointer(void) {
    CUdeviceptr address = draw(10) ? draw_address() : (CUdeviceptr)(uintptr_t)&world;
    CUpointer_attribute attribute = (CUpointer_attribute)draw(23);
    uint64_t value = 0;
    CUresult result =
        CALL(cuPointerGetAttribute, draw(16) ? (void *)&value : NULL, attribute, address);

    if (result == CUDA_SUCCESS) {
        see_attribute(attribute, value, address);
    }
    return result;
}

static CUresult ask_pointers(void) {
    CUdeviceptr address = draw(10) ? draw_address() : (CUdeviceptr)(uintptr_t)&world;
    CUpointer_attribute attributes[6];
    uint64_t values[6];
    void *data[6];
    unsigned count = (unsigned)draw(7);

    for (unsigned i = 0; i < 6; i++) {
        attributes[i] = (CUpointer_attribute)(1 + draw(draw(20) ? 21 : 22));
        values[i] = UINT64_C(0xabababababababab);
        data[i] = &values[i];
    }
    CUresult result =
        CALL(cuPointerGetAttributes, count, draw(20) ? attributes : NULL, data, address);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        bool narrow = values[i] >> 32 == 0xabababab;
        see(narrow);
        see_attribute(attributes[i], narrow ? (uint32_t)values[i] : values[i], address);
    }
    return result;
}

static CUresult ask_range(void) {
    CUdeviceptr address = draw_address(), base = 0;
    size_t size = 0;
    CUresult result =
        CALL(cuMemGetAddressRange_v2, draw(4) ? &base : NULL, draw(4) ? &size : NULL, address);

    see(base ? address - base : 1);
    see(size);
    return result;
}

static CUresult (*const operations[])(void) = {
    create,
    create,
    destroy,
    attach,
    detach,
    push,
    push,
    pop,
    set,
    set,
    get,
    get,
    use,
    use,
    retain,
    retain,
    release,
    release,
    allocate,
    allocate,
    allocate,
    release_memory,
    release_memory,
    map,
    ask_pointer,
    ask_pointer,
    ask_pointers,
    ask_range,
};
#define OPERATIONS (sizeof operations / sizeof *operations)

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
    now->result = 0;
    now->what = (uint32_t)draw(OPERATIONS);
    loopback_strict = strict || remote_current() == 0;
    now->result = (int32_t)operations[now->what]();
}

static void pop_all(void) {
    while (CALL(cuCtxPopCurrent_v2, NULL) == CUDA_SUCCESS) {
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
        if (remote) {
            CHECK_EQUAL(facts_reserved, 0);
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        turns[i].work = NULL;
        sem_post(&turns[i].go);
        pthread_join(threads[i], NULL);
    }
}

/* A process of its own for each way, with a machine of its own. The executor must never name what has ended. */
static void run(bool through, uint64_t first, struct step *to) {
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        sim_machine machine;

        alarm(300);
        setting_describe(&machine);
        machine.cuda_version = 13040;
        machine.dead_handles = through ? SIM_DEAD_END : SIM_DEAD_COUNT;
        setting_make(&machine);
        pair_load(SIMGPU_FOLDER "libcuda.so.1");
        remote_cuda_driver_find(&driver, pair_find);
        CHECK_EQUAL(driver.cuInit(0), CUDA_SUCCESS);
        remote = through;
        steps = to;
        if (through) {
            facts_start(&driver);
        }
        run_batch(first);
        exit(0);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

static unsigned long succeeded[OPERATIONS], failed[OPERATIONS];

static void compare(uint64_t first, const struct step *direct, const struct step *through) {
    for (unsigned i = 0; i < BATCH * STEPS; i++) {
        if (memcmp(&direct[i], &through[i], sizeof *direct) != 0) {
            fprintf(stderr,
                    "sequence %llu, step %u, operation %u and %u: directly %d, through client and "
                    "worker %d%s\n",
                    (unsigned long long)(first + i / STEPS), i % STEPS, direct[i].what,
                    through[i].what, direct[i].result, through[i].result,
                    direct[i].seen == through[i].seen ? "" : ", other answers");
            exit(1);
        }
        (direct[i].result ? failed : succeeded)[direct[i].what]++;
    }
}

int main(void) {
    told = getenv("TELL") != NULL;
    const char *given = getenv("SEQUENCES"), *from = getenv("FIRST");
    uint64_t sequences = given ? strtoull(given, NULL, 10) : 10000;
    uint64_t begin = from ? strtoull(from, NULL, 10) : 0;
    struct step *both = mmap(NULL, 2 * BATCH * STEPS * sizeof *both, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(both != MAP_FAILED);
    for (uint64_t first = begin; first < begin + sequences; first += BATCH) {
        memset(both, 0, 2 * BATCH * STEPS * sizeof *both);
        run(false, first, both);
        run(true, first, both + BATCH * STEPS);
        compare(first, both, both + BATCH * STEPS);
    }
    for (unsigned i = 0; i < OPERATIONS; i++) {
        if (getenv("VERBOSE")) {
            fprintf(stderr, "operation %u: %lu succeeded, %lu failed\n", i, succeeded[i],
                    failed[i]);
        }
        CHECK(succeeded[i] > sequences / 8 && failed[i] > sequences / 50);
    }
    printf("%llu sequences of %u calls\n", (unsigned long long)sequences, STEPS);
    return 0;
}
