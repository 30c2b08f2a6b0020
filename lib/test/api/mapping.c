/* Virtual memory management, and handles for other processes. */
#include "test/api/api.h"

#include <unistd.h>

static const CUmemAccessDesc read_write = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                           CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void check_mapped(CUdeviceptr at, size_t block, CUmemGenericAllocationHandle h) {
    CUmemGenericAllocationHandle again = 0;
    unsigned long long flags = 77;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    uint32_t value = 42;

    INVALID(cuMemcpyHtoD_v2, at + 2 * block, &value, 4);
    OK(cuMemSetAccess, at + 2 * block, 4 * block, &read_write, 1);
    OK(cuMemGetAccess, &flags, &here, at + 2 * block);
    SAME(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemcpyHtoD_v2, at + 3 * block, &value, 4);
    SAME(api_fill(at + 4 * block, 7, 100, NULL), CUDA_SUCCESS);
    SAME(api_word(at + 4 * block + 396), 7);
    OK(cuMemRelease, h);
    INVALID(cuMemRelease, h);
    OK(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)(at + 2 * block));
    OK(cuMemMap, at + 8 * block, block, 0, again, 0);
    INVALID(cuMemUnmap, at + 2 * block, block);
    INVALID(cuMemAddressFree, at, 16 * block);
    OK(cuMemUnmap, at + 8 * block, block);
    OK(cuMemUnmap, at + 2 * block, 4 * block);
    INVALID(cuMemUnmap, at + 2 * block, 4 * block);
    OK(cuMemRelease, again);
}

void api_case_mapping(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                        got;
    CUmemGenericAllocationHandle h = 0;
    CUdeviceptr at = 0, other = 77;
    size_t block = 0, best = 0, before = 0, after = 0, total = 0;

    api_begin();
    api_function("divvy_fill");
    OK(cuMemGetAllocationGranularity, &block, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    OK(cuMemGetAllocationGranularity, &best, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    TRUE(block >= 4096 && best % block == 0);
    OK(cuMemGetInfo_v2, &before, &total);
    INVALID(cuMemCreate, &h, block + 1, &prop, 0);
    INVALID(cuMemCreate, &h, 0, &prop, 0);
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate, &h, total / block * block + 64 * block, &prop,
            0);
    INVALID(cuMemCreate, NULL, block, &prop, 0);
    INVALID(cuMemCreate, &h, block, NULL, 0);
    OK(cuMemCreate, &h, 4 * block, &prop, 0);
    OK(cuMemGetInfo_v2, &after, &total);
    SAME(before - after, api_lacks("one-account") ? 0 : 4 * block);
    OK(cuMemGetAllocationPropertiesFromHandle, &got, h);
    TRUE(got.type == prop.type && got.location.type == prop.location.type && got.location.id == 0);
    OK(cuMemAddressReserve, &at, 16 * block, 0, 0, 0);
    SAME(at % block, 0);
    INVALID(cuMemMap, at, 5 * block, 0, h, 0);
    INVALID(cuMemMap, at + 1, block, 0, h, 0);
    OK(cuMemMap, at + 2 * block, 4 * block, 0, h, 0);
    INVALID(cuMemMap, at + 5 * block, block, 0, h, 0);
    check_mapped(at, block, h);
    OK(cuMemAddressFree, at, 16 * block);
    INVALID(cuMemAddressFree, at, 16 * block);
    OK(cuMemGetInfo_v2, &after, &total);
    SAME(after, before);
    OK(cuMemAddressReserve, &other, 2 * block, 0, 0, 0);
    OK(cuMemAddressFree, other, 2 * block);
    INVALID(cuMemAddressReserve, &other, block + 1, 0, 0, 0);
    INVALID(cuMemAddressReserve, &other, 0, 0, 0, 0);
    INVALID(cuMemAddressReserve, NULL, block, 0, 0, 0);
    INVALID(cuMemSetAccess, at, block, &read_write, 1);
    prop.location.id = 9999;
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuMemCreate, &h, block, &prop, 0);
}

void api_case_sharing(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle h = 0, same = 0;
    CUipcMemHandle memory = {{0}};
    CUipcEventHandle event_handle = {{0}};
    CUdeviceptr p = 0, at = 0;
    CUevent e = NULL;
    int fd = -1, shares = 77;

    api_begin();
    OK(cuDeviceGetAttribute, &shares,
       CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0);
    SAME(shares, !api_lacks("cuMemExportToShareableHandle"));
    if (shares) {
        OK(cuMemCreate, &h, 2 * MIB, &prop, 0);
    }
    SERVED(cuMemExportToShareableHandle, &fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) {
        OK(cuMemImportFromShareableHandle, &same, (void *)(intptr_t)fd,
           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        close(fd);
        OK(cuMemAddressReserve, &at, 2 * MIB, 0, 0, 0);
        OK(cuMemMap, at, 2 * MIB, 0, same, 0);
        OK(cuMemSetAccess, at, 2 * MIB, &read_write, 1);
        OK(cuMemsetD32_v2, at, 3, 1);
        SAME(api_word(at), 3);
    }
    if (api_lacks("cuMemExportToShareableHandle")) {
        ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuMemImportFromShareableHandle, &same,
                (void *)(intptr_t)0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    }
    OK(cuMemAlloc_v2, &p, 4096);
    if (api_lacks("linear-exports")) {
        INVALID(cuIpcGetMemHandle, &memory, p);
    } else {
        SERVED(cuIpcGetMemHandle, &memory, p) {
            INVALID(cuIpcGetMemHandle, &memory, ABSENT);
            INVALID(cuIpcGetMemHandle, NULL, p);
        }
    }
    if (!api_lacks("cuIpcGetEventHandle")) {
        OK(cuEventCreate, &e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    }
    SERVED(cuIpcGetEventHandle, &event_handle, e) {
        INVALID(cuIpcGetEventHandle, NULL, e);
    }
}
