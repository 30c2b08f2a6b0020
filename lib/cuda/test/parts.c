#include "cuda/test/parts.h"

#include <unistd.h>

struct setting s;
CUcontext context;
static CUfunction sweep;
CUdeviceptr parts[PARTS];

const char parts_image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                           ".visible .entry divvy_busy_ns(.param .u64 a) { ret; }\n"
                           ".visible .entry divvy_sweep(.param .u64 p, .param .u64 b, .param .u32 "
                           "r, .param .u32 w, .param .u32 o, .param .u32 s, .param .u64 n) "
                           "{ ret; }\n";

uint64_t parts_resident(void) {
    sim_look();
    return sim_seen(&s, 0, "managed");
}

CUresult parts_go_over(CUdeviceptr part, CUstream stream) {
    uint64_t bytes = PART, ns = MS;
    unsigned reads = 1, writes = 1, order = 0, seed = 0;
    void *parameters[] = {&part, &bytes, &reads, &writes, &order, &seed, &ns};
    return CUDA(&s, cuLaunchKernel)(sweep, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

void parts_use(unsigned set) {
    orders_await_done(&s, orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX));
    for (unsigned i = 0; i < PARTS; i++) {
        if (set & 1u << i) {
            CHECK_EQUAL(parts_go_over(parts[i], NULL), CUDA_SUCCESS);
        }
    }
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
}

void parts_leave(uint64_t give) {
    orders_await_done(&s, orders_give(DV_PAGE_TURN_LEAVING, give, 0));
    orders_await_done(&s, orders_give(DV_PAGE_TURN_AWAY, 0, 0));
}

void parts_enter(uint64_t room) {
    orders_await_done(&s, orders_give(DV_PAGE_TURN_ENTERING, 0, room));
}

void parts_begin(void) {
    CUmodule module;
    sim_load_ns = PARTS_LOAD_NS;
    orders_make(&s, 1, (uint64_t)1 << 30, 256 * MIB);
    setting_open(&s);
    context = setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, parts_image), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleGetFunction)(&sweep, module, "divvy_sweep"), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAllocManaged)(&parts[0], PART, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    for (unsigned i = 1; i < PARTS; i++) {
        CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&parts[i], PART), CUDA_SUCCESS);
    }
    CHECK_EQUAL(busy_launch(&s, NULL, US), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    while (orders_present(&s, 0).takes_part == 0) {
        usleep(500);
    }
    CHECK(orders_present(&s, 0).called != 0);
    CHECK_EQUAL(orders_present(&s, 0).waits, 0);
}
