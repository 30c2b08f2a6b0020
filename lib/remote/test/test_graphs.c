/* Random graphs and captures, directly and through client and worker: everything that is seen is the same. SEEDS=n runs so
 * many sequences, SEED=n begins with that one. */
#include "remote/test/script.h"
#include "test/check.h"

#include <string.h>
#include <unistd.h>

#define STEPS 150u

struct job {
    uint64_t first, count;
    char file[2][64];
    bool remote;
};

static void play(void *of) {
    const struct job *job = of;
    static struct script script;
    FILE *out = fopen(job->file[job->remote], "w");

    CHECK(out);
    setvbuf(out, NULL, _IOLBF, 0);
    OK(cu.cuInit(0));
    for (uint64_t seed = job->first; seed < job->first + job->count; seed++) {
        script_begin(&script, seed, out);
        fprintf(out, "sequence %llu\n", (unsigned long long)seed);
        for (unsigned i = 0; i < STEPS; i++) {
            fprintf(out, "%u ", i);
            script_step(&script);
        }
        script_end(&script);
    }
    fclose(out);
}

/* How many lines are the same, until one differs. */
static unsigned long compare(const struct job *job) {
    static char lines[2][4096];
    FILE *files[2] = {fopen(job->file[0], "r"), fopen(job->file[1], "r")};
    unsigned long same = 0;

    CHECK(files[0] && files[1]);
    for (;; same++) {
        char *got[2] = {fgets(lines[0], sizeof lines[0], files[0]),
                        fgets(lines[1], sizeof lines[1], files[1])};
        if (!got[0] && !got[1]) {
            break;
        }
        if (!got[0] || !got[1] || strcmp(got[0], got[1]) != 0) {
            fprintf(stderr, "line %lu\ndirect: %sremote: %s", same + 1, got[0] ? got[0] : "end\n",
                    got[1] ? got[1] : "end\n");
            exit(1);
        }
    }
    fclose(files[0]);
    fclose(files[1]);
    return same;
}

/* Drivers give the addresses of ended graphs to others, and to other allocations. */
static void use_again(void *unused) {
    CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                                    .bytesize = 50000};
    CUcontext context;
    CUstream stream;

    (void)unused;
    OK(cu.cuInit(0));
    OK(cu.cuCtxCreate_v2(&context, 0, 0));
    OK(cu.cuStreamCreate(&stream, 1));
    for (unsigned i = 0; i < 100; i++) {
        CUdeviceptr captured, plain;
        CUgraphNode node, free_node;
        CUgraph graph;
        CUgraphExec exec;

        OK(cu.cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)0));
        OK(cu.cuMemAllocAsync(&captured, 100000, stream));
        OK(cu.cuMemsetD32Async(captured, i, 16, stream));
        OK(cu.cuMemFreeAsync(captured, stream));
        OK(cu.cuStreamEndCapture(stream, &graph));
        OK(cu.cuGraphAddMemAllocNode(&node, graph, NULL, 0, &p));
        OK(cu.cuGraphAddMemFreeNode(&free_node, graph, &node, 1, p.dptr));
        OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cu.cuGraphLaunch(exec, stream));
        OK(cu.cuStreamSynchronize(stream));
        OK(cu.cuGraphExecDestroy(exec));
        OK(cu.cuGraphDestroy(graph));
        OK(cu.cuMemAlloc_v2(&plain, 100000));
        OK(cu.cuMemFree_v2(plain));
    }
}

int main(void) {
    const char *seeds = getenv("SEEDS"), *seed = getenv("SEED");
    struct job job = {.first = seed ? strtoull(seed, NULL, 10) : 1,
                      .count = seeds ? strtoull(seeds, NULL, 10) : 60};

    whole_start();
    for (unsigned i = 0; i < 2; i++) {
        snprintf(job.file[i], sizeof job.file[i], "/tmp/divvy-graphs-%d-%u", (int)getpid(), i);
    }
    /* Otherwise errors of calls that do not wait come late. */
    setenv("DIVVY_REMOTE", "strict", 1);
    CHECK_EQUAL(whole_run(true, use_again, NULL), 0);
    CHECK_EQUAL(whole_run(false, play, &job), 0);
    job.remote = true;
    int ended = whole_run(true, play, &job);
    printf("%lu lines are the same\n", compare(&job));
    CHECK_EQUAL(ended, 0);
    for (unsigned i = 0; i < 2; i++) {
        remove(job.file[i]);
    }
    return 0;
}
