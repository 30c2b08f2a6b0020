/* Memory of the host: what the driver allocates, what it is told of, and what both sides use. */
#include "test/api/api.h"

#include <string.h>

/* Memory of the host with an address of the device, all of it 0xee so far: kernels use it. */
static void check_mapped(const unsigned char *h) {
    CUdeviceptr found = 0;

    OK(cuMemHostGetDevicePointer_v2, &found, (void *)(uintptr_t)h, 0);
    SAME(found, (uintptr_t)h);
    OK(cuMemsetD8_v2, found + 10, 0x33, 10);
    TRUE(h[9] == 0xee && h[10] == 0x33 && h[19] == 0x33 && h[20] == 0xee);
    SAME(api_fill(found + 512, 0x01020304, 4, NULL), CUDA_SUCCESS);
    OK(cuCtxSynchronize);
    TRUE(h[511] == 0xee && h[512] == 4 && h[527] == 1 && h[528] == 0xee);
}

void api_case_host(void) {
    static const unsigned flags[] = {0, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP,
                                     CU_MEMHOSTALLOC_WRITECOMBINED,
                                     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP};
    unsigned got = 77, type = 0;
    unsigned char *h = NULL;
    CUdeviceptr device = 0, found = 0;
    void *back = NULL, *none = (void *)7;

    api_begin();
    OK(cuMemAlloc_v2, &device, 100000);
    for (size_t i = 0; i < COUNT(flags); i++) {
        if (api_lacks("mapped") && flags[i] & CU_MEMHOSTALLOC_DEVICEMAP) {
            ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuMemHostAlloc, (void **)&h, 100000, flags[i]);
            continue;
        }
        OK(cuMemHostAlloc, (void **)&h, 100000, flags[i]);
        SAME((uintptr_t)h % 512, 0);
        memset(h, (int)i + 1, 100000);
        OK(cuMemHostGetFlags, &got, h + 99);
        SAME(got & flags[i], flags[i]);
        OK(cuMemcpyHtoD_v2, device, h, 100000);
        TRUE(api_is_filled(device, (unsigned char)(i + 1), 100000));
        OK(cuMemsetD8_v2, device, 0xee, 100000);
        OK(cuMemcpyDtoH_v2, h, device, 50000);
        TRUE(h[0] == 0xee && h[49999] == 0xee && h[50000] == i + 1);
        OK(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
           (CUdeviceptr)(uintptr_t)h);
        SAME(type, CU_MEMORYTYPE_HOST);
        OK(cuPointerGetAttribute, &back, CU_POINTER_ATTRIBUTE_HOST_POINTER,
           (CUdeviceptr)(uintptr_t)(h + 9));
        TRUE(back == h + 9);
        if (api_lacks("mapped")) {
            ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuMemHostGetDevicePointer_v2, &found, h, 0);
        } else {
            check_mapped(h);
        }
        INVALID(cuMemFreeHost, h + 1);
        OK(cuMemFreeHost, h);
        INVALID(cuMemFreeHost, h);
        INVALID(cuMemHostGetFlags, &got, h);
    }
    OK(cuMemAllocHost_v2, (void **)&h, 10);
    OK(cuMemFreeHost, h);
    INVALID(cuMemHostAlloc, &none, 10, 0x100);
    INVALID(cuMemHostAlloc, NULL, 10, 0);
    TRUE(none == (void *)7);
    INVALID(cuMemFreeHost, &got);
    INVALID(cuMemHostGetFlags, NULL, &got);
    INVALID(cuMemHostGetDevicePointer_v2, &found, &got, 0);
}

static _Alignas(4096) unsigned char own[16 * 4096];

void api_case_registered(void) {
    CUdeviceptr device = 0, found = 77;
    unsigned flags = 77;

    api_begin();
    OK(cuMemAlloc_v2, &device, sizeof own);
    api_pattern(own, sizeof own, 3);
    OK(cuMemHostRegister_v2, own, sizeof own, 0);
    ANSWERS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2, own + 4096, 4096, 0);
    INVALID(cuMemHostGetFlags, &flags, own);
    OK(cuMemcpyHtoDAsync_v2, device, own, sizeof own, NULL);
    OK(cuStreamSynchronize, NULL);
    memset(own, 0, sizeof own);
    OK(cuMemcpyDtoHAsync_v2, own, device, sizeof own, NULL);
    OK(cuStreamSynchronize, NULL);
    static unsigned char want[sizeof own];
    api_pattern(want, sizeof want, 3);
    TRUE(memcmp(own, want, sizeof own) == 0);
    /* Where registered memory has an address of the device, kernels use it. */
    if (api_lacks("registered-address")) {
        TRUE(CU(cuMemHostGetDevicePointer_v2)(&found, own, 0) != CUDA_SUCCESS);
    } else {
        OK(cuMemHostGetDevicePointer_v2, &found, own, 0);
        OK(cuMemsetD8_v2, found, 9, 100);
        TRUE(own[0] == 9 && own[99] == 9 && own[100] == want[100]);
    }
    OK(cuMemHostUnregister, own);
    ANSWERS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, own);
    OK(cuMemHostRegister_v2, own, 4096, CU_MEMHOSTREGISTER_PORTABLE);
    ANSWERS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, own + 4096);
    OK(cuMemHostUnregister, own);
    INVALID(cuMemHostRegister_v2, own, 0, 0);
    INVALID(cuMemHostRegister_v2, NULL, 4096, 0);
    INVALID(cuMemHostRegister_v2, own, 4096, 0x100);
    OK(cuMemFree_v2, device);
}

void api_case_managed(void) {
    CUdeviceptr m = 0;
    int is = 77, attribute = 77;

    api_begin();
    OK(cuDeviceGetAttribute, &attribute, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0);
    SAME(attribute, api_lacks("cuMemAllocManaged") ? 0 : 1);
    SERVED(cuMemAllocManaged, &m, 4 * MIB, CU_MEM_ATTACH_GLOBAL) {
        *(volatile unsigned *)(uintptr_t)m = 9;
        SAME(api_word(m), 9);
        OK(cuMemsetD32_v2, m + 2 * MIB, 3, 10);
        OK(cuCtxSynchronize);
        SAME(*(volatile unsigned *)(uintptr_t)(m + 2 * MIB + 36), 3);
        OK(cuPointerGetAttribute, &is, CU_POINTER_ATTRIBUTE_IS_MANAGED, m);
        SAME(is & 0xff, 1);
        OK(cuMemPrefetchAsync, m, 4 * MIB, 0, NULL);
        OK(cuCtxSynchronize);
        OK(cuMemRangeGetAttribute, &is, sizeof is, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, m,
           MIB);
        SAME(is, 0);
        OK(cuMemAdvise, m, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
        OK(cuMemFree_v2, m);
        INVALID(cuMemAllocManaged, &m, 0, CU_MEM_ATTACH_GLOBAL);
        INVALID(cuMemAllocManaged, &m, 10, 99);
        INVALID(cuMemAllocManaged, NULL, 10, CU_MEM_ATTACH_GLOBAL);
    }
}
