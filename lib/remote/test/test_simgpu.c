/* Generated calls to the simulated driver, directly and through client and worker: results and all that is written are
 * equal. Each call is made beside a context with everything that has handles, once for each draw. */
#include "remote/generated/cuda_decode.h"
#include "remote/test/pair.h"
#include "simgpu/machine/test/setting.h"

#include <string.h>

#define CAPTURE_RELAXED 2
#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .global .align 8 .u64 table[2];\n"
                          ".visible .entry divvy_busy_ns(.param .u64 a) { ret; }\n"
                          ".visible .entry divvy_fill(.param .u64 a) { ret; }\n"
                          ".visible .entry none() { ret; }\n";

/* The time between two events is no two times the same, and a stream that waits for a value never ends. */
static const char *const left_out[] = {"cuEventElapsedTime*", "cuStreamWaitValue*",
                                       "cuStreamBatchMemOp*", NULL};

static struct remote_cuda_driver driver;
static struct {
    __typeof__(cuInit) *init;
    __typeof__(cuCtxSetCurrent) *set_current;
    __typeof__(cuLibraryLoadData) *library_load;
    __typeof__(cuLinkCreate_v2) *link_create;
} direct;
/* What the calls are made beside. */
static struct {
    uint64_t handles[REMOTE_KINDS][8];
    unsigned count[REMOTE_KINDS];
    CUdeviceptr memory[2], reserved;
    CUcontext context;
} world;

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
    OK(driver.cuLibraryGetKernel(&kernel, loaded, "divvy_fill"));
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
    CUtexObject seen;
    CUmipmappedArray mipmapped;
    CUtexref reference;
    CUmemoryPool pool;
    CUmemGenericAllocationHandle block;

    OK(driver.cuMemAlloc_v2(&world.memory[0], 65536));
    OK(driver.cuMemAlloc_v2(&world.memory[1], 65536));
    OK(driver.cuArrayCreate_v2(&array, &flat));
    ADD(CUarray, array);
    unsigned char resource[144] = {0}, texture[104] = {0};
    memcpy(resource + 8, &array, sizeof array);
    OK(driver.cuTexObjectCreate(&seen, (const void *)resource, (const void *)texture, NULL));
    ADD(CUtexObject, seen);
    OK(driver.cuMipmappedArrayCreate(&mipmapped, &deep, 2));
    ADD(CUmipmappedArray, mipmapped);
    if (driver.cuTexRefCreate && driver.cuTexRefCreate(&reference) == CUDA_SUCCESS) {
        ADD(CUtexref, reference);
    }
    OK(driver.cuMemPoolCreate(&pool, &pool_property));
    ADD(CUmemoryPool, pool);
    OK(driver.cuMemAddressReserve(&world.reserved, 2 * MIB, 0, 0, 0));
    OK(driver.cuMemCreate(&block, 2 * MIB, &property, 0));
    ADD(CUmemGenericAllocationHandle, block);
}

static void build_work(void) {
    CUevent event;
    CUstream stream;
    CUgraph graph, child;
    CUgraphNode node[5];
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
    OK(driver.cuGraphAddEventRecordNode(&node[2], graph, node, 1, event));
    OK(driver.cuGraphAddEventWaitNode(&node[3], graph, node + 2, 1, event));
    OK(driver.cuGraphCreate(&child, 0));
    OK(driver.cuGraphAddChildGraphNode(&node[4], graph, NULL, 0, child));
    ADD(CUgraph, child);
    for (size_t i = 0; i < sizeof node / sizeof *node; i++) {
        ADD(CUgraphNode, node[i]);
    }
    OK(driver.cuGraphInstantiateWithFlags(&exec, graph, 0));
    ADD(CUgraphExec, exec);
}

static void build(const char *name) {
    memset(&world, 0, sizeof world);
    OK(driver.cuCtxCreate_v2(&world.context, 0, 0));
    ADD(CUcontext, world.context);
    build_code();
    build_memory();
    build_work();
    if (strstr(name, "Capture")) {
        OK(driver.cuStreamBeginCapture_v2((CUstream)world.handles[REMOTE_KIND_CUstream][0],
                                          (CUstreamCaptureMode)CAPTURE_RELAXED));
    }
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
    driver.cuMemAddressFree(world.reserved, 2 * MIB);
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
    static const unsigned bounds[8] = {1, 1, 6, 6, PAIR_POWER, 64, 4096, 65536};

    return pair_draw_value(drawn, bounds);
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
    case 3:
        return world.reserved;
    default:
        return world.memory[rest % 2];
    }
}

static const char *draw_text(uint64_t drawn) {
    static const char *const names[] = {"table", "divvy_fill", "none", "0000:11:00.0"};

    return drawn % 3 ? names[(drawn >> 2) % 4] : NULL;
}

/* Structures as programs fill them. Those that lib/abi leaves incomplete are told by their 32-bit words. */
static bool form(const char *name, void *structure) {
    const CUDA_ARRAY_DESCRIPTOR flat = {64, 32, CU_AD_FORMAT_UNSIGNED_INT8, 4};
    const CUDA_ARRAY3D_DESCRIPTOR deep = {64, 32, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    const CUDA_MEMSET_NODE_PARAMS fill = {world.memory[1], 0, 7, 1, 16, 1};
    const CUmemAllocationProp allocation = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemPoolProps pool = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    const CUmemAccessDesc access = {location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUDA_GRAPH_INSTANTIATE_PARAMS instantiation = {0};
    const struct {
        uint32_t type;
        uint32_t zero;
        uint64_t address;
        uint32_t format, channels;
        uint64_t width, height, pitch;
        uint32_t reserved[24];
    } resource = {2, 0, world.memory[0], CU_AD_FORMAT_UNSIGNED_INT8, 4, 64, 16, 256, {0}};
    const uint32_t texture[26] = {0}, view[28] = {0};
    const struct {
        const char *name;
        const void *form;
        size_t size;
    } forms[] = {
        {"CUDA_ARRAY_DESCRIPTOR", &flat, sizeof flat},
        {"CUDA_ARRAY3D_DESCRIPTOR", &deep, sizeof deep},
        {"CUDA_GRAPH_INSTANTIATE_PARAMS", &instantiation, sizeof instantiation},
        {"CUDA_MEMSET_NODE_PARAMS", &fill, sizeof fill},
        {"CUDA_RESOURCE_DESC", &resource, sizeof resource},
        {"CUDA_RESOURCE_VIEW_DESC", view, sizeof view},
        {"CUDA_TEXTURE_DESC", texture, sizeof texture},
        {"CUmemAccessDesc", &access, sizeof access},
        {"CUmemAllocationProp", &allocation, sizeof allocation},
        {"CUmemLocation", &location, sizeof location},
        {"CUmemPoolProps", &pool, sizeof pool},
    };

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(name, forms[i].name) == 0) {
            memcpy(structure, forms[i].form, forms[i].size);
            return true;
        }
    }
    return false;
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

static const struct exercise_world simulated = {draw_handle, draw_value, draw_address, shape,
                                                draw_text,   form,       ptx};

static void start(void) {
    OK(direct.init(0));
}

int main(void) {
    const struct pair pair = {cuda_exercises, &simulated, start, build, unbuild, left_out};
    sim_machine machine;

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    pair_load(SIMGPU_FOLDER "libcuda.so.1");
    remote_cuda_driver_find(&driver, pair_find);
    pair_found(&direct.init, "cuInit");
    pair_found(&direct.set_current, "cuCtxSetCurrent");
    pair_found(&direct.library_load, "cuLibraryLoadData");
    pair_found(&direct.link_create, "cuLinkCreate_v2");
    loopback_start(&driver, &nvml_mock);
    pair_run(&pair, 40, 255);
    return 0;
}
