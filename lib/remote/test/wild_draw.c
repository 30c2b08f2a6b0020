#include "remote/test/wild.h"

#include "abi/generated/cuda_functions.h"

#include <stdbool.h>
#include <string.h>

struct wild_world wild_world;
unsigned char *wild_areas;
static uint64_t state;

void wild_seed(uint64_t seed) {
    state = seed;
}

static uint64_t draw(uint64_t below) {
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

static number draw_wild(void) {
    switch (draw(10)) {
    case 0:
        return UINT64_MAX - draw(3);
    case 1:
        return draw(UINT64_MAX);
    case 2:
        return UINT64_C(1) << draw(64);
    case 3:
        return (UINT64_C(1) << draw(64)) - 1;
    case 4:
    case 5:
        return draw(70000);
    case 6:
        return 0;
    default:
        return draw(8);
    }
}

static number draw_handle(const char *type) {
    static const struct {
        const char *type;
        const number *list;
        size_t count;
    } kinds[] = {
#define KIND(type, list) {#type, wild_world.list, sizeof wild_world.list / sizeof *wild_world.list}
        KIND(CUcontext, contexts), KIND(CUstream, streams),     KIND(CUevent, events),
        KIND(CUgraph, graphs),     KIND(CUgraphNode, nodes),    KIND(CUgraphExec, execs),
        KIND(CUmodule, modules),   KIND(CUfunction, functions), KIND(CUlibrary, libraries),
        KIND(CUkernel, kernels),   KIND(CUarray, arrays),       KIND(CUmemoryPool, pools),
        KIND(CUdeviceptr, memory),
#undef KIND
    };
    size_t any = draw(sizeof kinds / sizeof *kinds);

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(type, kinds[i].type) == 0) {
            any = draw(16) ? i : any;
        }
    }
    return kinds[any].list[draw(kinds[any].count)];
}

static unsigned char *draw_area(void) {
    return wild_areas + WILD_AREA * draw(WILD_AREAS);
}

/* A word of memory that is read: it may be a number, a handle, or an address. */
static number draw_word(void) {
    switch (draw(8)) {
    case 0:
    case 1:
        return (number)(uintptr_t)draw_area();
    case 2:
        return wild_world.memory[draw(2)] + draw(3);
    case 3:
        return draw_handle("");
    case 4:
        return wild_world.host + draw(2) * 8;
    case 5:
        return draw_wild();
    default:
        return draw(5);
    }
}

void wild_fill(void) {
    for (size_t i = 0; i < WILD_AREAS * WILD_AREA / sizeof(number); i++) {
        number word = i % (WILD_AREA / sizeof(number)) < 64 ? draw_word() : 0;

        memcpy(wild_areas + i * sizeof word, &word, sizeof word);
    }
}

/* Beyond all that is somewhere, or little. */
static number draw_far(void) {
    switch (draw(3)) {
    case 0:
        return UINT64_C(1) << (48 + draw(16));
    case 1:
        return UINT64_MAX - draw(3);
    default:
        return draw(8);
    }
}

/* Memory of the program, or of a device, or none. */
static number draw_address(void) {
    switch (draw(6)) {
    case 0:
        return draw(2) ? draw_far() : 0;
    case 1:
        return wild_world.memory[draw(2)] + draw(3);
    case 2:
        return wild_world.host + draw(2) * 8;
    default:
        return (number)(uintptr_t)draw_area();
    }
}

/* A description of a copy: what is a kind of memory is one mostly, and what is long is so mostly in one place. */
static void shape(unsigned char *at, bool flat) {
    CUDA_MEMCPY3D_PEER deep = {.srcMemoryType = (CUmemorytype)(1 + draw(4)),
                               .dstMemoryType = (CUmemorytype)(1 + draw(4)),
                               .WidthInBytes = draw(3) ? draw(64) : draw_far(),
                               .Height = draw(3) ? draw(8) : draw_far(),
                               .Depth = draw(3) ? draw(3) : draw_far()};
    size_t *places[] = {&deep.srcXInBytes, &deep.srcY, &deep.srcZ, &deep.srcPitch, &deep.srcHeight,
                        &deep.dstXInBytes, &deep.dstY, &deep.dstZ, &deep.dstPitch, &deep.dstHeight};

    for (unsigned wild = (unsigned)draw(4); wild > 0; wild--) {
        *places[draw(sizeof places / sizeof *places)] = draw_far();
    }
    deep.srcHost = (void *)(uintptr_t)draw_address();
    deep.dstHost = (void *)(uintptr_t)draw_address();
    deep.srcDevice = draw(3) ? wild_world.memory[draw(2)] : draw_address();
    deep.dstDevice = draw(3) ? wild_world.memory[draw(2)] : draw_address();
    deep.srcArray = (CUarray)(draw(4) ? wild_world.arrays[draw(2)] : 0);
    deep.dstArray = (CUarray)(draw(4) ? wild_world.arrays[draw(2)] : 0);
    if (!flat && draw(2)) {
        deep.srcContext = deep.dstContext = (CUcontext)wild_world.contexts[0];
    }
    if (!flat) {
        memcpy(at, &deep, sizeof deep);
        return;
    }
    CUDA_MEMCPY2D two = {.srcXInBytes = deep.srcXInBytes,
                         .srcY = deep.srcY,
                         .srcMemoryType = deep.srcMemoryType,
                         .srcHost = deep.srcHost,
                         .srcDevice = deep.srcDevice,
                         .srcArray = deep.srcArray,
                         .srcPitch = deep.srcPitch,
                         .dstXInBytes = deep.dstXInBytes,
                         .dstY = deep.dstY,
                         .dstMemoryType = deep.dstMemoryType,
                         .dstHost = deep.dstHost,
                         .dstDevice = deep.dstDevice,
                         .dstArray = deep.dstArray,
                         .dstPitch = deep.dstPitch,
                         .WidthInBytes = deep.WidthInBytes,
                         .Height = deep.Height};
    memcpy(at, &two, sizeof two);
}

static number draw_pointer(const char *type) {
    unsigned char *at = draw_area();

    if (draw(10) == 0) {
        return 0;
    }
    if (strcmp(type, "const char *") == 0) {
        return (number)(uintptr_t)(draw(3) ? "some" : "");
    }
    if (strncmp(type, "const CUDA_MEMCPY", strlen("const CUDA_MEMCPY")) == 0) {
        shape(at, strstr(type, "MEMCPY2D") != NULL);
    }
    return (number)(uintptr_t)at;
}

number wild_parameter(const char *type) {
    if (strchr(type, '*')) {
        return draw_pointer(type);
    }
    /* One of several devices of one address space. */
    if (strcmp(type, "CUdevice") == 0) {
        return draw(8) ? 0 : draw_wild();
    }
    if (strncmp(type, "CU", 2) == 0 && draw(6)) {
        return draw_handle(type);
    }
    return draw_wild();
}
