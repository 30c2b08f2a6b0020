/* cuGetProcAddress: whichever version a program asks for, ours stands in front of just that one. */
#include "cuda/test/setting.h"

static struct setting s;

static void *ask(const char *base, int version, cuuint64_t flags) {
    void *plain = NULL, *newer = NULL;
    CUdriverProcAddressQueryResult status;
    CUresult first = CUDA(&s, cuGetProcAddress)(base, &plain, version, flags);
    CHECK_EQUAL(CUDA(&s, cuGetProcAddress_v2)(base, &newer, version, flags, &status), first);
    CHECK(plain == newer);
    return newer;
}

static void *ours(const char *name) {
    void *function = setting_function(&s, name);
    CHECK(function != setting_real(&s, name));
    return function;
}

int main(void) {
    void *nothing = &s;
    CUdriverProcAddressQueryResult status;
    setting_make(&s, 1, 64 * MIB, NULL);
    setting_open(&s);

    CHECK(ask("cuMemAlloc", 12000, 0) == ours("cuMemAlloc_v2"));
    CHECK(ask("cuCtxCreate", 2000, 0) == ours("cuCtxCreate"));
    CHECK(ask("cuCtxCreate", 3020, 0) == ours("cuCtxCreate_v2"));
    CHECK(ask("cuCtxCreate", 12000, 0) == ours("cuCtxCreate_v3"));
    CHECK(ask("cuGetProcAddress", 11030, 0) == ours("cuGetProcAddress"));
    CHECK(ask("cuGetProcAddress", 12000, 0) == ours("cuGetProcAddress_v2"));

    /* The stream that NULL means is part of what is asked for. */
    CHECK(ask("cuMemFreeAsync", 12000, CU_GET_PROC_ADDRESS_DEFAULT) == ours("cuMemFreeAsync"));
    CHECK(ask("cuMemFreeAsync", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) ==
          ours("cuMemFreeAsync_ptsz"));
    CHECK(ask("cuLaunchKernel", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) ==
          ours("cuLaunchKernel_ptsz"));

    /* What we do not stand in front of is the driver's own: no jump in between, no other
       version. */
    CHECK(ask("cuDevicePrimaryCtxSetFlags", 7000, 0) ==
          setting_real(&s, "cuDevicePrimaryCtxSetFlags"));
    CHECK(ask("cuDevicePrimaryCtxSetFlags", 12000, 0) ==
          setting_real(&s, "cuDevicePrimaryCtxSetFlags_v2"));

    /* Two names for one function of the driver: the name decides. */
    CHECK(setting_real(&s, "cuStreamQuery") == setting_real(&s, "cuStreamSynchronize"));
    CHECK(ask("cuStreamSynchronize", 12000, 0) == ours("cuStreamSynchronize"));
    CHECK(ask("cuStreamQuery", 12000, 0) == ours("cuStreamQuery"));

    /* A function that has no name: the name asked for decides. One whose name is newer than us:
     * passed on. */
    CHECK(ask("cuMemFree", 12000, 0) == ours("cuMemFree_v2"));
    CHECK(ask("cuMemAlloc", 14000, 0) == setting_real(&s, "cuMemAlloc_v9"));

    CHECK_EQUAL(CUDA(&s, cuGetProcAddress_v2)("cuNoSuch", &nothing, 12000, 0, &status),
                CUDA_ERROR_NOT_FOUND);
    CHECK(nothing == NULL);
    CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);

    /* A name that the driver lacks can be linked to and says so when it is called. */
    CHECK_EQUAL(CUDA(&s, cuGreenCtxDestroy)(NULL), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(CUDA(&s, cuProfilerStart)(), CUDA_ERROR_NOT_SUPPORTED);
    return 0;
}
