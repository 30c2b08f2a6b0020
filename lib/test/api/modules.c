/* Code: modules, libraries, linking, and what functions tell. */
#include "test/api/api.h"

#include <string.h>

static void check_globals(CUmodule module) {
    CUdeviceptr at = 77, same = 0;
    size_t bytes = 77;
    uint64_t table[2] = {0};

    OK(cuModuleGetGlobal_v2, &at, &bytes, module, "table");
    SAME(bytes, 16);
    OK(cuMemcpyDtoH_v2, table, at, 16);
    TRUE(table[0] == 11 && table[1] == 12);
    OK(cuMemsetD8_v2, at, 3, 8);
    OK(cuModuleGetGlobal_v2, &same, NULL, module, "table");
    SAME(same, at);
    OK(cuMemcpyDtoH_v2, table, at, 16);
    TRUE(table[0] == 0x0303030303030303 && table[1] == 12);
    OK(cuModuleGetGlobal_v2, NULL, &bytes, module, "constant");
    SAME(bytes, 4096);
    OK(cuModuleGetGlobal_v2, &at, &bytes, module, "constant");
    OK(cuMemsetD8_v2, at, 7, 4096);
    TRUE(api_is_filled(at, 7, 4096));
    INVALID(cuMemFree_v2, at);
    at = bytes = 77;
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2, &at, &bytes, module, "nothing");
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2, &at, &bytes, module, "divvy_fill");
    INVALID(cuModuleGetGlobal_v2, &at, &bytes, module, NULL);
    INVALID(cuModuleGetGlobal_v2, NULL, NULL, module, "table");
    SAME(at, 77);
}

void api_case_modules(void) {
    CUmodule module = NULL, other = NULL;
    CUfunction f = NULL, g = NULL;
    CUdeviceptr one = 0, two = 0;
    unsigned count = 0;

    api_begin();
    OK(cuModuleLoadData, &module, api_ptx);
    check_globals(module);
    OK(cuModuleGetFunction, &f, module, "divvy_fill");
    OK(cuModuleGetFunction, &g, module, "divvy_vecadd");
    TRUE(f != g && f && g);
    OK(cuModuleGetFunctionCount, &count, module);
    SAME(count, 4);
    g = (CUfunction)7;
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction, &g, module, "nothing");
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction, &g, module, "table");
    TRUE(g == (CUfunction)7);
    INVALID(cuModuleGetFunction, NULL, module, "none");
    INVALID(cuModuleGetFunction, &g, module, NULL);
    OK(cuModuleLoadData, &other, api_ptx);
    OK(cuModuleGetGlobal_v2, &one, NULL, module, "table");
    OK(cuModuleGetGlobal_v2, &two, NULL, other, "table");
    TRUE(one != two);
    OK(cuModuleLoadDataEx, &other, api_ptx, 0, NULL, NULL);
    OK(cuModuleUnload, other);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload, other);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction, &g, other, "none");
    OK(cuModuleUnload, module);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    ANSWERS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData, &module, "no code at all");
    ANSWERS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad, &module, "/nonexistent/file");
    INVALID(cuModuleLoadData, NULL, api_ptx);
    INVALID(cuModuleLoadData, &module, NULL);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload, NULL);
}

void api_case_libraries(void) {
    CUlibrary library = NULL, of = NULL;
    CUkernel kernel = NULL, all[8] = {0};
    CUfunction f = NULL;
    CUmodule module = NULL;
    unsigned count = 0;
    const char *name = NULL;
    CUdeviceptr at = 0;
    size_t bytes = 0, offset = 77, size = 77;
    int value = -1;

    api_begin();
    OK(cuLibraryLoadData, &library, api_ptx, NULL, NULL, 0, NULL, NULL, 0);
    OK(cuLibraryGetKernelCount, &count, library);
    SAME(count, 4);
    OK(cuLibraryEnumerateKernels, all, 8, library);
    TRUE(all[0] && all[3] && !all[4]);
    OK(cuLibraryGetKernel, &kernel, library, "mixed");
    OK(cuKernelGetName, &name, kernel);
    TRUE(name && strcmp(name, "mixed") == 0);
    if (api_has("cuKernelGetLibrary")) { /* of CUDA 12.5 */
        OK(cuKernelGetLibrary, &of, kernel);
        TRUE(of == library);
    }
    OK(cuKernelGetFunction, &f, kernel);
    OK(cuFuncGetName, &name, f);
    TRUE(name && strcmp(name, "mixed") == 0);
    SERVED(cuLibraryGetModule, &module, library) {
        OK(cuModuleGetFunction, &f, module, "none");
    }
    OK(cuLibraryGetKernel, &kernel, library, "none");
    OK(cuLaunchKernel, (CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    OK(cuLibraryGetKernel, &kernel, library, "mixed");
    OK(cuLibraryGetGlobal, &at, &bytes, library, "table");
    SAME(bytes, 16);
    OK(cuKernelGetParamInfo, kernel, 2, &offset, &size);
    SAME(offset, 16);
    SAME(size, 20);
    OK(cuKernelGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0);
    TRUE(value > 0 && value <= 1024);
    OK(cuKernelSetCacheConfig, kernel, CU_FUNC_CACHE_PREFER_L1, 0);
    OK(cuCtxSynchronize);
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel, &kernel, library, "nothing");
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuLibraryGetGlobal, &at, &bytes, library, "nothing");
    ANSWERS(CUDA_ERROR_INVALID_IMAGE, cuLibraryLoadData, &of, "no code", NULL, NULL, 0, NULL, NULL,
            0);
    INVALID(cuLibraryLoadData, &of, NULL, NULL, NULL, 0, NULL, NULL, 0);
    OK(cuLibraryUnload, library);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload, library);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetKernelCount, &count, library);
}

void api_case_linking(void) {
    static char one[] =
        ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry one() { ret; }\n";
    static char two[] =
        ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry two() { ret; }\n";
    CUlinkState link = NULL;
    CUmodule module = NULL;
    CUfunction f = NULL;
    void *image = NULL;
    size_t size = 0;

    api_begin();
    OK(cuLinkCreate_v2, 0, NULL, NULL, &link);
    OK(cuLinkAddData_v2, link, CU_JIT_INPUT_PTX, one, sizeof one, "one", 0, NULL, NULL);
    OK(cuLinkAddData_v2, link, CU_JIT_INPUT_PTX, two, sizeof two, "two", 0, NULL, NULL);
    OK(cuLinkComplete, link, &image, &size);
    TRUE(image != NULL && size > 0);
    OK(cuModuleLoadData, &module, image);
    OK(cuLinkDestroy, link);
    OK(cuModuleGetFunction, &f, module, "one");
    OK(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    OK(cuModuleGetFunction, &f, module, "two");
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction, &f, module, "three");
    OK(cuCtxSynchronize);
    OK(cuModuleUnload, module);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy, link);
    INVALID(cuLinkCreate_v2, 0, NULL, NULL, NULL);
    OK(cuLinkCreate_v2, 0, NULL, NULL, &link);
    ANSWERS(CUDA_ERROR_FILE_NOT_FOUND, cuLinkAddFile_v2, link, CU_JIT_INPUT_PTX,
            "/nonexistent/file", 0, NULL, NULL);
    OK(cuLinkDestroy, link);
}

static void check_params(CUfunction mixed, CUfunction none) {
    static const struct {
        size_t offset, size;
    } wanted[] = {{0, 8}, {8, 1}, {16, 20}, {40, 8}};
    size_t offset = 77, size = 77, count = 77;

    for (size_t i = 0; i < COUNT(wanted); i++) {
        OK(cuFuncGetParamInfo, mixed, i, &offset, &size);
        SAME(offset, wanted[i].offset);
        SAME(size, wanted[i].size);
        OK(cuFuncGetParamInfo, mixed, i, &offset, NULL);
    }
    INVALID(cuFuncGetParamInfo, mixed, 4, &offset, &size);
    INVALID(cuFuncGetParamInfo, none, 0, &offset, &size);
    INVALID(cuFuncGetParamInfo, mixed, 0, NULL, &size);
    if (api_has("cuFuncGetParamCount")) {
        CUresult result = CU(cuFuncGetParamCount)(mixed, &count);
        TRUE(result == CUDA_SUCCESS ? count == 4 : count == 77);
    }
}

void api_case_functions(void) {
    CUfunction mixed, none;
    CUmodule module = NULL;
    CUfunctionLoadingState state = (CUfunctionLoadingState)77;
    int value = -77, blocks = 0, grid = 0;
    size_t bytes = 0;

    api_begin();
    mixed = api_function("mixed");
    none = api_function("none");
    check_params(mixed, none);
    static const CUfunction_attribute plain[] = {
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_NUM_REGS,          CU_FUNC_ATTRIBUTE_PTX_VERSION,
        CU_FUNC_ATTRIBUTE_BINARY_VERSION,    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES};
    for (size_t i = 0; i < COUNT(plain); i++) {
        value = -77;
        OK(cuFuncGetAttribute, &value, plain[i], none);
        TRUE(value >= 0);
    }
    OK(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, none);
    TRUE(value > 0 && value <= 1024);
    OK(cuFuncSetAttribute, none, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 40000);
    OK(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, none);
    SAME(value, 40000);
    INVALID(cuFuncSetAttribute, none, CU_FUNC_ATTRIBUTE_NUM_REGS, 5);
    INVALID(cuFuncGetAttribute, &value, (CUfunction_attribute)999, none);
    INVALID(cuFuncGetAttribute, NULL, CU_FUNC_ATTRIBUTE_NUM_REGS, none);
    OK(cuFuncSetCacheConfig, none, CU_FUNC_CACHE_PREFER_SHARED);
    OK(cuFuncGetModule, &module, none);
    TRUE(module != NULL);
    OK(cuFuncLoad, none);
    OK(cuFuncIsLoaded, &state, none);
    SAME(state, CU_FUNCTION_LOADING_STATE_LOADED);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, none, 256, 0);
    TRUE(blocks > 0);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor, &value, none, 1024, 0);
    TRUE(value > 0 && value <= blocks);
    OK(cuOccupancyMaxPotentialBlockSize, &grid, &value, none, NULL, 0, 0);
    TRUE(grid > 0 && value > 0 && value <= 1024);
    SERVED(cuOccupancyAvailableDynamicSMemPerBlock, &bytes, none, 1, 256) {
        TRUE(bytes > 0);
    }
    INVALID(cuOccupancyMaxActiveBlocksPerMultiprocessor, NULL, none, 256, 0);
    INVALID(cuOccupancyMaxActiveBlocksPerMultiprocessor, &value, none, 0, 0);
}
