/* Allocations whose addresses are taken, or that come with the error of an earlier call; variables of modules; more contexts
 * than a thread has room for; and calls of a program that has not begun, or whose link has ended. */
#include "remote/test/facts.h"
#include "remote/test/sequence.h"

static size_t room(void) {
    size_t left = 0, total;

    CHECK_EQUAL(CALL(cuMemGetInfo_v2, &left, &total), CUDA_SUCCESS);
    return left;
}

/* Each kind of allocation, with so many addresses in a row that are taken. */
static void allocate_all(unsigned taken, CUresult want) {
    CUdeviceptr address[4] = {1, 1, 1, 1};
    size_t pitch = 1;

    facts_taken = taken;
    CHECK_EQUAL(CALL(cuMemAlloc_v2, &address[0], 3 * MIB), want);
    facts_taken = taken;
    CHECK_EQUAL(CALL(cuMemAllocPitch_v2, &address[1], &pitch, 4000, 600, 4), want);
    facts_taken = taken;
    CHECK_EQUAL(CALL(cuMemAllocAsync, &address[2], 4096, NULL), want);
    facts_taken = taken;
    CHECK_EQUAL(CALL(cuMemAddressReserve, &address[3], 2 * MIB, 0, 0, 0), want);
    facts_taken = 0;
    for (unsigned i = 0; want && i < 4; i++) {
        CHECK_EQUAL(address[i], 1);
    }
    if (want == CUDA_SUCCESS) {
        CHECK_EQUAL(CALL(cuMemFree_v2, address[0]), CUDA_SUCCESS);
        CHECK_EQUAL(CALL(cuMemFree_v2, address[1]), CUDA_SUCCESS);
        CHECK_EQUAL(CALL(cuMemFreeAsync, address[2], NULL), CUDA_SUCCESS);
        CHECK_EQUAL(CALL(cuMemAddressFree, address[3], 2 * MIB), CUDA_SUCCESS);
    }
    CHECK_EQUAL(facts_reserved, 0);
    CHECK_EQUAL(CALL(cuCtxSynchronize), CUDA_SUCCESS);
}

static int32_t late;

static void spoil_late(struct remote_answer *head, unsigned char *body, size_t *size) {
    (void)body;
    (void)size;
    head->late = (uint64_t)late;
    late = 0;
}

static void test_allocations(void) {
    CUcontext ctx, second = NULL;
    CUdeviceptr address = 1;

    sequence_way = LOOPBACK;
    CHECK_EQUAL(CALL(cuCtxCreate_v2, &ctx, 0, 0), CUDA_SUCCESS);
    allocate_all(0, CUDA_SUCCESS);
    size_t before = room();
    for (unsigned taken = 0; taken < 16; taken += 3) {
        allocate_all(taken, CUDA_SUCCESS);
        CHECK_EQUAL(room(), before);
    }
    allocate_all(16, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(room(), before);
    /* The error of an earlier call comes with what was made: it is ended again. */
    loopback_spoil = spoil_late;
    late = 719;
    CHECK_EQUAL(CALL(cuMemAlloc_v2, &address, 3 * MIB), 719);
    CHECK(address == 1 && facts_reserved == 0);
    CHECK_EQUAL(room(), before);
    late = 719;
    CHECK_EQUAL(CALL(cuCtxCreate_v2, &second, 0, 0), 719);
    CHECK(second == NULL);
    CHECK_EQUAL(CALL(cuCtxGetCurrent, &second), CUDA_SUCCESS);
    CHECK(second == ctx);
    CHECK_EQUAL(room(), before);
    late = 719;
    CHECK_EQUAL(CALL(cuCtxDestroy_v2, ctx), 719);
    CHECK_EQUAL(CALL(cuCtxGetDevice, (CUdevice *)&late), CUDA_ERROR_INVALID_CONTEXT);
}

/* A variable of a module has a place that nobody chooses. */
static void test_variables(void) {
    static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                              ".visible .global .align 8 .u64 table[2];\n"
                              ".visible .entry none() { ret; }\n";
    CUcontext ctx;
    CUmodule module;
    CUdeviceptr at = 0, again = 0;
    size_t size = 0;
    int value = 0;

    sequence_way = LOOPBACK;
    CHECK_EQUAL(CALL(cuCtxCreate_v2, &ctx, 0, 0), CUDA_SUCCESS);
    sequence_driver.cuCtxSetCurrent(
        (CUcontext)loopback_handle(REMOTE_KIND_CUcontext, (uint64_t)ctx));
    CHECK_EQUAL(sequence_driver.cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
    sequence_driver.cuCtxSetCurrent(NULL);
    module = (CUmodule)loopback_number(REMOTE_KIND_CUmodule, (uint64_t)module);
    CHECK_EQUAL(CALL(cuModuleGetGlobal_v2, NULL, NULL, module, "none"), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(CALL(cuModuleGetGlobal_v2, &at, &size, module, "none"), CUDA_ERROR_NOT_FOUND);
    CHECK(at == 0 && size == 0 && facts_reserved == 0);
    /* Where the program has something there, the variable is told nevertheless. */
    facts_taken = 1;
    CHECK_EQUAL(CALL(cuModuleGetGlobal_v2, &at, NULL, module, "table"), CUDA_SUCCESS);
    CHECK(at && facts_taken == 0 && facts_reserved == 0);
    CHECK_EQUAL(CALL(cuModuleGetGlobal_v2, NULL, &size, module, "table"), CUDA_SUCCESS);
    CHECK(size == 16 && facts_reserved == 2 * MIB);
    CHECK_EQUAL(CALL(cuModuleGetGlobal_v2, &again, &size, module, "table"), CUDA_SUCCESS);
    CHECK(again == at && facts_reserved == 2 * MIB);
    CHECK_EQUAL(CALL(cuPointerGetAttribute, &value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 15), 0);
    CHECK_EQUAL(value, CU_MEMORYTYPE_DEVICE);
    CHECK_EQUAL(CALL(cuMemFree_v2, at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(CALL(cuMemGetAddressRange_v2, &again, &size, at + 1), CUDA_SUCCESS);
    CHECK(again <= at && again + size > at);
}

/* As many contexts as a thread can have above each other, and one more. */
static void fill_stack(enum way way) {
    CUcontext ctx, more = NULL;
    unsigned pushed = 1;

    sequence_way = way;
    CHECK_EQUAL(CALL(cuCtxCreate_v2, &ctx, 0, 0), CUDA_SUCCESS);
    size_t before = room();
    while (CALL(cuCtxPushCurrent_v2, ctx) == CUDA_SUCCESS) {
        pushed++;
    }
    CHECK_EQUAL(pushed, 64);
    CHECK_EQUAL(CALL(cuCtxPushCurrent_v2, ctx), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CALL(cuCtxCreate_v2, &more, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CALL(cuCtxSetCurrent, ctx), CUDA_SUCCESS);
    CHECK_EQUAL(room(), before);
    CHECK(more == NULL);
    while (CALL(cuCtxPopCurrent_v2, NULL) == CUDA_SUCCESS) {
        pushed--;
    }
    CHECK_EQUAL(pushed, 0);
    CHECK_EQUAL(CALL(cuCtxDestroy_v2, ctx), CUDA_SUCCESS);
}

static void test_stack(void) {
    fill_stack(DIRECT);
    fill_stack(LOOPBACK);
}

/* Each answers what the gate says, and nothing is sent. */
static void check_closed(CUresult want) {
    CUcontext ctx = NULL;
    CUdevice device;
    CUdeviceptr at;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    uint64_t value;
    size_t size;
    int number;
    char text[64];
    void *data = &value;

#define CLOSED(name, ...) CHECK_EQUAL(CALL(name, __VA_ARGS__), want)
    CLOSED(cuCtxCreate_v2, &ctx, 0, 0);
    CLOSED(cuCtxCreate_v4, &ctx, NULL, 0, 0);
    CLOSED(cuCtxDestroy_v2, NULL);
    CLOSED(cuCtxAttach, &ctx, 0);
    CLOSED(cuCtxDetach, NULL);
    CLOSED(cuCtxGetCurrent, &ctx);
    CLOSED(cuCtxGetDevice, &device);
    CLOSED(cuCtxPushCurrent_v2, NULL);
    CLOSED(cuCtxPopCurrent_v2, &ctx);
    CLOSED(cuCtxSetCurrent, NULL);
    CLOSED(cuCtxGetStreamPriorityRange, &number, &number);
    CLOSED(cuDevicePrimaryCtxRetain, &ctx, 0);
    CLOSED(cuDevicePrimaryCtxRelease_v2, 0);
    CLOSED(cuDevicePrimaryCtxReset_v2, 0);
    CLOSED(cuDeviceGetCount, &number);
    CLOSED(cuDeviceGet, &device, 0);
    CLOSED(cuDeviceGetName, text, 64, 0);
    CLOSED(cuDeviceGetAttribute, &number, (CUdevice_attribute)1, 0);
    CLOSED(cuDeviceGetByPCIBusId, &device, "0000:11:00.0");
    CLOSED(cuDeviceGetTexture1DLinearMaxWidth, &size, CU_AD_FORMAT_FLOAT, 1, 0);
    CLOSED(cuModuleGetLoadingMode, (CUmoduleLoadingMode *)(void *)&number);
    CLOSED(cuMemAlloc_v2, &at, 512);
    CLOSED(cuMemAllocAsync, &at, 512, NULL);
    CLOSED(cuMemAllocFromPoolAsync, &at, 512, NULL, NULL);
    CLOSED(cuMemFree_v2, 0);
    CLOSED(cuMemFreeAsync, 4096, NULL);
    CLOSED(cuMemAddressReserve, &at, 2 * MIB, 0, 0, 0);
    CLOSED(cuMemAddressFree, 2 * MIB, 2 * MIB);
    CLOSED(cuMemGetAddressRange_v2, &at, &size, 4096);
    CLOSED(cuPointerGetAttribute, &value, attribute, 4096);
    CLOSED(cuPointerGetAttributes, 1, &attribute, &data, 4096);
#undef CLOSED
}

static void test_closed(void) {
    int count;

    sequence_way = LOOPBACK;
    for (unsigned i = 0; i < 2; i++) {
        unsigned long before = loopback_sent;
        loopback_gate = CUDA_ERROR_NOT_INITIALIZED;
        check_closed(CUDA_ERROR_NOT_INITIALIZED);
        loopback_gate = CUDA_ERROR_DEVICE_UNAVAILABLE;
        check_closed(CUDA_ERROR_DEVICE_UNAVAILABLE);
        CHECK_EQUAL(loopback_sent, before);
        /* Also where the client has all answers. */
        loopback_gate = 0;
        CHECK_EQUAL(CALL(cuDeviceGetCount, &count), CUDA_SUCCESS);
    }
    /* The version can be asked before the program has begun. */
    loopback_gate = CUDA_ERROR_NOT_INITIALIZED;
    CHECK_EQUAL(CALL(cuDriverGetVersion, &count), CUDA_SUCCESS);
    CHECK_EQUAL(count, 13040);
}

int main(void) {
    facts_run(test_allocations);
    facts_run(test_variables);
    facts_run(test_stack);
    facts_run(test_closed);
    return 0;
}
