#include "cuda/test/busy.h"

#include <stddef.h>
#include <string.h>

#include "share/state.h"

dv_page_budget busy_budget = {.flags = DV_PAGE_BUDGET_LIMITED,
                              .rate = DV_PAGE_WHOLE,
                              .base = DV_PAGE_WHOLE,
                              .stretch = DV_PAGE_WHOLE,
                              .burst = 1000 * (uint64_t)MS,
                              .depth = 1000 * (uint64_t)MS};

const char busy_image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry divvy_busy_ns(.param .u64 a) { ret; }\n";

void busy_grant(struct setting *setting, unsigned gpu) {
    tenant_grant(&setting->tenant, gpu, &busy_budget);
}

void busy_make(struct setting *setting, unsigned gpus) {
    sim_make(setting, gpus, (uint64_t)1 << 30);
    for (unsigned i = 0; i < gpus; i++) {
        busy_grant(setting, i);
    }
    setting_context(setting);
    busy_kernel(setting);
}

CUfunction busy_kernel(struct setting *setting) {
    static CUfunction function;
    CUmodule module;
    if (function == NULL) {
        CHECK_EQUAL(CUDA(setting, cuModuleLoadData)(&module, busy_image), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(setting, cuModuleGetFunction)(&function, module, "divvy_busy_ns"),
                    CUDA_SUCCESS);
    }
    return function;
}

CUresult busy_launch(struct setting *setting, CUstream stream, uint64_t ns) {
    void *parameters[] = {&ns};
    return CUDA(setting, cuLaunchKernel)(busy_kernel(setting), 1, 1, 1, 1, 1, 1, 0, stream,
                                         parameters, NULL);
}

CUresult busy_launch_new(struct setting *setting, CUstream stream) {
    CUlibrary library;
    union {
        CUkernel kernel;
        CUfunction function;
    } as;
    uint64_t ns = 20 * US;
    void *parameters[] = {&ns};
    __extension__ __typeof__(&cuLibraryGetKernel) get =
        (__typeof__(&cuLibraryGetKernel))setting_real(setting, "cuLibraryGetKernel");
    CHECK_EQUAL(
        CUDA(setting, cuLibraryLoadData)(&library, busy_image, NULL, NULL, 0, NULL, NULL, 0),
        CUDA_SUCCESS);
    CHECK_EQUAL(get(&as.kernel, library, "divvy_busy_ns"), CUDA_SUCCESS);
    CUresult result =
        CUDA(setting, cuLaunchKernel)(as.function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    busy_sync(setting, stream);
    CHECK_EQUAL(CUDA(setting, cuLibraryUnload)(library), CUDA_SUCCESS);
    return result;
}

void busy_sync(struct setting *setting, CUstream stream) {
    CHECK_EQUAL(CUDA(setting, cuStreamSynchronize)(stream), CUDA_SUCCESS);
}

dv_page_bucket busy_bucket(const struct setting *setting, unsigned gpu) {
    return setting->share->gpu[gpu].bucket;
}

dv_page_worker busy_worker(const struct setting *setting, unsigned gpu) {
    return setting->share->gpu[gpu].worker[0];
}

static unsigned kept(const dv_page_worker *worker) {
    return worker->count < DV_PAGE_INTERVALS ? worker->count : DV_PAGE_INTERVALS;
}

uint64_t busy_measured(const dv_page_worker *worker) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < kept(worker); i++) {
        sum += worker->interval[i].end - worker->interval[i].begin;
    }
    return sum;
}

uint64_t busy_measured_charge(const dv_page_worker *worker) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < kept(worker); i++) {
        sum += worker->interval[i].charged;
    }
    return sum;
}
