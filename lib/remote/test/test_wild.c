/* A program's mistakes are its own: whatever it gives a function of the driver, the call answers, and those after it too. Each
 * function that is served is given drawn numbers, handles, addresses and memory. What the simulated driver does not survive
 * either, or the program itself, does not count. Copies with a shape also answer what the driver does, where all calls wait. And
 * where the program knows that a kernel has made a fault, no call succeeds that the driver answers with that fault. DRAWS says how many of each function; SEED repeats a run, from draw
 * FIRST on; ONLY draws one function alone. */
#define _GNU_SOURCE
#include "remote/test/whole.h"
#include "remote/test/wild.h"
#include "test/check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_FUNCTIONS 1024u
#define MOST_PARAMETERS 16u
#define PROGRAM 64u              /* calls of one program */
#define MARGIN ((size_t)1 << 20) /* what goes beyond an area hits nothing of the test's */

typedef number any_function(number, number, number, number, number, number, number, number, number,
                            number, number, number, number, number, number, number);

static struct function {
    char *name;
    unsigned count;
    char *types[MOST_PARAMETERS];
} functions[MOST_FUNCTIONS];
static unsigned function_count;

static struct run {
    uint64_t first; /* draw of the program */
    uint64_t next;  /* the draw to go on with */
    uint64_t end;
    uint64_t seed;
    unsigned ended;                     /* whether the link had ended after draw `next - 1` */
    enum { ALL, SHAPES, FAULTED } what; /* FAULTED: all, after a kernel has made a fault */
    int32_t *results;
    unsigned long failing;
} *now;

static bool is_remote;

static void read_functions(void) {
    FILE *file = fopen(WILD_FUNCTIONS, "r");
    char line[512], *rest;

    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        struct function *f = &functions[function_count++];

        CHECK(function_count < MOST_FUNCTIONS);
        f->name = strdup(strtok_r(line, "|\n", &rest));
        for (char *type; (type = strtok_r(NULL, ",\n", &rest));) {
            CHECK(f->count < MOST_PARAMETERS);
            f->types[f->count++] = strdup(type);
        }
    }
    fclose(file);
    CHECK(function_count > 400);
}

static void *find(const char *name) {
    void *library = dlopen(is_remote ? REMOTE_BUILD "/lib/remote/libcuda.so.1"
                                     : REMOTE_BUILD "/lib/simgpu/libcuda.so.1",
                           RTLD_NOW | RTLD_LOCAL);

    return library ? dlsym(library, name) : NULL;
}

/* A program with something of each kind. */
static void begin_program(void) {
    static const char ptx[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .global .align 8 .u64 table[2];\n.visible .entry none() { ret; }\n"
        ".visible .entry divvy_fault() { ret; }\n"
        ".visible .entry some(.param .u64 a, .param .u32 b) { ret; }\n";
    const CUDA_ARRAY_DESCRIPTOR flat = {64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 4};
    const CUmemPoolProps pool = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUresult (*array_create)(CUarray *, const CUDA_ARRAY_DESCRIPTOR *);
    void *at = find("cuArrayCreate_v2");

    memcpy(&array_create, &at, sizeof at);
    OK(cu.cuInit(0));
    for (unsigned i = 0; i < 2; i++) {
        OK(cu.cuCtxCreate_v2((CUcontext *)&wild_world.contexts[1 - i], 0, 0));
    }
    for (unsigned i = 0; i < 2; i++) {
        OK(cu.cuStreamCreate((CUstream *)&wild_world.streams[i], i));
        OK(cu.cuEventCreate((CUevent *)&wild_world.events[i], 0));
        OK(cu.cuGraphCreate((CUgraph *)&wild_world.graphs[i], 0));
        OK(cu.cuGraphAddEmptyNode((CUgraphNode *)&wild_world.nodes[i],
                                  (CUgraph)wild_world.graphs[i], NULL, 0));
        OK(array_create((CUarray *)&wild_world.arrays[i], &flat));
        OK(cu.cuMemAlloc_v2((CUdeviceptr *)&wild_world.memory[i], 65536));
    }
    wild_world.streams[2] = (number)(uintptr_t)CU_STREAM_PER_THREAD;
    OK(cu.cuGraphInstantiateWithFlags((CUgraphExec *)&wild_world.execs[0],
                                      (CUgraph)wild_world.graphs[0], 0));
    OK(cu.cuModuleLoadData((CUmodule *)&wild_world.modules[0], ptx));
    OK(cu.cuModuleGetFunction((CUfunction *)&wild_world.functions[0],
                              (CUmodule)wild_world.modules[0], "none"));
    OK(cu.cuModuleGetFunction((CUfunction *)&wild_world.functions[1],
                              (CUmodule)wild_world.modules[0], "some"));
    OK(cu.cuLibraryLoadData((CUlibrary *)&wild_world.libraries[0], ptx, NULL, NULL, 0, NULL, NULL,
                            0));
    OK(cu.cuLibraryGetKernel((CUkernel *)&wild_world.kernels[0], (CUlibrary)wild_world.libraries[0],
                             "some"));
    OK(cu.cuMemPoolCreate((CUmemoryPool *)&wild_world.pools[0], &pool));
    OK(cu.cuMemHostAlloc((void **)&wild_world.host, 65536, 0));
}

static bool is_shaped(const struct function *f) {
    return strncmp(f->types[0], "const CUDA_MEMCPY", strlen("const CUDA_MEMCPY")) == 0;
}

/* The same draw is the same call, whoever makes it. */
static void call(uint64_t at) {
    const struct function *f = &functions[at % function_count];
    const char *only = getenv("ONLY");
    number given[MOST_PARAMETERS] = {0};
    any_function *function;
    void *found = find(f->name);

    if (!found || (only && strcmp(only, f->name) != 0) || (now->what == SHAPES && !is_shaped(f))) {
        return;
    }
    memcpy(&function, &found, sizeof found);
    wild_seed(now->seed + at * UINT64_C(0x632be59bd9b4e019));
    wild_fill();
    for (unsigned i = 0; i < f->count; i++) {
        given[i] = wild_parameter(f->types[i]);
    }
    number result = function(given[0], given[1], given[2], given[3], given[4], given[5], given[6],
                             given[7], given[8], given[9], given[10], given[11], given[12],
                             given[13], given[14], given[15]);
    now->failing += (uint32_t)result != 0;
    if (now->what != ALL) {
        now->results[at] = (int32_t)result;
    }
}

static void fault(void) {
    CUfunction function;

    OK(cu.cuModuleGetFunction(&function, (CUmodule)wild_world.modules[0], "divvy_fault"));
    OK(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CHECK_EQUAL(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void play(void *argument) {
    size_t left, total;

    wild_areas = argument;
    alarm(10);
    begin_program();
    if (now->what == FAULTED) {
        fault();
    }
    for (unsigned i = 0; i < PROGRAM && now->next < now->end; i++) {
        cu.cuCtxSetCurrent((CUcontext)wild_world.contexts[0]);
        call(now->next++);
        if (cu.cuMemGetInfo_v2(&left, &total) == CUDA_ERROR_DEVICE_UNAVAILABLE) {
            now->ended = 1;
            return;
        }
    }
}

static void play_remote(void *argument) {
    is_remote = true;
    play(argument);
}

/* Whether the simulated driver itself survives what has just ended the link. */
static bool survives(unsigned char *memory) {
    struct run before = *now;

    now->next = before.first;
    now->end = before.next;
    int status = whole_run(false, play, memory);
    *now = before;
    return status == 0;
}

#define NO_RESULT (-1)

/* The results of a program's copies, up to the end or to the one over which it falls. */
static uint64_t results(bool remote, unsigned char *memory, uint64_t first, int32_t *into) {
    for (uint64_t i = first; i < now->end && i < first + PROGRAM; i++) {
        into[i] = NO_RESULT;
    }
    now->next = first;
    now->results = into;
    whole_run(remote, remote ? play_remote : play, memory);
    return now->next;
}

/* Of several mistakes in one call either may be told. */
static bool differ(int32_t direct, int32_t remote) {
    return now->what == SHAPES ? !direct != !remote
                               : direct == CUDA_ERROR_ILLEGAL_ADDRESS && remote == CUDA_SUCCESS;
}

static unsigned long differences(unsigned char *memory, uint64_t end, bool faulted) {
    int32_t *direct = whole_share(end * sizeof *direct),
            *remote = whole_share(end * sizeof *remote);
    unsigned long count = 0, compared = 0, failed = 0;

    now->what = faulted ? FAULTED : SHAPES;
    now->end = end;
    setenv("DIVVY_REMOTE", "strict", 1);
    for (uint64_t at = 0; at < end;) {
        uint64_t first = at, one = results(false, memory, at, direct);
        uint64_t other = results(true, memory, at, remote);

        for (at = one < other ? one : other; first < at; first++) {
            bool both = direct[first] != NO_RESULT && remote[first] != NO_RESULT;

            compared += both;
            failed += both && direct[first] != 0;
            if (both && differ(direct[first], remote[first]) && ++count <= 20) {
                fprintf(stderr, "%s: direct %d, remote %d, draw %llu\n",
                        functions[first % function_count].name, direct[first], remote[first],
                        (unsigned long long)first);
            }
        }
    }
    printf("%lu %s, %lu of them failing, %lu differences\n", compared,
           faulted ? "calls after a fault" : "copies with a shape", failed, count);
    return count;
}

int main(void) {
    const char *draws = getenv("DRAWS"), *seed = getenv("SEED"), *first = getenv("FIRST");
    unsigned long faults = 0, crashed = 0, programs = 0;

    read_functions();
    whole_start();
    unsigned char *memory = whole_share((size_t)WILD_AREAS * WILD_AREA + 2 * MARGIN);
    memory += MARGIN;
    now = whole_share(sizeof *now);
    now->seed = seed ? strtoull(seed, NULL, 10) : 1;
    now->next = first ? strtoull(first, NULL, 10) : 0;
    now->end = function_count * (draws ? strtoull(draws, NULL, 10) : 12);
    while (now->next < now->end) {
        now->ended = 0;
        now->first = now->next;
        programs++;
        int status = whole_run(true, play_remote, memory);
        crashed += status != 0;
        CHECK(now->next > 0);
        if (now->ended && (survives(memory) ? ++faults : getenv("VERBOSE") != NULL)) {
            fprintf(stderr, "%s ended the link, draw %llu of a program from %llu on\n",
                    functions[(now->next - 1) % function_count].name,
                    (unsigned long long)now->next - 1, (unsigned long long)now->first);
        }
    }
    printf("%u functions, %llu calls, %lu failed, in %lu programs, of which %lu fell over what "
           "they gave\n",
           function_count, (unsigned long long)now->end, now->failing, programs, crashed);
    CHECK_EQUAL(faults, 0);
    CHECK_EQUAL(differences(memory, now->end, false), 0);
    CHECK_EQUAL(differences(memory, now->end, true), 0);
    return 0;
}
