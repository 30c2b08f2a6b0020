/* Linear memory: rules of allocation, sub-allocation, contents. */
#include "simgpu/cuda/test/cuda.h"

#include <stdlib.h>
#include <string.h>

#define MANY 3000

static void check_rules(void) {
    CUdeviceptr a = 77, b, base;
    size_t free_bytes, total, bytes;

    FAILS(cuMemAlloc_v2(&a, 0), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemAlloc_v2(&a, GPU_BYTES), CUDA_ERROR_OUT_OF_MEMORY);
    FAILS(cuMemAlloc_v2(&a, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(a, 77);
    OK(cuMemFree_v2(0));
    FAILS(cuMemFree_v2(4096), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAlloc_v2(&a, 1));
    OK(cuMemAlloc_v2(&b, 513));
    CHECK_EQUAL(a % 512, 0);
    CHECK_EQUAL(b, a + 512);
    CHECK_EQUAL(cuda_true(SG_LINEAR), BLOCK);
    FAILS(cuMemFree_v2(a + 1), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemFree_v2(b + 512), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemGetAddressRange_v2(&base, &bytes, b + 100));
    CHECK_EQUAL(base, b);
    CHECK_EQUAL(bytes, 513);
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    CHECK_EQUAL(total, GPU_BYTES - GPU_RESERVED);
    CHECK_EQUAL(free_bytes, total - 4 * MIB - BLOCK);
    OK(cuMemFree_v2(a));
    FAILS(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(b));
    CHECK_EQUAL(cuda_true(SG_LINEAR), 0);
}

/* The last byte of the GPU can be had, and one more cannot; nothing is lost on the way. */
static void check_exhaustion(void) {
    CUdeviceptr all, more;
    size_t free_bytes, total;

    OK(cuMemGetInfo_v2(&free_bytes, &total));
    FAILS(cuMemAlloc_v2(&all, free_bytes + 1), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&all, free_bytes));
    FAILS(cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree_v2(all));
    OK(cuMemAlloc_v2(&more, 1));
    OK(cuMemFree_v2(more));
}

/* Random sizes, freed at random: no two overlap, and each keeps its contents. */
static void check_random(void) {
    static struct {
        CUdeviceptr at;
        uint32_t words, value;
    } live[MANY];
    uint64_t sum = 0;

    srand(7);
    for (int round = 0; round < 20000; round++) {
        int i = rand() % MANY;
        if (live[i].at) {
            uint32_t first, last;
            OK(cuMemcpyDtoH_v2(&first, live[i].at, 4));
            OK(cuMemcpyDtoH_v2(&last, live[i].at + (live[i].words - 1) * 4ull, 4));
            CHECK_EQUAL(first, live[i].value);
            CHECK_EQUAL(last, live[i].value);
            OK(cuMemFree_v2(live[i].at));
            sum -= live[i].words * 4ull;
            live[i].at = 0;
            continue;
        }
        live[i].words = 1u + (uint32_t)rand() % (rand() % 40 == 0 ? 800000u : 3000u);
        live[i].value = (uint32_t)rand();
        if (sum + live[i].words * 4ull > 150 * MIB) {
            continue;
        }
        OK(cuMemAlloc_v2(&live[i].at, live[i].words * 4ull));
        OK(cuMemsetD32_v2(live[i].at, live[i].value, live[i].words));
        sum += live[i].words * 4ull;
        CHECK(cuda_true(SG_LINEAR) >= sum);
    }
    for (int i = 0; i < MANY; i++) {
        OK(cuMemFree_v2(live[i].at));
    }
    CHECK_EQUAL(cuda_true(SG_LINEAR), 0);
}

static void check_pitch(void) {
    CUdeviceptr a;
    size_t pitch;
    unsigned char rows[7][100], back[7][100];

    FAILS(cuMemAllocPitch_v2(&a, &pitch, 100, 7, 3), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocPitch_v2(&a, &pitch, 100, 7, 4));
    CHECK_EQUAL(pitch, 512);
    for (int y = 0; y < 7; y++) {
        memset(rows[y], 'a' + y, sizeof rows[y]);
    }
    CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = rows,
                        .srcPitch = 100,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = a,
                        .dstPitch = pitch,
                        .WidthInBytes = 100,
                        .Height = 7};
    OK(cuMemcpy2D_v2(&up));
    /* The middle of the rectangle comes back from its place. */
    CUDA_MEMCPY2D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = a,
                          .srcPitch = pitch,
                          .srcXInBytes = 10,
                          .srcY = 2,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = back,
                          .dstPitch = 100,
                          .dstXInBytes = 1,
                          .dstY = 1,
                          .WidthInBytes = 50,
                          .Height = 3};
    memset(back, 0, sizeof back);
    OK(cuMemcpy2D_v2(&down));
    CHECK_EQUAL(back[1][0], 0);
    CHECK_EQUAL(back[1][1], 'c');
    CHECK_EQUAL(back[3][50], 'e');
    CHECK_EQUAL(back[3][51], 0);
    CHECK_EQUAL(back[4][1], 0);
    up.Height = 10000;
    FAILS(cuMemcpy2D_v2(&up), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD2D16_v2(a, pitch, 0x6162, 4, 2));
    OK(cuMemcpyDtoH_v2(back, a + pitch, 10));
    CHECK(memcmp(back, "babababa", 8) == 0 && back[0][8] == 'b' && back[0][9] == 'b');
    OK(cuMemFree_v2(a));
}

static void check_3d(void) {
    CUdeviceptr a;
    unsigned char box[4][3][8], back[4][3][8];

    for (size_t i = 0; i < sizeof box; i++) {
        ((unsigned char *)box)[i] = (unsigned char)i;
    }
    memset(back, 0, sizeof back);
    OK(cuMemAlloc_v2(&a, 3 * BLOCK));
    CUDA_MEMCPY3D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = box,
                        .srcPitch = 8,
                        .srcHeight = 3,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = a,
                        .dstXInBytes = 5,
                        .dstY = 1,
                        .dstZ = 1,
                        .dstPitch = 1 << 10,
                        .dstHeight = 512,
                        .WidthInBytes = 8,
                        .Height = 3,
                        .Depth = 4};
    OK(cuMemcpy3D_v2(&up));
    CUDA_MEMCPY3D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = a,
                          .srcXInBytes = 5,
                          .srcY = 1,
                          .srcZ = 1,
                          .srcPitch = 1 << 10,
                          .srcHeight = 512,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = back,
                          .dstPitch = 8,
                          .dstHeight = 3,
                          .WidthInBytes = 8,
                          .Height = 3,
                          .Depth = 4};
    OK(cuMemcpy3D_v2(&down));
    CHECK(memcmp(box, back, sizeof box) == 0);
    OK(cuMemFree_v2(a));
}

/* Memory is given out as zeroes, whoever had it before, and copies cross block boundaries. */
static void check_contents(void) {
    size_t n = 5 * BLOCK + 12345;
    unsigned char *data = malloc(n), *back = malloc(n);
    CUdeviceptr a, b;
    CHECK(data && back);
    for (size_t i = 0; i < n; i++) {
        data[i] = (unsigned char)(i * 7 + i / 4096);
    }
    OK(cuMemAlloc_v2(&a, n));
    OK(cuMemAlloc_v2(&b, n));
    OK(cuMemcpyHtoD_v2(a, data, n));
    OK(cuMemcpyDtoD_v2(b, a, n));
    OK(cuMemcpyDtoH_v2(back, b, n));
    CHECK(memcmp(data, back, n) == 0);
    OK(cuMemcpy(b + 1, a, n - 1));
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)back, b + 1, n - 1));
    CHECK(memcmp(data, back, n - 1) == 0);
    /* Zeroes are zeroes, written over something or over nothing. */
    OK(cuMemsetD8_v2(a, 0, 3 * BLOCK));
    OK(cuMemcpyDtoH_v2(back, a, n));
    CHECK(back[0] == 0 && back[3 * BLOCK - 1] == 0 && back[3 * BLOCK] == data[3 * BLOCK]);
    FAILS(cuMemcpyHtoD_v2(a, data, 7 * BLOCK), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemcpyDtoH_v2(back, 4096, 1), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemsetD8_v2(a, 0, 7 * BLOCK), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemsetD32_v2(a + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(b));
    OK(cuMemAlloc_v2(&a, n));
    OK(cuMemcpyDtoH_v2(back, a, n));
    for (size_t i = 0; i < n; i++) {
        CHECK_EQUAL(back[i], 0);
    }
    OK(cuMemFree_v2(a));
    free(data);
    free(back);
}

static void check_batches(void) {
    CUdeviceptr a, to[2], from[2];
    size_t bytes[2] = {100, 50}, failed = 9;
    char text[100], back[100];
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t first = 0;
    CUstream s;

    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&a, 1000));
    memset(text, 'q', sizeof text);
    to[0] = a;
    from[0] = (CUdeviceptr)(uintptr_t)text;
    to[1] = a + 500;
    from[1] = a;
    OK(cuMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, &failed, s));
    OK(cuStreamSynchronize(s));
    OK(cuMemcpyDtoH_v2(back, a + 500, 50));
    CHECK(memcmp(text, back, 50) == 0);
    to[1] = a + 990;
    FAILS(cuMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, &failed, s),
          CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(failed, 1);
    FAILS(cuMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, &failed, NULL),
          CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D_BATCH_OP box = {
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = a, .rowLength = 20}},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
                .op.ptr = {.ptr = (CUdeviceptr)(uintptr_t)back, .rowLength = 10}},
        .extent = {5, 3, 1}};
    memset(back, 0, sizeof back);
    OK(cuMemcpy3DBatchAsync_v2(1, &box, 0, s));
    OK(cuStreamSynchronize(s));
    CHECK(back[0] == 'q' && back[4] == 'q' && back[5] == 0 && back[24] == 'q' && back[30] == 0);
    OK(cuMemFree_v2(a));
    OK(cuStreamDestroy_v2(s));
}

static void check_managed(void) {
    CUdeviceptr m;
    int where;
    unsigned value = 5;

    OK(cuMemAllocManaged(&m, 5 * BLOCK, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQUAL(cuda_true(SG_MANAGED), 0);
    *(volatile unsigned *)(uintptr_t)m = 9;
    OK(cuMemPrefetchAsync(m, 2 * BLOCK, 0, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQUAL(cuda_true(SG_MANAGED), 2 * BLOCK);
    OK(cuMemsetD32_v2(m + 4 * BLOCK, 3, 10));
    CHECK_EQUAL(cuda_true(SG_MANAGED), 3 * BLOCK);
    OK(cuMemRangeGetAttribute(&where, sizeof where, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                              m, BLOCK));
    CHECK_EQUAL(where, 0);
    OK(cuMemcpyDtoH_v2(&value, m, 4));
    CHECK_EQUAL(value, 9);
    CHECK_EQUAL(*(volatile unsigned *)(uintptr_t)(m + 4 * BLOCK), 3);
    OK(cuMemPrefetchAsync(m, 5 * BLOCK, CU_DEVICE_CPU, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQUAL(cuda_true(SG_MANAGED), 0);
    OK(cuMemFree_v2(m));
    FAILS(cuMemFree_v2(m), CUDA_ERROR_INVALID_VALUE);
    /* More than the GPU has is no error: what does not fit stays with the host. */
    OK(cuMemAllocManaged(&m, 2 * GPU_BYTES, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemPrefetchAsync(m, 2 * GPU_BYTES, 0, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQUAL(cuda_true_all(), GPU_BYTES - GPU_RESERVED);
    OK(cuMemFree_v2(m));
    CHECK_EQUAL(cuda_true(SG_MANAGED), 0);
}

static void check_host(void) {
    void *h;
    CUdeviceptr d;
    unsigned flags;
    static char mine[10000];

    OK(cuMemHostAlloc(&h, 100, CU_MEMHOSTALLOC_PORTABLE));
    OK(cuMemHostGetFlags(&flags, h));
    CHECK(flags & CU_MEMHOSTALLOC_PORTABLE);
    OK(cuMemHostGetDevicePointer_v2(&d, h, 0));
    OK(cuMemsetD8_v2(d, 7, 100));
    CHECK_EQUAL(((char *)h)[99], 7);
    OK(cuMemFreeHost(h));
    FAILS(cuMemFreeHost(h), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)mine, 7, 100), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemHostRegister_v2(mine, sizeof mine, 0));
    FAILS(cuMemHostRegister_v2(mine + 5, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)mine, 7, 100));
    CHECK_EQUAL(mine[99], 7);
    OK(cuMemHostUnregister(mine));
    FAILS(cuMemHostUnregister(mine), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static void check_pointers(void) {
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    unsigned type;
    int ordinal;
    void *out[] = {&type, &ordinal};
    CUdeviceptr a;
    int local = 0;

    OK(cuMemAlloc_v2(&a, 10 * BLOCK));
    OK(cuPointerGetAttributes(2, what, out, a + 5));
    CHECK_EQUAL(type, CU_MEMORYTYPE_DEVICE);
    CHECK_EQUAL(ordinal, 0);
    OK(cuPointerGetAttributes(2, what, out, (CUdeviceptr)(uintptr_t)&local));
    CHECK_EQUAL(type, 0);
    CHECK_EQUAL(ordinal, CU_DEVICE_INVALID);
    FAILS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                (CUdeviceptr)(uintptr_t)&local),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(a));
}

int main(void) {
    cuda_start(NULL);
    check_rules();
    check_exhaustion();
    check_random();
    check_pitch();
    check_3d();
    check_contents();
    check_batches();
    check_managed();
    check_host();
    check_pointers();
    CHECK_EQUAL(cuda_true_all(), 4 * MIB);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    CHECK_EQUAL(cuda_true_all(), 0);
    return 0;
}
