/* Memory of devices: allocations, ranges, and what pointers tell. */
#include "test/api/api.h"

#include <stdint.h>
#include <string.h>

void api_case_memory(void) {
    static const size_t sizes[] = {1, 2, 255, 256, 512, 513, 4096, 65537, 2 * MIB, 3 * MIB + 1};
    CUdeviceptr at[COUNT(sizes)], p = 77;
    size_t before = 0, total = 0, after = 0, again = 0;

    api_begin();
    INVALID(cuMemAlloc_v2, &p, 0);
    INVALID(cuMemAlloc_v2, NULL, 1);
    SAME(p, 77);
    OK(cuMemGetInfo_v2, &before, &total);
    TRUE(before > 0 && before <= total);
    OK(cuDeviceTotalMem_v2, &again, 0);
    SAME(again, total);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        OK(cuMemAlloc_v2, &at[i], sizes[i]);
        SAME(at[i] % 256, 0);
        OK(cuMemsetD8_v2, at[i], (unsigned char)(i + 1), sizes[i]);
    }
    for (size_t i = 0; i < COUNT(sizes); i++) {
        TRUE(api_is_filled(at[i], (unsigned char)(i + 1), sizes[i]));
        for (size_t k = 0; k < i; k++) {
            TRUE(at[k] + sizes[k] <= at[i] || at[i] + sizes[i] <= at[k]);
        }
    }
    OK(cuMemGetInfo_v2, &after, &again);
    TRUE(after <= before - 3 * MIB);
    SAME(again, total);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        INVALID(cuMemFree_v2, at[i] + 1);
        OK(cuMemFree_v2, at[i]);
        INVALID(cuMemFree_v2, at[i]);
    }
    OK(cuMemGetInfo_v2, &after, &again);
    SAME(after, before);
    OK(cuMemFree_v2, 0);
    INVALID(cuMemFree_v2, ABSENT);
    INVALID(cuMemsetD8_v2, ABSENT, 1, 1);
    TRUE(CU(cuMemGetInfo_v2)(NULL, &total) == CU(cuMemGetInfo_v2)(NULL, &total));
}

void api_case_exhaustion(void) {
    CUdeviceptr p = 77, all = 0;
    size_t left = 0, total = 0, now = 0;

    api_begin();
    OK(cuMemGetInfo_v2, &left, &total);
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &p, total + 1);
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &p, left + 1);
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &p, SIZE_MAX / 2);
    TRUE(p == 77 || p == 0); /* which of them, nobody documents */
    OK(cuMemAlloc_v2, &all, left / (2 * MIB) * (2 * MIB));
    OK(cuMemGetInfo_v2, &now, &total);
    TRUE(now < 2 * MIB);
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &p, 4 * MIB);
    size_t pitch = 77;
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch_v2, &p, &pitch, 4096, 1024, 4);
    TRUE(p == 77 || p == 0);
    OK(cuMemFree_v2, all);
    OK(cuMemGetInfo_v2, &now, &total);
    SAME(now, left);
    OK(cuMemAlloc_v2, &p, 4 * MIB);
    OK(cuMemFree_v2, p);
}

void api_case_ranges(void) {
    CUdeviceptr p = 0, base = 77, pitched = 0;
    size_t bytes = 77, pitch = 0;

    api_begin();
    OK(cuMemAlloc_v2, &p, 100000);
    static const size_t offsets[] = {0, 1, 50000, 99999};
    for (size_t i = 0; i < COUNT(offsets); i++) {
        base = bytes = 0;
        OK(cuMemGetAddressRange_v2, &base, &bytes, p + offsets[i]);
        SAME(base, p);
        SAME(bytes, 100000);
    }
    OK(cuMemGetAddressRange_v2, &base, NULL, p + 5);
    SAME(base, p);
    OK(cuMemGetAddressRange_v2, NULL, &bytes, p + 5);
    SAME(bytes, 100000);
    base = bytes = 77;
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2, &base, &bytes, ABSENT);
    SAME(base, 77);
    static const unsigned elements[] = {4, 8, 16};
    for (size_t i = 0; i < COUNT(elements); i++) {
        OK(cuMemAllocPitch_v2, &pitched, &pitch, 100, 7, elements[i]);
        TRUE(pitch >= 100 && pitch % 64 == 0);
        OK(cuMemsetD2D8_v2, pitched, pitch, 5, 100, 7);
        OK(cuMemFree_v2, pitched);
    }
    static const unsigned wrong[] = {0, 1, 3, 5, 32};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        INVALID(cuMemAllocPitch_v2, &pitched, &pitch, 100, 7, wrong[i]);
    }
    INVALID(cuMemAllocPitch_v2, &pitched, &pitch, 0, 7, 4);
    INVALID(cuMemAllocPitch_v2, &pitched, &pitch, 100, 0, 4);
    INVALID(cuMemAllocPitch_v2, NULL, &pitch, 100, 7, 4);
    INVALID(cuMemAllocPitch_v2, &pitched, NULL, 100, 7, 4);
    OK(cuMemFree_v2, p);
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2, &base, &bytes, p);
}

static void check_device_pointer(CUdeviceptr p, CUcontext ctx) {
    unsigned type = 0;
    int ordinal = 77, managed = 77, mapped = 77;
    CUcontext of = NULL;
    CUdeviceptr address = 0, start = 0;
    size_t size = 0;
    unsigned long long id = 0, other = 0;

    OK(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 10);
    SAME(type, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute, &of, CU_POINTER_ATTRIBUTE_CONTEXT, p);
    TRUE(of == ctx);
    OK(cuPointerGetAttribute, &address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + 10);
    SAME(address, p + 10);
    OK(cuPointerGetAttribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
    SAME(ordinal, 0);
    OK(cuPointerGetAttribute, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p);
    SAME(managed & 0xff, 0);
    OK(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 10);
    SAME(start, p);
    OK(cuPointerGetAttribute, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 10);
    SAME(size, 100000);
    mapped = 0;
    OK(cuPointerGetAttribute, &mapped, CU_POINTER_ATTRIBUTE_MAPPED, p);
    SAME(mapped & 0xff, 1);
    OK(cuPointerGetAttribute, &id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p);
    OK(cuPointerGetAttribute, &other, CU_POINTER_ATTRIBUTE_BUFFER_ID, p + 99);
    SAME(other, id);
    INVALID(cuPointerGetAttribute, &address, CU_POINTER_ATTRIBUTE_HOST_POINTER, p);
    INVALID(cuPointerGetAttribute, NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    INVALID(cuPointerGetAttribute, &type, (CUpointer_attribute)4242, p);
}

void api_case_pointers(void) {
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    CUcontext ctx = api_begin();
    unsigned type = 0;
    int ordinal = 77, flag = 1;
    CUdeviceptr p = 0, q = 0, start = 77;
    void *out[] = {&type, &ordinal, &start};
    unsigned long long one = 0, other = 0;

    OK(cuMemAlloc_v2, &p, 100000);
    OK(cuMemAlloc_v2, &q, 100);
    check_device_pointer(p, ctx);
    OK(cuPointerGetAttribute, &one, CU_POINTER_ATTRIBUTE_BUFFER_ID, p);
    OK(cuPointerGetAttribute, &other, CU_POINTER_ATTRIBUTE_BUFFER_ID, q);
    SAME(one == other, api_lacks("buffer-ids"));
    OK(cuPointerGetAttributes, 3, what, out, p + 5);
    SAME(type, CU_MEMORYTYPE_DEVICE);
    SAME(ordinal, 0);
    SAME(start, p);
    /* Of memory that the driver does not know, there is nothing to tell. */
    OK(cuPointerGetAttributes, 3, what, out, (CUdeviceptr)(uintptr_t)&ordinal);
    SAME(type, 0);
    SAME(ordinal, CU_DEVICE_INVALID);
    SAME(start, 0);
    INVALID(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            (CUdeviceptr)(uintptr_t)&ordinal);
    INVALID(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ABSENT);
    INVALID(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0);
    INVALID(cuPointerGetAttributes, 3, NULL, out, p);
    INVALID(cuPointerGetAttributes, 3, what, NULL, p);
    OK(cuPointerSetAttribute, &flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    flag = 77;
    OK(cuPointerGetAttribute, &flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    SAME(flag & 0xff, !api_lacks("sync-memops"));
    INVALID(cuPointerSetAttribute, &flag, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    OK(cuMemFree_v2, p);
    INVALID(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
}
