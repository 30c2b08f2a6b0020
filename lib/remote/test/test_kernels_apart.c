/* The same random sequences of modules, libraries, linkers and launches with the simulated driver itself, and with the client's
 * library and a worker in a process of its own, waiting for each call or not: results, names, layouts and memory are equal. */
#define _GNU_SOURCE
#include "remote/generated/cuda_decode.h"
#include "remote/test/pair.h"
#include "remote/test/relay.h"
#include "remote/test/sequence.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define STEPS 1500u
#define MODULES 6u
#define STREAMS 3u
#define WORDS 4096u /* of each of the three areas of memory */

static struct remote_cuda_driver d;
static enum way way;
static bool relayed;  /* through a stream */
static bool late_too; /* calls whose errors come late unless all wait */
static uint64_t state;

static uint64_t next(uint64_t below) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (state >> 33) % below;
}

/* What each step answered, in memory of both processes. */
static uint64_t *notes;
static size_t noted;

static void note(uint64_t value) {
    notes[noted] = (notes[noted] ^ value) * UINT64_C(0x100000001b3);
}

static struct {
    CUmodule module;
    CUlibrary library;
    CUfunction add, fill, many;
    unsigned params; /* of `many` */
} code[MODULES];
static CUstream streams[STREAMS];
static CUdeviceptr memory;
static char text[16384];

static const char head[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry divvy_vecadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) { "
    "ret; }\n"
    ".visible .entry divvy_fill(.param .u64 a, .param .u32 b, .param .u64 c) { ret; }\n"
    ".visible .entry many(";

static unsigned draw_text(void) {
    static const char *const types[] = {".u8",  ".u16",         ".f32",
                                        ".u64", ".align 4 .b8", ".align 16 .b8"};
    unsigned count = (unsigned)next(20);
    char *to = text + sprintf(text, "%s", head);

    for (unsigned i = 0; i < count; i++) {
        unsigned type = (unsigned)next(6);

        to += sprintf(to, "%s.param %s p%u", i ? ", " : "", types[type], i);
        to += type > 3 ? sprintf(to, "[%u]", 1 + (unsigned)next(200)) : 0;
    }
    sprintf(to, ") { ret; }\n");
    return count;
}

static void end_code(unsigned i) {
    if (code[i].module) {
        note(d.cuModuleUnload(code[i].module));
    } else if (code[i].library) {
        note(d.cuLibraryUnload(code[i].library));
    }
    memset(&code[i], 0, sizeof code[i]);
}

static CUfunction kernel(unsigned i, const char *name) {
    CUfunction f = NULL;
    CUkernel k = NULL;

    if (code[i].module) {
        note(d.cuModuleGetFunction(&f, code[i].module, name));
        return f;
    }
    note(d.cuLibraryGetKernel(&k, code[i].library, name));
    if (next(2)) {
        note(d.cuKernelGetFunction(&f, k));
        return f;
    }
    return (CUfunction)k; /* as programs do it */
}

/* Code from memory, with options, by a linker or as a library, in the place of other code. */
static void load(unsigned i) {
    char log[128] = "";
    CUjit_option options[] = {(CUjit_option)5, (CUjit_option)6, CU_JIT_TARGET};
    void *values[] = {log, (void *)sizeof log, (void *)80};
    CUlinkState linker;
    void *image;
    size_t size;

    end_code(i);
    unsigned params = draw_text();
    switch (next(4)) {
    case 0:
        note(d.cuModuleLoadData(&code[i].module, text));
        break;
    case 1:
        note(d.cuModuleLoadDataEx(&code[i].module, text, 3, options, values));
        note((uint64_t)(uintptr_t)values[1]);
        break;
    case 2:
        note(d.cuLibraryLoadData(&code[i].library, text, NULL, NULL, 0, NULL, NULL, 0));
        break;
    default:
        OK(d.cuLinkCreate_v2(3, options, values, &linker));
        note(d.cuLinkAddData_v2(linker, CU_JIT_INPUT_PTX, text, strlen(text), "name", 0, NULL,
                                NULL));
        note(d.cuLinkComplete(linker, &image, &size));
        note(size);
        note(d.cuModuleLoadData(&code[i].module, image));
        note(d.cuLinkDestroy(linker));
    }
    code[i].params = params;
    code[i].add = kernel(i, "divvy_vecadd");
    code[i].fill = kernel(i, "divvy_fill");
    code[i].many = kernel(i, "many");
}

static void look(unsigned i) {
    size_t at, size, count = 0;
    const char *name = "";
    CUfunction none = NULL;
    CUmodule module = code[i].module;

    note(d.cuFuncGetParamCount(code[i].many, &count));
    note(count);
    for (size_t k = 0; k <= count; k++) {
        at = size = 0;
        note(d.cuFuncGetParamInfo(code[i].many, k, &at, &size));
        note(at * 100000 + size);
    }
    note(d.cuFuncGetName(&name, code[i].fill));
    note(strlen(name));
    if (module) {
        note(d.cuModuleGetFunction(&none, module, "none"));
    }
}

/* Parts of memory that do not lie on each other. */
static CUdeviceptr part(unsigned area, unsigned words) {
    return memory + (CUdeviceptr)4 * (area * WORDS + next(WORDS - words));
}

static void launch_known(unsigned i, CUstream stream) {
    unsigned n = 1 + (unsigned)next(500), value = 0x3f800000u + (unsigned)next(1000);
    uint64_t words = n;
    CUdeviceptr a = part(0, n), b = part(1, n), c = part(2, n);
    void *add[] = {&a, &b, &c, &n}, *fill[] = {&a, &value, &words};
    struct {
        CUdeviceptr a;
        unsigned value, zero;
        uint64_t words;
    } block = {b, value, 0, n};
    size_t size = sizeof block;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, &block,
                     CU_LAUNCH_PARAM_END};
    CUlaunchAttribute priority = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = 1};
    CUlaunchConfig config = {4, 1, 1, 128, 1, 1, 0, stream, &priority, (unsigned)next(2)};

    switch (next(4)) {
    case 0:
        note(d.cuLaunchKernel(code[i].add, 4, 1, 1, 128, 1, 1, 0, stream, add, NULL));
        break;
    case 1:
        note(d.cuLaunchKernel(code[i].fill, 4, 1, 1, 128, 1, 1, 0, stream, NULL, extra));
        break;
    case 2:
        note(d.cuLaunchKernelEx(&config, code[i].fill, fill, NULL));
        break;
    default:
        note(d.cuLaunchCooperativeKernel(code[i].add, 4, 1, 1, 128, 1, 1, 0, stream, add));
    }
}

static void launch_many(unsigned i, CUstream stream) {
    static unsigned char bytes[256];
    void *params[20];

    for (unsigned k = 0; k < 20; k++) {
        params[k] = bytes;
    }
    note(d.cuLaunchKernel(code[i].many, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

/* What the client refuses at the call, and what comes late unless every call waits. */
static void launch_wrong(unsigned i, CUstream stream) {
    size_t size = 8;
    void *nothing[20] = {NULL};
    void *wrong[] = {(void *)5, &size, CU_LAUNCH_PARAM_END};

    note(d.cuLaunchKernel(code[i].fill, 0, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    note(d.cuLaunchKernel(code[i].fill, 1, 1, 1, 1025, 1, 1, 0, stream, NULL, NULL));
    note(d.cuLaunchKernel(code[i].fill, 1, 1, 1, 1, 1, 1, 0, stream, nothing, wrong));
    note(d.cuLaunchKernel(code[i].fill, 1, 1, 1, 1, 1, 1, 0, stream, NULL, wrong));
    note(d.cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    note(d.cuLaunchKernelEx(NULL, code[i].fill, NULL, NULL));
    note(d.cuModuleLoadData(&(CUmodule){NULL}, "\x01\x02"));
    note(d.cuModuleLoad(&(CUmodule){NULL}, "/nowhere/code"));
    if (late_too) {
        note(d.cuLaunchKernel(code[i].fill, 1, 1, 1, 1, 1, 1, 1u << 30, stream, NULL, NULL));
        note(d.cuLaunchCooperativeKernel(code[i].fill, 65535, 1, 1, 1024, 1, 1, 0, stream, NULL));
    }
}

static void read_memory(void) {
    static unsigned char bytes[3 * 4 * WORDS];

    for (unsigned i = 0; i < STREAMS; i++) {
        note(d.cuStreamSynchronize(streams[i]));
    }
    OK(d.cuMemcpyDtoH_v2(bytes, memory, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++) {
        note(bytes[i]);
    }
}

static void step(void) {
    unsigned i = (unsigned)next(MODULES), stream = (unsigned)next(STREAMS);

    switch (next(12)) {
    case 0:
        load(i);
        break;
    case 1:
        look(i);
        break;
    case 2:
        read_memory();
        break;
    case 3:
        launch_many(i, streams[stream]);
        break;
    case 4:
        launch_wrong(i, streams[stream]);
        break;
    default:
        /* One stream for what really happens, or the order of streams would be seen. */
        launch_known(i, streams[0]);
    }
}

static void run(uint64_t seed) {
    CUcontext context;

    if (way == DIRECT) {
        pair_load(SIMGPU_FOLDER "libcuda.so.1");
    } else {
        apart_start(way == APART_STRICT);
    }
    if (way != DIRECT && relayed) {
        relay_start();
    }
    remote_cuda_driver_find(&d, pair_find);
    state = seed;
    OK(d.cuInit(0));
    OK(d.cuCtxCreate_v2(&context, 0, 0));
    for (unsigned i = 0; i < STREAMS; i++) {
        OK(d.cuStreamCreate(&streams[i], 1));
    }
    OK(d.cuMemAlloc_v2(&memory, 3 * 4 * WORDS));
    OK(d.cuMemsetD8_v2(memory, 0, 3 * 4 * WORDS));
    for (unsigned i = 0; i < MODULES; i++) {
        load(i);
    }
    for (noted = 0; noted < STEPS; noted++) {
        step();
    }
    read_memory();
    if (way != DIRECT && relayed) {
        relay_end();
    }
    if (way != DIRECT) {
        apart_end();
    }
}

static void run_apart(enum way by, uint64_t seed, uint64_t *to) {
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        alarm(120);
        way = by;
        notes = to;
        run(seed);
        _exit(0);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

static void compare(enum way other, uint64_t seed) {
    size_t bytes = (STEPS + 1) * sizeof(uint64_t);
    uint64_t *one =
        mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t *two = one + STEPS + 1;

    CHECK(one != MAP_FAILED);
    run_apart(DIRECT, seed, one);
    run_apart(other, seed, two);
    for (unsigned i = 0; i <= STEPS; i++) {
        if (one[i] != two[i]) {
            fprintf(stderr, "sequence %llu, step %u of way %d differs\n", (unsigned long long)seed,
                    i, other);
            exit(1);
        }
    }
    munmap(one, 2 * bytes);
}

int main(void) {
    const char *given = getenv("SEQUENCES");
    uint64_t sequences = given ? strtoull(given, NULL, 10) : 40;
    sim_machine machine;

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    for (uint64_t seed = 1; seed <= sequences; seed++) {
        compare(APART, seed);
    }
    relayed = true;
    for (uint64_t seed = 1; seed <= sequences / 4; seed++) {
        compare(APART, seed);
    }
    relayed = false;
    late_too = true;
    for (uint64_t seed = sequences; seed < 2 * sequences; seed++) {
        compare(APART_STRICT, seed);
    }
    return 0;
}
