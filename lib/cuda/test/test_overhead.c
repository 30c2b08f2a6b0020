/* What only measurement shows: charged when it is seen, an estimate where the driver hides it. */
#define _GNU_SOURCE
#include "cuda/test/daemon.h"
#include "cuda/test/nvml.h"
#include "cuda/test/setting.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#ifndef TEST_NVML
#error "TEST_NVML names the fake NVML"
#endif

#define LIMIT (64 * MIB)

static struct setting s;

static struct fake_nvml *open_all(void) {
    setting_open(&s);
    void *library = dlopen(setting_path(&s, "libnvidia-ml.so.1"), RTLD_NOW);
    CHECK(library != NULL);
    struct fake_nvml *nvml = dlsym(library, "fake_nvml");
    CHECK(nvml != NULL);
    return nvml;
}

static void load_module(void) {
    CUmodule module;
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, ""), CUDA_SUCCESS);
}

static void measured(void *arg) {
    struct fake_nvml *nvml = open_all();
    CUdeviceptr address;
    CUcontext context;
    (void)arg;
    nvml->held = 10 * MIB; /* the context */
    context = setting_context(&s);
    CHECK_EQUAL(setting_overhead(&s), 10 * MIB);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 20 * MIB), CUDA_SUCCESS);
    nvml->held = 30 * MIB;
    load_module();
    CHECK_EQUAL(setting_overhead(&s), 10 * MIB);
    nvml->held = 50 * MIB; /* the module takes as much as the allocation */
    load_module();
    CHECK_EQUAL(setting_overhead(&s), 30 * MIB);
    CHECK_EQUAL(setting_used(&s), 50 * MIB);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 20 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    nvml->held = 90 * MIB; /* past the limit: charged all the same, and nothing fits beside it */
    load_module();
    CHECK_EQUAL(setting_used(&s), 90 * MIB);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    size_t available = 1, total = 1;
    CHECK_EQUAL(CUDA(&s, cuMemGetInfo_v2)(&available, &total), CUDA_SUCCESS);
    CHECK_EQUAL(available, 0);
    CHECK_EQUAL(total, LIMIT);
    nvml->held = 0;
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), 0);
}

/* Thousands of loads ask seldom; what they took is found before an allocation is decided. */
static void seldom(void *arg) {
    struct fake_nvml *nvml = open_all();
    CUdeviceptr address;
    (void)arg;
    nvml->held = 10 * MIB;
    setting_context(&s);
    uint64_t begun = os_now_ns();
    for (int i = 0; i < 3000; i++) {
        load_module();
    }
    uint64_t most = 1 + 8 + 4 * (1 + (os_now_ns() - begun) / 1000000000u);
    CHECK((uint64_t)nvml->questions <= most);
    nvml->held = 60 * MIB;
    load_module();
    CHECK_EQUAL(setting_overhead(&s), 10 * MIB);
    while (CUDA(&s, cuMemAlloc_v2)(&address, 20 * MIB) == CUDA_SUCCESS) {
        CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(address), CUDA_SUCCESS);
    }
    CHECK_EQUAL(setting_overhead(&s), 60 * MIB);
}

static void agent_measures(uint64_t overhead) {
    uint64_t now = os_now_ns();
    setting_write(&s, 0, offsetof(dv_page_device, overhead), &overhead, sizeof overhead);
    setting_write(&s, 0, offsetof(dv_page_device, measured), &now, sizeof now);
}

/* The first context is measured at once, all that comes later by the agent. */
static void by_agent(void *arg) {
    struct fake_nvml *nvml = open_all();
    CUdeviceptr address;
    CUcontext second;
    (void)arg;
    agent_measures(0);
    nvml->held = 10 * MIB;
    CUcontext first = setting_context(&s);
    CHECK_EQUAL(setting_overhead(&s), 10 * MIB);
    int asked = nvml->questions;
    CHECK_EQUAL(asked, 2); /* for the GPU, and for its processes */
    nvml->held = 50 * MIB;
    load_module();
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(first), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 20 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(address), CUDA_SUCCESS);
    CHECK_EQUAL(setting_overhead(&s), 10 * MIB);
    agent_measures(40 * MIB);
    CHECK_EQUAL(setting_overhead(&s), 50 * MIB);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 20 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(nvml->questions, asked);
    size_t available = 1, total = 1;
    CHECK_EQUAL(CUDA(&s, cuMemGetInfo_v2)(&available, &total), CUDA_SUCCESS);
    CHECK_EQUAL(available, 14 * MIB);
    agent_measures(0);
}

/* An agent that is gone left its figure: what it counts already is not charged again. */
static void agent_gone(void *arg) {
    struct fake_nvml *nvml = open_all();
    uint64_t overhead = 20 * MIB, long_ago = 1;
    (void)arg;
    nvml->held = 10 * MIB;
    setting_context(&s);
    setting_write(&s, 0, offsetof(dv_page_device, overhead), &overhead, sizeof overhead);
    setting_write(&s, 0, offsetof(dv_page_device, measured), &long_ago, sizeof long_ago);
    s.share->gpu[0].eased = 0; /* nothing ended since */
    nvml->held = 45 * MIB;
    load_module();
    CHECK_EQUAL(setting_overhead(&s), 45 * MIB);
    agent_measures(0);
}

static void hidden(void *arg) {
    struct fake_nvml *nvml = open_all();
    nvml->hidden = *(int *)arg;
    nvml->held = nvml->hidden ? 10 * MIB : UINT64_MAX;
    CUcontext first = setting_context(&s), second;
    CHECK_EQUAL(setting_overhead(&s), BLOCK);
    load_module();
    CHECK_EQUAL(setting_overhead(&s), BLOCK);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(first), CUDA_SUCCESS);
    CHECK_EQUAL(setting_overhead(&s), BLOCK);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), 0);
}

/* A context that does not fit is not made. */
static void no_room(void *arg) {
    CUcontext context = (CUcontext)&s;
    uint64_t estimate = LIMIT + 2 * MIB;
    (void)arg;
    setting_write(&s, 0, offsetof(dv_page_device, context_bytes), &estimate, sizeof estimate);
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(context == (CUcontext)&s);
    CHECK_EQUAL(setting_used(&s), 0);
}

/* A context that was made without us, as through an export table, is charged when it is first
   met. */
static void made_elsewhere(void *arg) {
    CUcontext context;
    CUdeviceptr address;
    (void)arg;
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    __extension__ CUresult (*retain)(CUcontext *, CUdevice) =
        (CUresult (*)(CUcontext *, CUdevice))setting_real(&s, "cuDevicePrimaryCtxRetain");
    CHECK_EQUAL(retain(&context, 0), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), 0);
    dv_reap(s.share); /* those of before, which eases too */
    s.share->gpu[0].eased = 0;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 2 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), 2 * BLOCK);
    CHECK(s.share->gpu[0].eased != 0); /* an agent may have counted the context */
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), 2 * BLOCK);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), 0);
}

/* The process is a client of MPS, for which NVML has a list of its own. */
static void client(void *arg) {
    struct fake_nvml *nvml = open_all();
    (void)arg;
    nvml->client = 1;
    nvml->held = 10 * MIB;
    setting_context(&s);
    CHECK_EQUAL(setting_overhead(&s), 10 * MIB);
}

static void under_mps(void) {
    uint32_t flags = DV_PAGE_FLAG_MPS;
    uint64_t context = BLOCK;
    const char *pipe = s.tenant.directory;
    tenant_write(&s.tenant, "config", offsetof(dv_page_config, flags), &flags, sizeof flags);
    tenant_write(&s.tenant, "config", offsetof(dv_page_config, mps_pipe), pipe, strlen(pipe));
    setting_write(&s, 0, offsetof(dv_page_device, context_bytes), &context, sizeof context);
    daemon_start(setting_path(&s, "control"), GREETS);
    wait_exited(spawn(client, NULL));
    daemon_end();
}

/* The driver's figure may have memory of other threads' calls. What was known before stands, as far
 * as it can, until a figure comes that nothing disturbs. */
static void beside_calls(void *arg) {
    struct fake_nvml *nvml = open_all();
    CUdeviceptr address;
    dv_share *other; /* its calls are of the same process, like another thread's */
    (void)arg;
    CHECK_EQUAL(dv_share_open(s.tenant.directory, &other, NULL), DV_OK);
    CHECK_EQUAL(dv_reserve(other, 0, 8 * MIB), DV_OK);
    nvml->held = 10 * MIB;
    setting_context(&s);
    CHECK_EQUAL(setting_overhead(&s), 10 * MIB);
    nvml->held = 16 * MIB; /* may all be the call's */
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 2 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(setting_overhead(&s), 10 * MIB);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(address), CUDA_SUCCESS);
    nvml->held = 30 * MIB; /* cannot */
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 2 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(setting_overhead(&s), 22 * MIB);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(address), CUDA_SUCCESS);
    dv_settle(other, 0, 8 * MIB, 0);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 2 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(setting_overhead(&s), 30 * MIB);
    nvml->held = 90 * MIB; /* found no more: nothing is due */
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(address), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 2 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(setting_overhead(&s), 30 * MIB);
}

int main(void) {
    int unnamed = 0, unseen = 1;
    setting_make(&s, 1, LIMIT, NULL);
    CHECK(symlink(TEST_NVML, setting_path(&s, "libnvidia-ml.so.1")) == 0);
    wait_exited(spawn(measured, NULL));
    wait_exited(spawn(beside_calls, NULL));
    wait_exited(spawn(seldom, NULL));
    wait_exited(spawn(by_agent, NULL));
    wait_exited(spawn(agent_gone, NULL));
    wait_exited(spawn(hidden, &unnamed));
    wait_exited(spawn(hidden, &unseen));
    wait_exited(spawn(made_elsewhere, NULL));
    wait_exited(spawn(no_room, NULL));
    under_mps();
    return 0;
}
