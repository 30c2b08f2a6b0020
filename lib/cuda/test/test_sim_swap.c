/* Memory of a swap share: linear, pitched and managed memory is charged to what can leave the GPU,
 * to the byte, and all else to what is kept there, which is what the driver has beside managed
 * memory. */
#include "cuda/test/sim.h"

#include <signal.h>

#include "share/share.h"

#define LIMIT (512 * MIB)
#define STAYS (128 * MIB)
#define TURNING (LIMIT - STAYS)
#define LIVE 48
#define STEPS 400

/* The driver's own function. */
#define REAL(fn) (__extension__(__typeof__(&fn)) setting_real(&s, #fn))

static struct setting s;

static uint32_t random_below(uint32_t bound) {
    static uint64_t state = 42;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % bound);
}

static uint64_t turning_used(void) {
    return used_bytes(s.share, 0);
}
static uint64_t kept_used(void) {
    return used_bytes(s.share, dv_share_kept(s.share, 0));
}

/* What the simulator gives to a request of managed memory. */
static uint64_t blocks(uint64_t bytes) {
    return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static void check_account(uint64_t turning) {
    CHECK_EQUAL(turning_used(), turning);
    sim_look();
    uint64_t managed = sim_seen(&s, 0, "managed");
    CHECK_EQUAL(kept_used(), sim_seen(&s, 0, "used") - managed);
    CHECK(managed <= turning);
    CHECK_EQUAL(pending_bytes(s.share, 0), 0);
    CHECK_EQUAL(pending_bytes(s.share, 1), 0);
}

static CUdeviceptr alloc(size_t bytes) {
    CUdeviceptr address = 0;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, bytes), CUDA_SUCCESS);
    CHECK_EQUAL(address % (bytes < 2 * MIB ? 512 : 2 * MIB), 0);
    return address;
}

static void release(CUdeviceptr address) {
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(address), CUDA_SUCCESS);
}

static int attribute_of(CUdeviceptr address, CUpointer_attribute attribute) {
    int value = 0;
    CHECK_EQUAL(CUDA(&s, cuPointerGetAttribute)(&value, attribute, address), CUDA_SUCCESS);
    return value;
}

static size_t some_size(void) {
    static const size_t edges[] = {1,           512,         4096,    1 * MIB - 1, 1 * MIB,
                                   1 * MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB};
    return random_below(2) ? 1 + random_below(3 * MIB) : edges[random_below(10)];
}

/* One allocation in one of the three ways; the bytes that it must be charged. */
static uint64_t take(CUdeviceptr *p) {
    size_t bytes = some_size(), pitch = 0, height = 1 + random_below(1000);
    switch (random_below(4)) {
    case 0:
        CHECK_EQUAL(CUDA(&s, cuMemAllocPitch_v2)(p, &pitch, 1 + random_below(3000), height, 4),
                    CUDA_SUCCESS);
        bytes = pitch * height;
        break;
    case 1:
        CHECK_EQUAL(CUDA(&s, cuMemAllocManaged)(p, bytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
        CHECK_EQUAL(attribute_of(*p, CU_POINTER_ATTRIBUTE_IS_MANAGED) & 0xff, 1);
        break;
    default:
        *p = alloc(bytes);
        CHECK_EQUAL(attribute_of(*p, CU_POINTER_ATTRIBUTE_IS_MANAGED) & 0xff, 0);
    }
    if (random_below(3) == 0) { /* which brings it to the GPU */
        CHECK_EQUAL(CUDA(&s, cuMemsetD8_v2)(*p, 1, bytes), CUDA_SUCCESS);
    }
    return blocks(bytes);
}

static void random_steps(void) {
    CUdeviceptr live[LIVE] = {0};
    uint64_t charged[LIVE], sum = 0;
    for (int step = 0; step < STEPS; step++) {
        uint32_t i = random_below(LIVE);
        if (live[i] != 0) {
            release(live[i]);
            live[i] = 0;
            sum -= charged[i];
        } else {
            charged[i] = take(&live[i]);
            sum += charged[i];
        }
        CHECK_EQUAL(turning_used(), sum);
        if (step % 20 == 0) {
            check_account(sum);
        }
    }
    for (int i = 0; i < LIVE; i++) {
        release(live[i]);
    }
    check_account(0);
}

static void limit_is_reached_and_not_passed(void) {
    CUdeviceptr all = alloc(TURNING - 8 * MIB), some = alloc(8 * MIB), none = 77;
    size_t available, total, pitch;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&none, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuMemAllocManaged)(&none, 1, CU_MEM_ATTACH_GLOBAL),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuMemAllocPitch_v2)(&none, &pitch, 100, 1, 4), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuMemGetInfo_v2)(&available, &total), CUDA_SUCCESS);
    CHECK_EQUAL(available, 0);
    CHECK_EQUAL(total, LIMIT);
    release(some);
    CHECK_EQUAL(CUDA(&s, cuMemGetInfo_v2)(&available, &total), CUDA_SUCCESS);
    CHECK_EQUAL(available, 8 * MIB);
    CHECK_EQUAL(CUDA(&s, cuDeviceTotalMem_v2)(&total, 0), CUDA_SUCCESS);
    CHECK_EQUAL(total, LIMIT);
    check_account(TURNING - 8 * MIB);
    release(all);
}

/* What stays on the GPU has its own limit, which linear memory does not use up. */
static void kept_part_has_its_own_limit(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUDA_ARRAY_DESCRIPTOR plane = {
        .Width = 1024, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUmemGenericAllocationHandle memory, more;
    CUdeviceptr all = alloc(TURNING), pooled = 0, narrow = 0;
    CUdeviceptr_v1 old = 0;
    CUarray array;
    uint64_t before = kept_used();
    CHECK_EQUAL(CUDA(&s, cuArrayCreate_v2)(&array, &plane), CUDA_SUCCESS);
    CHECK_EQUAL(kept_used(), before + 64 * MIB);
    CHECK_EQUAL(CUDA(&s, cuMemAllocAsync)(&pooled, 4 * MIB, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemCreate)(&memory, 4 * MIB, &prop, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc)(&old, 2 * MIB), CUDA_SUCCESS);
    check_account(TURNING);
    CHECK_EQUAL(CUDA(&s, cuMemCreate)(&more, 64 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuMemAllocAsync)(&narrow, 64 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc)(&old, 64 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    release(all);
    CHECK_EQUAL(CUDA(&s, cuMemCreate)(&more, 64 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuArrayDestroy)(array), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemRelease)(memory), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(pooled, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    check_account(0);
}

/* The pitch is the driver's, also where nothing but the row itself has room. */
static void pitch_is_the_drivers(void) {
    static const unsigned elements[] = {4, 8, 16};
    for (unsigned i = 0; i < 60; i++) {
        size_t width = 1 + random_below(i % 2 ? 5000 : 5 * MIB), pitch, wanted;
        unsigned element = elements[i % 3];
        CUdeviceptr address, own;
        CHECK_EQUAL(REAL(cuMemAllocPitch_v2)(&own, &wanted, width, 1, element), CUDA_SUCCESS);
        CHECK_EQUAL(REAL(cuMemFree_v2)(own), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuMemAllocPitch_v2)(&address, &pitch, width, 3, element),
                    CUDA_SUCCESS);
        CHECK_EQUAL(pitch, wanted);
        CHECK_EQUAL(CUDA(&s, cuMemsetD2D8_v2)(address, pitch, 7, width, 3), CUDA_SUCCESS);
        release(address);
    }
    check_account(0);
}

static bool add_turning(const dv_process *process, void *sum) {
    *(uint64_t *)sum += process->used[0];
    return true;
}

/* What processes are charged, without what the share is charged for exports. */
static uint64_t turning_of_processes(void) {
    uint64_t sum = 0;
    dv_processes(s.share, add_turning, &sum);
    return sum;
}

/* Nothing that is converted leaves the process, and an attempt changes no charge. */
static void exports_are_refused(void) {
    CUdeviceptr address = alloc(6 * MIB);
    CUipcMemHandle handle;
    int file = -1;
    CHECK_EQUAL(CUDA(&s, cuIpcGetMemHandle)(&handle, address), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(CUDA(&s, cuMemGetHandleForAddressRange)(&file, address, 4096,
                                                        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(file, -1);
    CHECK_EQUAL(attribute_of(address, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) & 0xff, 0);
    check_account(6 * MIB);
    CHECK_EQUAL(turning_of_processes(), 6 * MIB);
    release(address);
    check_account(0);
}

/* A flag that the driver has for memory on the GPU alone is kept here. */
static void synchronous_is_remembered(void) {
    CUdeviceptr address = alloc(3 * MIB);
    unsigned on = 1;
    CHECK_EQUAL(attribute_of(address, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) & 0xff, 0);
    CHECK_EQUAL(
        CUDA(&s, cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address + MIB),
        CUDA_SUCCESS);
    CHECK_EQUAL(attribute_of(address, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) & 0xff, 1);
    release(address);
}

/* A free in a stream's order that the driver does not do for managed memory: the charge stays until
 * the stream has got there. */
static void frees_follow_their_stream(void) {
    CUdeviceptr address = alloc(TURNING), again = 0;
    CUstream stream;
    unsigned type;
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(address + 1, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(address, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(address, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(address), CUDA_ERROR_INVALID_VALUE);
    check_account(TURNING);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&again, TURNING), CUDA_SUCCESS); /* asks the stream */
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(again, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamSynchronize)(stream), CUDA_SUCCESS);
    check_account(0);
    CHECK_EQUAL(REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, again),
                CUDA_ERROR_INVALID_VALUE); /* the driver has freed it */
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(again), CUDA_ERROR_INVALID_VALUE);
    again = alloc(2 * MIB);
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(again, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    check_account(0);
}

/* Also what is freed in a stream that never gets there. */
static void context_takes_all_along(CUcontext context) {
    for (int i = 0; i < 20; i++) {
        CUdeviceptr address;
        take(&address);
    }
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(alloc(4 * MIB), NULL), CUDA_SUCCESS);
    CHECK(turning_used() > 0);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    CHECK_EQUAL(kept_used(), 0);
    check_account(0);
}

static void take_and_die(void *arg) {
    CUdeviceptr address;
    (void)arg;
    setting_context(&s);
    for (int i = 0; i < 10; i++) {
        take(&address);
    }
    CHECK_EQUAL(CUDA(&s, cuMemAllocAsync)(&address, 4 * MIB, NULL), CUDA_SUCCESS);
    CHECK(turning_used() > 0 && kept_used() > SIM_CONTEXT);
    raise(SIGKILL);
}

/* Both accounts are given back for a process that was killed. */
static void the_dead_have_nothing(void) {
    wait_killed(spawn(take_and_die, NULL));
    CHECK_EQUAL(dv_reap(s.share), 1);
    check_account(0);
    CHECK_EQUAL(kept_used(), 0);
}

int main(void) {
    sim_make_swap(&s, 1, LIMIT, STAYS);
    the_dead_have_nothing();
    CUcontext context = setting_context(&s);
    dv_usage_t kept;
    CHECK(dv_usage(s.share, 1, &kept));
    CHECK_EQUAL(kept.overhead, SIM_CONTEXT);
    check_account(0);
    random_steps();
    limit_is_reached_and_not_passed();
    kept_part_has_its_own_limit();
    pitch_is_the_drivers();
    exports_are_refused();
    synchronous_is_remembered();
    frees_follow_their_stream();
    context_takes_all_along(context);
    return 0;
}
