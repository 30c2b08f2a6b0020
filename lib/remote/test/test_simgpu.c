#define _GNU_SOURCE
/* Generated calls to the simulated driver, directly and through client and worker: results and all that is written are
 * equal. Each call is made beside a context with everything that has handles, once for each draw. */
#include "remote/generated/cuda_decode.h"
#include "remote/test/exercise.h"
#include "simgpu/machine/test/setting.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .global .align 8 .u64 table[2];\n"
                          ".visible .entry divvy_busy_ns(.param .u64 a) { ret; }\n"
                          ".visible .entry divvy_fill(.param .u64 a) { ret; }\n"
                          ".visible .entry none() { ret; }\n";

/* Calls that are not compared, and why not. */
static const struct {
    const char *name, *because;
} left_out[] = {
    {"cuEventElapsedTime", "the time between two events is no two times the same"},
    {"cuStreamWaitValue", "a stream that waits for a value never ends"},
    {"cuStreamBatchMemOp", "a stream that waits for a value never ends"},
};

static struct remote_cuda_driver driver;
static struct {
    __typeof__(cuInit) *init;
    __typeof__(cuCtxSetCurrent) *set_current;
    __typeof__(cuLibraryLoadData) *library_load;
    __typeof__(cuLinkCreate_v2) *link_create;
} direct;
static void *library;

/* What the calls are made beside. */
static struct {
    uint64_t handles[REMOTE_KINDS][8];
    unsigned count[REMOTE_KINDS];
    CUdeviceptr memory[2];
    CUcontext context;
} world;

static void *find(const char *name) {
    return dlsym(library, name);
}

/* dlsym answers with an object's address, which POSIX lets stand for a function. */
static void found(void *to, const char *name) {
    void *at = find(name);

    CHECK(at);
    memcpy(to, &at, sizeof at);
}

static void add(enum remote_kind kind, uint64_t handle) {
    CHECK(handle);
    world.handles[kind][world.count[kind]++] = handle;
}

#define ADD(type, handle) add(REMOTE_KIND_##type, (uint64_t)(handle))

static void build_code(void) {
    CUmodule module;
    CUfunction function;
    CUlibrary loaded;
    CUkernel kernel;
    CUlinkState link;

    OK(driver.cuModuleLoadData(&module, ptx));
    ADD(CUmodule, module);
    OK(driver.cuModuleGetFunction(&function, module, "divvy_fill"));
    ADD(CUfunction, function);
    OK(driver.cuModuleGetFunction(&function, module, "none"));
    ADD(CUfunction, function);
    OK(direct.library_load(&loaded, ptx, NULL, NULL, 0, NULL, NULL, 0));
    ADD(CUlibrary, loaded);
    OK(driver.cuLibraryGetKernel(&kernel, loaded, "none"));
    ADD(CUkernel, kernel);
    OK(direct.link_create(0, NULL, NULL, &link));
    ADD(CUlinkState, link);
}

static void build_memory(void) {
    const CUDA_ARRAY_DESCRIPTOR flat = {64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 4};
    const CUDA_ARRAY3D_DESCRIPTOR deep = {64, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
    const CUmemAllocationProp property = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    };
    CUmemPoolProps pool_property = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUarray array;
    CUmipmappedArray mipmapped;
    CUtexref texture;
    CUmemoryPool pool;
    CUmemGenericAllocationHandle block;

    OK(driver.cuMemAlloc_v2(&world.memory[0], 65536));
    OK(driver.cuMemAlloc_v2(&world.memory[1], 65536));
    OK(driver.cuArrayCreate_v2(&array, &flat));
    ADD(CUarray, array);
    OK(driver.cuMipmappedArrayCreate(&mipmapped, &deep, 2));
    ADD(CUmipmappedArray, mipmapped);
    if (driver.cuTexRefCreate && driver.cuTexRefCreate(&texture) == CUDA_SUCCESS) {
        ADD(CUtexref, texture);
    }
    OK(driver.cuMemPoolCreate(&pool, &pool_property));
    ADD(CUmemoryPool, pool);
    OK(driver.cuMemCreate(&block, 2 * MIB, &property, 0));
    ADD(CUmemGenericAllocationHandle, block);
}

static void build_work(void) {
    CUevent event;
    CUstream stream;
    CUgraph graph;
    CUgraphNode node[2];
    CUgraphExec exec;

    for (int i = 0; i < 2; i++) {
        OK(driver.cuEventCreate(&event, 0));
        OK(driver.cuStreamCreate(&stream, 0));
        OK(driver.cuEventRecord(event, stream));
        ADD(CUevent, event);
        ADD(CUstream, stream);
        ADD(CUstream, i + 1);
    }
    OK(driver.cuGraphCreate(&graph, 0));
    ADD(CUgraph, graph);
    const CUDA_MEMSET_NODE_PARAMS fill = {world.memory[0], 0, 7, 1, 16, 1};
    OK(driver.cuGraphAddEmptyNode(&node[0], graph, NULL, 0));
    OK(driver.cuGraphAddMemsetNode(&node[1], graph, node, 1, &fill, world.context));
    ADD(CUgraphNode, node[0]);
    ADD(CUgraphNode, node[1]);
    OK(driver.cuGraphInstantiateWithFlags(&exec, graph, 0));
    ADD(CUgraphExec, exec);
}

static void build(void) {
    memset(&world, 0, sizeof world);
    OK(driver.cuCtxCreate_v2(&world.context, 0, 0));
    ADD(CUcontext, world.context);
    build_code();
    build_memory();
    build_work();
}

/* What the call itself has ended answers with an error, which is right. */
static void unbuild(const char *name) {
    CUgraph captured;

    /* A stream that has ended must not be named again. */
    for (unsigned i = 0; !strstr(name, "StreamDestroy") && i < world.count[REMOTE_KIND_CUstream];
         i++) {
        driver.cuStreamEndCapture((CUstream)world.handles[REMOTE_KIND_CUstream][i], &captured);
    }
#define EACH(kind, function)                                                                       \
    for (unsigned i = 0; i < world.count[REMOTE_KIND_##kind]; i++) {                               \
        driver.function((kind)world.handles[REMOTE_KIND_##kind][i]);                               \
    }
    EACH(CUgraphExec, cuGraphExecDestroy)
    EACH(CUgraph, cuGraphDestroy)
    EACH(CUlibrary, cuLibraryUnload)
    EACH(CUmemGenericAllocationHandle, cuMemRelease)
    EACH(CUmemoryPool, cuMemPoolDestroy)
    EACH(CUcontext, cuCtxDestroy_v2)
#undef EACH
    driver.cuDevicePrimaryCtxReset_v2(0);
    direct.set_current(NULL);
}

static uint64_t draw_handle(enum remote_kind kind, uint64_t drawn) {
    unsigned count = world.count[kind];

    return count && drawn % 8 ? world.handles[kind][(drawn >> 3) % count] : 0;
}

static uint64_t draw_value(uint64_t drawn) {
    uint64_t rest = drawn >> 3;

    switch (drawn % 8) {
    case 0:
    case 1:
        return 0;
    case 2:
    case 3:
        return rest % 6;
    case 4:
        return UINT64_C(1) << rest % 20;
    case 5:
        return rest % 64;
    case 6:
        return rest % 4096;
    default:
        return rest % 65536;
    }
}

static uint64_t draw_address(uint64_t drawn) {
    uint64_t rest = drawn >> 3;

    switch (drawn % 8) {
    case 0:
        return 0;
    case 1:
        return rest;
    case 2:
        return world.memory[0] + 4 * (rest % 64);
    default:
        return world.memory[rest % 2];
    }
}

static const char *draw_text(uint64_t drawn) {
    static const char *const names[] = {"table", "divvy_fill", "none", "0000:11:00.0"};

    return drawn % 3 ? names[(drawn >> 2) % 4] : NULL;
}

/* Which one it is of what the call was made beside, or that it is another. */
static uint64_t shape(enum remote_kind kind, uint64_t handle) {
    for (unsigned i = 0; i < world.count[kind]; i++) {
        if (world.handles[kind][i] == handle) {
            return i + 1;
        }
    }
    return handle ? 100 : 0;
}

static const struct exercise_world simulated = {draw_handle, draw_value, draw_address,
                                                shape,       draw_text,  ptx};

static bool is_left_out(const char *name) {
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        if (strncmp(name, left_out[i].name, strlen(left_out[i].name)) == 0) {
            return true;
        }
    }
    return false;
}

#define MOST_DRAWS 256

/* What the draws of one call gave. */
struct outcome {
    uint64_t digest;
    int32_t result;
    bool failed;
    bool done;
};

/* A process of its own, so that nothing that an earlier call left counts. Returns how it ended. */
static int run(const struct exercise_entry *entry, uint64_t draws, bool remote,
               struct outcome *outcomes) {
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        OK(direct.init(0));
        for (uint64_t seed = 0; seed < draws; seed++) {
            build();
            struct exercise e = exercise_run(entry, seed, remote);
            unbuild(entry->name);
            outcomes[seed] = (struct outcome){e.digest, e.result, e.failed, true};
        }
        _exit(0);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    return status;
}

/* Returns how many draws differ. */
static unsigned long compare(const struct exercise_entry *entry, uint64_t draws,
                             struct outcome *one, struct outcome *other, bool *succeeded) {
    unsigned long differ = 0;

    memset(one, 0, draws * sizeof *one);
    memset(other, 0, draws * sizeof *other);
    int direct_end = run(entry, draws, false, one);
    int remote_end = run(entry, draws, true, other);
    if (direct_end || remote_end) {
        fprintf(stderr, "%s: the driver ended the process directly with 0x%x, remotely with 0x%x\n",
                entry->name, (unsigned)direct_end, (unsigned)remote_end);
    }
    for (uint64_t i = 0; i < draws; i++) {
        if (one[i].digest != other[i].digest || other[i].failed || one[i].done != other[i].done ||
            direct_end != remote_end) {
            fprintf(stderr, "%s, draw %llu: direct %d, remote %d%s\n", entry->name,
                    (unsigned long long)i, one[i].result, other[i].result,
                    other[i].failed ? ", memory changed" : "");
            differ++;
        }
        *succeeded = *succeeded || (one[i].done && one[i].result == 0);
    }
    return differ;
}

static void load(void) {
    sim_machine machine;

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    library = dlopen(SIMGPU_FOLDER "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    remote_cuda_driver_find(&driver, find);
    found(&direct.init, "cuInit");
    found(&direct.set_current, "cuCtxSetCurrent");
    found(&direct.library_load, "cuLibraryLoadData");
    found(&direct.link_create, "cuLinkCreate_v2");
    loopback_start(&driver, &nvml_mock);
    loopback_strict = true;
    exercise_world = &simulated;
}

int main(void) {
    unsigned long faults = 0, calls = 0, successes = 0;
    const char *given = getenv("DRAWS"), *only = getenv("ONLY");
    uint64_t draws = given ? strtoull(given, NULL, 10) : 12;
    struct outcome *outcomes = mmap(NULL, 2 * MOST_DRAWS * sizeof *outcomes, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(outcomes != MAP_FAILED && draws <= MOST_DRAWS);
    load();
    for (const struct exercise_entry *entry = cuda_exercises; entry->name; entry++) {
        bool succeeded = false;

        if (is_left_out(entry->name) || (only && strcmp(only, entry->name))) {
            continue;
        }
        faults += compare(entry, draws, outcomes, outcomes + MOST_DRAWS, &succeeded);
        calls++;
        successes += succeeded;
        if (!succeeded) {
            fprintf(stderr, "%s: no draw with success\n", entry->name);
        }
    }
    fprintf(stderr, "%lu calls, %lu with success, %lu differences\n", calls, successes, faults);
    CHECK_EQUAL(faults, 0);
    return 0;
}
