/* A swap share of two GPUs, of which one part is larger than the GPU: what goes to which account,
 * what NVML tells, and threads that allocate and free together. */
#define _GNU_SOURCE
#include "cuda/test/sim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "abi/generated/nvml_functions.h"
#include "share/share.h"

#define GIB ((uint64_t)1 << 30)
#define LIMIT (40 * GIB)
#define STAYS (128 * MIB)
#define THREADS 4
#define STEPS 300

/* The driver's own function. */
#define REAL(fn) (__extension__(__typeof__(&fn)) setting_real(&s, #fn))
#define OK(fn, ...) CHECK_EQUAL(CUDA(&s, fn)(__VA_ARGS__), CUDA_SUCCESS)

static struct setting s;
static CUcontext context[2];

static uint64_t turning(unsigned gpu) {
    return used_bytes(s.share, gpu);
}
static uint64_t kept(unsigned gpu) {
    return used_bytes(s.share, dv_share_kept(s.share, gpu));
}

static void begin(void) {
    uint64_t total = SIM_TOTAL;
    sim_make_swap_closed(&s, 2, LIMIT, STAYS);
    for (unsigned i = 0; i < 4; i++) {
        setting_write(&s, i, offsetof(dv_page_device, total), &total, sizeof total);
    }
    setting_open(&s);
    CHECK_EQUAL(dv_share_device_count(s.share), 2);
    CHECK_EQUAL(dv_share_limit(s.share, 0), LIMIT - STAYS);
    OK(cuInit, 0);
    for (int i = 0; i < 2; i++) {
        OK(cuCtxCreate_v2, &context[i], 0, i);
    }
}

/* More than the GPU has, and on the GPU whose context is current. */
static void accounts_are_the_gpus(void) {
    CUdeviceptr large, other;
    size_t free, total;
    int place = 77;
    OK(cuCtxSetCurrent, context[0]);
    OK(cuMemAlloc_v2, &large, 20 * GIB);
    OK(cuCtxSetCurrent, context[1]);
    OK(cuMemAlloc_v2, &other, 6 * MIB);
    CHECK_EQUAL(turning(0), 20 * GIB);
    CHECK_EQUAL(turning(1), 6 * MIB);
    CHECK_EQUAL(kept(0), SIM_CONTEXT);
    CHECK_EQUAL(kept(1), SIM_CONTEXT);
    OK(cuMemGetInfo_v2, &free, &total);
    CHECK_EQUAL(total, LIMIT);
    CHECK_EQUAL(free, LIMIT - STAYS - 6 * MIB);
    /* Whoever uses it, it stays at home. */
    CHECK_EQUAL(REAL(cuMemRangeGetAttribute)(&place, sizeof place,
                                             CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, large, GIB),
                CUDA_SUCCESS);
    CHECK_EQUAL(place, 0);
    OK(cuMemsetD8_v2, large + 19 * GIB, 5, 4 * MIB);
    OK(cuMemcpyPeer, other, context[1], large + 19 * GIB, context[0], 4 * MIB);
    unsigned char back[2] = {0};
    OK(cuMemcpyDtoH_v2, back, other + 4 * MIB - 2, 2);
    CHECK(back[0] == 5 && back[1] == 5);
    OK(cuMemFree_v2, large); /* from the other GPU's context */
    CHECK_EQUAL(turning(0), 0);
    OK(cuMemFree_v2, other);
    CHECK_EQUAL(turning(1), 0);
}

/* NVML's functions as a program finds them. */
static void *nvml;
#define NVML(fn, ...)                                                                              \
    CHECK_EQUAL((__extension__(__typeof__(&fn)) dlsym(nvml, #fn))(__VA_ARGS__), NVML_SUCCESS)

static void nvml_tells_both_parts(void) {
    nvmlMemory_t first;
    nvmlMemory_v2_t second = {.version = sizeof second | 2u << 24};
    nvmlProcessInfo_t process[4];
    nvmlDevice_t device;
    unsigned count = 4;
    CUdeviceptr address;
    OK(cuMemAlloc_v2, &address, 3 * GIB);
    nvml = dlopen(setting_path(&s, "libnvidia-ml.so.1"), RTLD_NOW | RTLD_LOCAL);
    CHECK(nvml != NULL);
    NVML(nvmlInit_v2);
    NVML(nvmlDeviceGetCount_v2, &count);
    CHECK_EQUAL(count, 2);
    NVML(nvmlDeviceGetHandleByIndex_v2, 1, &device);
    NVML(nvmlDeviceGetMemoryInfo_v2, device, &second);
    CHECK_EQUAL(second.total, LIMIT);
    CHECK_EQUAL(second.free, LIMIT - STAYS - 3 * GIB);
    CHECK_EQUAL(second.used, 3 * GIB + SIM_CONTEXT);
    CHECK_EQUAL(second.reserved, STAYS - SIM_CONTEXT);
    NVML(nvmlDeviceGetMemoryInfo, device, &first);
    CHECK_EQUAL(first.total, LIMIT);
    CHECK_EQUAL(first.free, second.free);
    CHECK_EQUAL(first.used, LIMIT - first.free);
    count = 4;
    NVML(nvmlDeviceGetComputeRunningProcesses_v3, device, &count, process);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(process[0].usedGpuMemory, 3 * GIB + SIM_CONTEXT);
    OK(cuMemFree_v2, address);
    NVML(nvmlShutdown);
}

static void *work(void *arg) {
    unsigned number = *(const unsigned *)arg;
    uint64_t state = number + 1;
    CUdeviceptr live[8] = {0};
    OK(cuCtxSetCurrent, context[number % 2]);
    for (unsigned step = 0; step < STEPS; step++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        CUdeviceptr *p = &live[state >> 33 & 7];
        size_t bytes = 1 + (state >> 36) % (3 * MIB), size = 0, pitch;
        if (*p != 0) {
            OK(cuMemFree_v2, *p);
            *p = 0;
        } else if (state >> 60 & 1) {
            OK(cuMemAllocPitch_v2, p, &pitch, 1 + bytes % 4000, 7, 8);
        } else {
            OK(cuMemAlloc_v2, p, bytes);
            OK(cuPointerGetAttribute, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, *p + bytes - 1);
            CHECK_EQUAL(size, bytes);
        }
    }
    for (int i = 0; i < 8; i++) {
        OK(cuMemFree_v2, live[i]);
    }
    return NULL;
}

static void threads_share_the_accounts(void) {
    pthread_t thread[THREADS];
    unsigned number[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        number[i] = i;
        CHECK(pthread_create(&thread[i], NULL, work, &number[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(thread[i], NULL) == 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        CHECK_EQUAL(pending_bytes(s.share, i), 0);
    }
    CHECK_EQUAL(turning(0), 0);
    CHECK_EQUAL(turning(1), 0);
}

static void *allocation;

/* The driver is not the child's, and what the parent has is not either. */
static void child(void *arg) {
    CUdeviceptr address = 0;
    int managed;
    (void)arg;
    CHECK(CUDA(&s, cuMemAlloc_v2)(&address, MIB) != CUDA_SUCCESS);
    CHECK(CUDA(&s, cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                          (CUdeviceptr)(uintptr_t)allocation) != CUDA_SUCCESS);
    CHECK(CUDA(&s, cuMemFree_v2)((CUdeviceptr)(uintptr_t)allocation) != CUDA_SUCCESS);
}

static void forks_leave_all_to_the_parent(void) {
    CUdeviceptr address;
    OK(cuMemAlloc_v2, &address, 5 * MIB);
    allocation = (void *)(uintptr_t)address;
    wait_exited(spawn(child, NULL));
    CHECK_EQUAL(turning(1), 6 * MIB);
    OK(cuMemFree_v2, address);
    CHECK_EQUAL(turning(1), 0);
}

/* One context's memory ends, the other's does not. */
static void contexts_end_alone(void) {
    CUdeviceptr address;
    for (int i = 0; i < 2; i++) {
        OK(cuCtxSetCurrent, context[i]);
        OK(cuMemAlloc_v2, &address, 4 * MIB);
        OK(cuMemAlloc_v2, &address, 100);
    }
    OK(cuCtxDestroy_v2, context[0]);
    CHECK_EQUAL(turning(0), 0);
    CHECK_EQUAL(kept(0), 0);
    CHECK_EQUAL(turning(1), 6 * MIB);
    OK(cuMemFree_v2, address);
    OK(cuCtxDestroy_v2, context[1]);
    CHECK_EQUAL(turning(1), 0);
    CHECK_EQUAL(kept(1), 0);
}

int main(void) {
    begin();
    accounts_are_the_gpus();
    nvml_tells_both_parts();
    threads_share_the_accounts();
    forks_leave_all_to_the_parent();
    contexts_end_alone();
    return 0;
}
