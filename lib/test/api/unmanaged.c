/* Device memory is none of the memory that moves by itself: what pointers tell of it, and that the functions for managed memory
 * refuse it. */
#include "test/api/api.h"

static int flag(CUpointer_attribute attribute, CUdeviceptr p) {
    int value = 0x55;

    OK(cuPointerGetAttribute, &value, attribute, p);
    return value & 0xff;
}

static uint64_t wide(CUpointer_attribute attribute, CUdeviceptr p) {
    uint64_t value = 0x5555555555555555;

    OK(cuPointerGetAttribute, &value, attribute, p);
    return value;
}

/* The same whether nobody has used it yet, the GPU has, or a copy has filled it. */
static void check_told(CUdeviceptr p, size_t bytes) {
    CUpointer_attribute what[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,   CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    unsigned type = 77, managed = 77;
    void *host = &type;
    CUdeviceptr start = 77, address = 77;
    size_t size = 77;
    int ordinal = 77;
    void *out[] = {&type, &host, &managed, &start, &size, &ordinal, &address};

    OK(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + bytes - 1);
    SAME(type, CU_MEMORYTYPE_DEVICE);
    INVALID(cuPointerGetAttribute, &host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p);
    SAME(flag(CU_POINTER_ATTRIBUTE_IS_MANAGED, p + 1), 0);
    SAME(flag(CU_POINTER_ATTRIBUTE_MAPPED, p), 1);
    SAME(flag(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p),
         !api_lacks("cuIpcGetMemHandle") && !api_lacks("linear-exports"));
    SAME(wide(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p), 0);
    SAME(wide(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p), 0);
    SAME(wide(CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 3), bytes);
    SAME(flag(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    type = 77;
    OK(cuPointerGetAttributes, COUNT(what), what, out, p + 7);
    SAME(type, CU_MEMORYTYPE_DEVICE);
    TRUE(host == NULL);
    SAME(managed & 0xff, 0);
    SAME(start, p);
    SAME(size, bytes);
    SAME(ordinal, 0);
    SAME(address, p + 7);
    start = size = 77;
    OK(cuMemGetAddressRange_v2, &start, &size, p + bytes - 1);
    SAME(start, p);
    SAME(size, bytes);
}

static void check_refused(CUdeviceptr p, size_t bytes) {
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, wrong = {0};
    CUmem_range_attribute what[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                    CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION};
    int value = 77, other = 77;
    void *out[] = {&value, &other};
    size_t rooms[] = {sizeof value, sizeof other};

    INVALID(cuMemPrefetchAsync, p, bytes, 0, NULL);
    INVALID(cuMemPrefetchAsync, p + 1, 1, CU_DEVICE_CPU, NULL);
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync, p, bytes, 9999, NULL);
    INVALID(cuMemPrefetchAsync_v2, p, bytes, here, 0, NULL);
    INVALID(cuMemPrefetchAsync_v2, p, bytes, wrong, 0, NULL);
    INVALID(cuMemAdvise, p, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
    INVALID(cuMemAdvise_v2, p, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here);
    INVALID(cuMemRangeGetAttribute, &value, sizeof value, what[0], p, bytes);
    INVALID(cuMemRangeGetAttributes, out, rooms, what, 2, p, bytes);
    SAME(value, 77);
    SAME(other, 77);
    INVALID(cuStreamAttachMemAsync, NULL, p, 0, CU_MEM_ATTACH_GLOBAL);
    CUdeviceptr mapped = 77;
    unsigned flags = 77;
    INVALID(cuMemHostGetDevicePointer_v2, &mapped, (void *)(uintptr_t)p, 0);
    INVALID(cuMemHostGetFlags, &flags, (void *)(uintptr_t)p);
    INVALID(cuMemHostRegister_v2, (void *)(uintptr_t)p, 4096, 0);
}

/* Lists of which one place is device memory. */
static void check_batches(CUdeviceptr p, size_t bytes) {
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUdeviceptr managed = 0;
    size_t first = 0;
    CUstream s = NULL;

    if (!api_has("cuMemPrefetchBatchAsync")) {
        return;
    }
    OK(cuStreamCreate, &s, CU_STREAM_DEFAULT);
    OK(cuMemAllocManaged, &managed, bytes, CU_MEM_ATTACH_GLOBAL);
    CUdeviceptr places[] = {managed, p, managed};
    size_t sizes[] = {bytes, bytes, bytes};
    INVALID(cuMemPrefetchBatchAsync, places, sizes, 3, &here, &first, 1, 0, s);
    INVALID(cuMemDiscardAndPrefetchBatchAsync, places + 1, sizes, 2, &here, &first, 1, 0, s);
    OK(cuMemPrefetchBatchAsync, places, sizes, 1, &here, &first, 1, 0, s);
    SAME(places[0], managed);
    OK(cuStreamSynchronize, s);
    OK(cuMemFree_v2, managed);
    OK(cuStreamDestroy_v2, s);
}

/* Memory of cuMemAlloc may be freed in a stream's order, once. */
static void check_ordered_free(void) {
    size_t before = 0, after = 0, total = 0;
    CUdeviceptr p = 0, q = 0;
    CUstream s = NULL;

    OK(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    OK(cuMemGetInfo_v2, &before, &total);
    OK(cuMemAlloc_v2, &p, 5 * MIB);
    OK(cuMemAlloc_v2, &q, 5 * MIB);
    OK(cuMemsetD8Async, p, 7, 5 * MIB, s);
    OK(cuMemFreeAsync, p, s);
    TRUE(CU(cuMemFreeAsync)(q + 1, s) != CUDA_SUCCESS);
    OK(cuStreamSynchronize, s);
    INVALID(cuMemFree_v2, p);
    TRUE(CU(cuMemFreeAsync)(p, s) != CUDA_SUCCESS);
    OK(cuMemsetD8_v2, q, 7, 5 * MIB);
    TRUE(api_is_filled(q, 7, 5 * MIB));
    OK(cuMemFree_v2, q);
    OK(cuMemGetInfo_v2, &after, &total);
    SAME(after, before);
    OK(cuStreamDestroy_v2, s);
}

void api_case_unmanaged(void) {
    static const size_t sizes[] = {1000, 100000, 5 * MIB + 8};
    CUdeviceptr p = 0;
    size_t pitch = 0;

    api_begin();
    if (api_lacks("cuMemAllocManaged")) {
        return;
    }
    for (size_t i = 0; i < COUNT(sizes); i++) {
        OK(cuMemAlloc_v2, &p, sizes[i]);
        check_told(p, sizes[i]);
        OK(cuMemsetD8_v2, p, 3, sizes[i]);
        check_told(p, sizes[i]);
        TRUE(api_is_filled(p, 3, sizes[i]));
        check_refused(p, sizes[i]);
        check_batches(p, sizes[i]);
        check_told(p, sizes[i]);
        TRUE(api_is_filled(p, 3, sizes[i]));
        OK(cuMemFree_v2, p);
    }
    OK(cuMemAllocPitch_v2, &p, &pitch, 700, 3000, 4);
    check_told(p, pitch * 3000);
    check_refused(p, pitch * 3000);
    OK(cuMemFree_v2, p);
    check_ordered_free();
}
