/* Prints what this library adds to calls: nanoseconds per allocate+free pair with 1 and with 50,000
 * live allocations, per call that is only passed on, and of cuInit. Not a test: the machine's load
 * shows. */
#define _GNU_SOURCE
#include "cuda/test/setting.h"

#include <time.h>

#define LIVE 50000
#define PAIRS 20000
#define RUNS 100

static struct setting s;
static CUdeviceptr live[LIVE];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

typedef CUresult (*alloc_fn)(CUdeviceptr *, size_t);
typedef CUresult (*free_fn)(CUdeviceptr);

static uint32_t random_below(uint32_t bound) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % bound);
}

/* The least of many short runs: what the calls cost when nothing else disturbs. */
static double pairs(alloc_fn alloc, free_fn give, unsigned count) {
    double least = 1e9;
    for (unsigned i = 0; i < count; i++) {
        CHECK_EQUAL(alloc(&live[i], 4096), CUDA_SUCCESS);
    }
    for (unsigned run = 0; run < RUNS; run++) {
        double begin = now();
        for (unsigned i = 0; i < PAIRS; i++) {
            unsigned at = random_below(count);
            give(live[at]);
            alloc(&live[at], 4096);
        }
        double each = (now() - begin) / PAIRS;
        least = each < least ? each : least;
    }
    for (unsigned i = 0; i < count; i++) {
        CHECK_EQUAL(give(live[i]), CUDA_SUCCESS);
    }
    return least;
}

/* Cost through ours less cost straight into the driver. */
static double added(unsigned count) {
    __extension__ alloc_fn real_alloc = (alloc_fn)setting_real(&s, "cuMemAlloc_v2");
    __extension__ free_fn real_free = (free_fn)setting_real(&s, "cuMemFree_v2");
    double direct = pairs(real_alloc, real_free, count);
    return pairs(CUDA(&s, cuMemAlloc_v2), CUDA(&s, cuMemFree_v2), count) - direct;
}

static double passed_on(void) {
    __extension__ CUresult (*real)(CUcontext) =
        (CUresult (*)(CUcontext))setting_real(&s, "cuCtxSetCurrent");
    CUresult (*ours)(CUcontext) = CUDA(&s, cuCtxSetCurrent);
    CUcontext context;
    CHECK_EQUAL(CUDA(&s, cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    double begin = now();
    for (int i = 0; i < 10000000; i++) {
        real(context);
    }
    double middle = now();
    for (int i = 0; i < 10000000; i++) {
        ours(context);
    }
    return ((now() - middle) - (middle - begin)) / 1e7;
}

/* Per launch, into one stream or in turn into several. */
static double launched(unsigned streams, double *direct) {
    __extension__ CUresult (*real)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, CUstream, void **, void **) =
        (__typeof__(real))setting_real(&s, "cuLaunchKernel");
    __typeof__(real) ours = CUDA(&s, cuLaunchKernel);
    CUfunction function = (CUfunction)(uintptr_t)0x1000;
    double least[2] = {1e9, 1e9};
    for (unsigned run = 0; run < RUNS; run++) {
        double begin = now();
        for (uintptr_t i = 0; i < PAIRS; i++) {
            real(function, 8, 1, 1, 128, 1, 1, 0, (CUstream)(0x2000 + i % streams), NULL, NULL);
        }
        double middle = now();
        for (uintptr_t i = 0; i < PAIRS; i++) {
            ours(function, 8, 1, 1, 128, 1, 1, 0, (CUstream)(0x2000 + i % streams), NULL, NULL);
        }
        double each[2] = {(middle - begin) / PAIRS, (now() - middle) / PAIRS};
        for (int i = 0; i < 2; i++) {
            least[i] = each[i] < least[i] ? each[i] : least[i];
        }
    }
    *direct = least[0];
    return least[1] - least[0];
}

static void limit(void) {
    dv_page_budget budget = {.flags = DV_PAGE_BUDGET_LIMITED,
                             .rate = DV_PAGE_WHOLE,
                             .base = DV_PAGE_WHOLE,
                             .stretch = DV_PAGE_WHOLE,
                             .burst = UINT64_MAX,
                             .depth = UINT64_MAX};
    tenant_grant(&s.tenant, 0, &budget);
}

int main(void) {
    double direct;
    setting_make(&s, 1, (uint64_t)8 << 30, NULL);
    double begin = now();
    setting_open(&s);
    double opened = now();
    setting_context(&s);
    double ready = now();
    printf("load %.0f us, cuInit and context %.0f us\n", (opened - begin) / 1e3,
           (ready - opened) / 1e3);
    printf("pair, 1 live: %+.1f ns\n", added(1));
    printf("pair, %d live: %+.1f ns\n", LIVE, added(LIVE));
    printf("passed on: %+.2f ns\n", passed_on());
    double free_of_limit = launched(1, &direct);
    printf("launch, no limit: %+.1f ns on %.1f\n", free_of_limit, direct);
    limit();
    printf("launch, limited, 1 stream: %+.1f ns\n", launched(1, &direct));
    printf("launch, limited, 4 streams: %+.1f ns\n", launched(4, &direct));
    return 0;
}
