/* Code through a relay, where client and worker share no memory: what the worker has is not sent again. */
#include "remote/generated/cuda_decode.h"
#include "remote/test/pair.h"
#include "remote/test/relay.h"
#include "remote/test/sequence.h"

#include <string.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define SIZE 3000000u
#define LITTLE 4096u

static struct remote_cuda_driver d;
static char text[SIZE];

/* Loads the code, runs its kernel, and returns how many bytes that took. Records before the answer have come. */
static uint64_t load(const char *code, unsigned value) {
    CUdeviceptr memory;
    CUmodule module;
    CUfunction fill;
    uint64_t words = 4, before = relay_sent();
    unsigned there[4] = {0};
    void *params[] = {&memory, &value, &words};

    OK(d.cuModuleLoadData(&module, code));
    uint64_t took = relay_sent() - before;
    OK(d.cuModuleGetFunction(&fill, module, "divvy_fill"));
    OK(d.cuMemAlloc_v2(&memory, sizeof there));
    OK(d.cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(d.cuMemcpyDtoH_v2(there, memory, sizeof there));
    CHECK(there[0] == value && there[3] == value);
    OK(d.cuMemFree_v2(memory));
    OK(d.cuModuleUnload(module));
    return took;
}

/* What the linker made is at the worker already. */
static uint64_t load_linked(void) {
    CUlinkState linker;
    void *made;
    size_t size;

    OK(d.cuLinkCreate_v2(0, NULL, NULL, &linker));
    OK(d.cuLinkAddData_v2(linker, CU_JIT_INPUT_PTX, text, SIZE - 2, "text", 0, NULL, NULL));
    OK(d.cuLinkComplete(linker, &made, &size));
    CHECK(size >= SIZE - 2 && strncmp(made, text, SIZE - 2) == 0);
    uint64_t took = load(made, 9);
    OK(d.cuLinkDestroy(linker));
    return took;
}

int main(void) {
    CUcontext one, other;
    sim_machine machine;

    memset(text, ' ', SIZE - 1);
    const char head[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                        ".visible .entry divvy_fill(.param .u64 a, .param .u32 b, .param .u64 c)"
                        " { ret; }\n";
    memcpy(text, head, sizeof head - 1);
    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    apart_start(false);
    relay_start();
    remote_cuda_driver_find(&d, pair_find);
    OK(d.cuInit(0));
    OK(d.cuCtxCreate_v2(&one, 0, 0));
    CHECK(load(text, 1) >= SIZE);
    CHECK(load(text, 2) < LITTLE);
    OK(d.cuCtxCreate_v2(&other, 0, 1));
    CHECK(load(text, 3) < LITTLE);
    text[SIZE / 2] = '\n';
    CHECK(load(text, 4) >= SIZE);
    CHECK(load(text, 5) < LITTLE);
    CHECK(load_linked() < LITTLE);
    relay_end();
    apart_end();
    return 0;
}
