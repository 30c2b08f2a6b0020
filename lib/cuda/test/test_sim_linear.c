/* Linear, pitched and managed memory on simgpu: the account is the truth after every step. */
#include "cuda/test/sim.h"

#define LIMIT (512 * MIB)
#define LIVE 64
#define STEPS 300

static struct setting s;

static uint32_t random_below(uint32_t bound) {
    static uint64_t state = 42;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % bound);
}

/* Small, around the sizes at which the driver's ways change, and large. */
static size_t some_size(void) {
    static const size_t edges[] = {1,           512,         4096,    1 * MIB - 1, 1 * MIB,
                                   1 * MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB};
    return random_below(2) ? 1 + random_below(3 * MIB) : edges[random_below(10)];
}

static void random_steps(void) {
    CUdeviceptr live[LIVE] = {0};
    for (int step = 0; step < STEPS; step++) {
        CUdeviceptr *p = &live[random_below(LIVE)];
        size_t pitch;
        if (*p != 0) {
            CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(*p), CUDA_SUCCESS);
            *p = 0;
        } else if (random_below(4) == 0) {
            CHECK_EQUAL(CUDA(&s, cuMemAllocPitch_v2)(p, &pitch, 1 + random_below(3000),
                                                     1 + random_below(1000), 4),
                        CUDA_SUCCESS);
        } else {
            CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(p, some_size()), CUDA_SUCCESS);
        }
        if (step % 10 == 0) {
            CHECK_TRUE_ACCOUNT(&s);
        }
    }
    for (int i = 0; i < LIVE; i++) {
        CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(live[i]), CUDA_SUCCESS);
    }
    CHECK_TRUE_ACCOUNT(&s);
}

static void limit_is_reached_and_not_passed(void) {
    static CUdeviceptr live[LIMIT / (2 * MIB)];
    unsigned count = 0;
    size_t available, total;
    while (CUDA(&s, cuMemAlloc_v2)(&live[count], 2 * MIB) == CUDA_SUCCESS) {
        count++;
    }
    CHECK_EQUAL(setting_used(&s), LIMIT);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(CUDA(&s, cuMemGetInfo_v2)(&available, &total), CUDA_SUCCESS);
    CHECK_EQUAL(available, 0);
    CHECK_EQUAL(total, LIMIT);
    while (count > 0) {
        CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(live[--count]), CUDA_SUCCESS);
    }
    CHECK_EQUAL(sim_peak(&s, 0), LIMIT);
}

/* Managed memory counts by its range, whether it is on the GPU or not. */
static void managed_counts_by_range(void) {
    CUdeviceptr address;
    unsigned managed = 0;
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuMemAllocManaged)(&address, LIMIT, CU_MEM_ATTACH_GLOBAL),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuMemAllocManaged)(&address, 10 * MIB, CU_MEM_ATTACH_GLOBAL),
                CUDA_SUCCESS);
    CHECK(setting_used(&s) >= before + 10 * MIB);
    CHECK_EQUAL(CUDA(&s, cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address),
                CUDA_SUCCESS);
    CHECK_EQUAL(managed, 1);
    CHECK(sim_used(&s, 0) <= setting_used(&s));
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(address), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
}

static void context_takes_all_along(CUcontext context) {
    CUdeviceptr address;
    for (int i = 0; i < 20; i++) {
        CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, some_size()), CUDA_SUCCESS);
    }
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), 0);
    CHECK_EQUAL(sim_used(&s, 0), 0);
}

static void primary_context_comes_and_goes(void) {
    CUcontext context, again;
    CUdeviceptr address;
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&again, 0), CUDA_SUCCESS);
    CHECK(context == again);
    CHECK_EQUAL(setting_used(&s), SIM_CONTEXT);
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 3 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxReset_v2)(0), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(setting_used(&s), 0);
}

int main(void) {
    sim_make(&s, 1, LIMIT);
    CHECK_EQUAL(setting_used(&s), 0);
    CUcontext context = setting_context(&s);
    CHECK_EQUAL(setting_overhead(&s), SIM_CONTEXT);
    CHECK_TRUE_ACCOUNT(&s);
    random_steps();
    limit_is_reached_and_not_passed();
    managed_counts_by_range();
    context_takes_all_along(context);
    primary_context_comes_and_goes();
    return 0;
}
