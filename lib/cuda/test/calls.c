/* Makes one kind of calls through our library in front of the fake driver, and prints what one
 * costs, in ns of CPU time: calls launch|capped|allocate|both|lookup COUNT. The kinds are launches in a
 * share without a limit and in one with a limit on its time, allocations of 4 KiB, and allocations
 * that are freed again, and look-ups of a function that we hook. A bench compares builds by it, and counts instructions; so it uses nothing
 * that older sources do not have. Not a test. */
#define _GNU_SOURCE
#include "cuda/test/setting.h"

#include <string.h>
#include <time.h>

#define LIVE 1024

static struct setting s;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
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

static void launch(unsigned long count) {
    CUresult (*call)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, CUstream, void **, void **) = CUDA(&s, cuLaunchKernel);
    CUfunction function = (CUfunction)(uintptr_t)0x1000;
    CUstream stream = (CUstream)(uintptr_t)0x2000;
    for (unsigned long i = 0; i < count; i++) {
        call(function, 8, 1, 1, 128, 1, 1, 0, stream, NULL, NULL);
    }
}

/* The last allocations live; those before are freed. */
static void allocate(unsigned long count, bool give) {
    static CUdeviceptr live[LIVE];
    CUresult (*alloc)(CUdeviceptr *, size_t) = CUDA(&s, cuMemAlloc_v2);
    CUresult (*release)(CUdeviceptr) = CUDA(&s, cuMemFree_v2);
    for (unsigned long i = 0; i < count; i++) {
        CUdeviceptr *at = &live[i % LIVE];
        if (give && *at != 0) {
            CHECK_EQUAL(release(*at), CUDA_SUCCESS);
        }
        CHECK_EQUAL(alloc(at, 4096), CUDA_SUCCESS);
    }
}

static void look_up(unsigned long count) {
    CUresult (*call)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        CUDA(&s, cuGetProcAddress_v2);
    void *found = NULL;
    for (unsigned long i = 0; i < count; i++) {
        CHECK_EQUAL(call("cuMemAlloc", &found, 12040, 0, NULL), CUDA_SUCCESS);
    }
}

int main(int words, char **word) {
    CHECK(words == 3);
    unsigned long count = strtoul(word[2], NULL, 10);
    setting_make(&s, 1, (uint64_t)8 << 30, NULL);
    setting_open(&s);
    setting_context(&s);
    if (strcmp(word[1], "capped") == 0) {
        limit();
    }
    double begin = now();
    if (strcmp(word[1], "launch") == 0 || strcmp(word[1], "capped") == 0) {
        launch(count);
    } else if (strcmp(word[1], "lookup") == 0) {
        look_up(count);
    } else {
        allocate(count, strcmp(word[1], "both") == 0);
    }
    printf("%.3f\n", (now() - begin) / (double)count);
    return 0;
}
