/* Managed memory as programs use it: what touches it, what that costs on events, what ordinary memory displaces, what the
 * process is told when host memory runs out. On a virtual clock. */
#include "simgpu/cuda/test/cuda.h"

#include <string.h>

#define US 1000ull
#define MS 1000000ull
#define CHUNK_NS (100 * US)
#define FAULT_NS (30 * US)
#define EVENT 500ull
#define HOST_BLOCKS 200u

static struct sg_instance *in;

static void describe(sim_machine *machine) {
    machine->virtual_clock = 1;
    machine->event_ns = EVENT;
    machine->half_duplex = 1;
    machine->named_touched = 1;
    machine->kernel_ns = 10 * US;
    machine->host_bytes = HOST_BLOCKS * BLOCK;
    for (unsigned i = 0; i < GPU_COUNT; i++) {
        machine->gpus[i].host_rate = BLOCK * 10000;
    }
}

static const struct sg_page_account *account(uint32_t gpu) {
    return &sg_pager(in, in->id, gpu)->account;
}

static uint64_t settled(void) {
    sg_clock_move(in, 10000 * MS);
    for (uint32_t gpu = 0; gpu < GPU_COUNT; gpu++) {
        sg_advance(in, gpu, sg_time(in));
    }
    return sg_time(in);
}

static CUevent mark(CUstream stream) {
    CUevent event;

    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, stream));
    return event;
}

/* When the event was reached, from a moment on. */
static uint64_t after(uint64_t from, CUevent event) {
    settled();
    OK(cuEventQuery(event));
    uint64_t moment = event->mark.moment;
    OK(cuEventDestroy_v2(event));
    return moment - from;
}

static void go(const char *kernel, CUdeviceptr at, uint64_t bytes, unsigned reads, unsigned writes,
               uint64_t ns) {
    unsigned order = 0, seed = 1;
    void *params[] = {&at, &bytes, &reads, &writes, &order, &seed, &ns};

    OK(cuLaunchKernel(cuda_kernel(kernel), 10, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

static void check_kernels(void) {
    CUdeviceptr m;
    uint64_t t = settled();

    OK(cuMemAllocManaged(&m, 10 * BLOCK, CU_MEM_ATTACH_GLOBAL));
    /* The program fills two; the kernel goes over all. */
    memset((void *)(uintptr_t)m, 7, 2 * BLOCK);
    go("divvy_sweep", m, 10 * BLOCK, 1, 0, 20 * US);
    CHECK_EQUAL(after(t, mark(NULL)), 20 * US + 10 * FAULT_NS + 2 * CHUNK_NS + EVENT);
    CHECK_EQUAL(cuda_true(SG_MANAGED), 10 * BLOCK);
    CHECK_EQUAL(account(0)->in, 2 * BLOCK);
    t = settled();
    go("divvy_sweep", m, 10 * BLOCK, 2, 1, 20 * US);
    CHECK_EQUAL(after(t, mark(NULL)), 20 * US + EVENT);
    CHECK_EQUAL(in->state->pages.host_chunks, 0);
    CHECK_EQUAL(((char *)(uintptr_t)m)[BLOCK], 7);
    /* Random places of what is elsewhere: the faults of all that miss are one batch. */
    OK(cuMemPrefetchAsync(m, 10 * BLOCK, CU_DEVICE_CPU, NULL));
    settled();
    CHECK_EQUAL(cuda_true(SG_MANAGED), 0);
    CHECK_EQUAL(in->state->pages.host_chunks, 10);
    uint64_t faults = account(0)->faults;
    t = settled();
    go("divvy_scatter", m, 10 * BLOCK, 100, 0, 20 * US);
    CHECK_EQUAL(after(t, mark(NULL)), 20 * US + FAULT_NS + 10 * CHUNK_NS + EVENT);
    CHECK_EQUAL(account(0)->faults - faults, 1);
    /* Of three arrays two are read and one is written. */
    CUdeviceptr half = m + 5 * BLOCK;
    unsigned n = 1000;
    void *params[] = {&m, &half, &half, &n};
    OK(cuMemPrefetchAsync(m, 10 * BLOCK, CU_DEVICE_CPU, NULL));
    settled();
    OK(cuLaunchKernel(cuda_kernel("divvy_vecadd"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    settled();
    CHECK_EQUAL(cuda_true(SG_MANAGED), 2 * BLOCK);
    CHECK_EQUAL(in->state->pages.host_chunks, 9);
    /* Memory of other kinds is gone through for nothing; what is nowhere is a fault. */
    CUdeviceptr ordinary;
    OK(cuMemAlloc_v2(&ordinary, BLOCK));
    t = settled();
    go("divvy_sweep", ordinary, BLOCK, 1, 1, 20 * US);
    CHECK_EQUAL(after(t, mark(NULL)), 20 * US + EVENT);
    OK(cuMemFree_v2(ordinary));
    OK(cuMemFree_v2(m));
    CHECK_EQUAL(cuda_true(SG_MANAGED), 0);
    CHECK_EQUAL(in->state->pages.host_chunks, 0);
}

/* What the program itself uses comes back to the host; work finds it there. */
static void check_program(void) {
    CUdeviceptr m;

    OK(cuMemAllocManaged(&m, 6 * BLOCK, CU_MEM_ATTACH_GLOBAL));
    volatile char *p = (volatile char *)(uintptr_t)m;
    go("divvy_sweep", m, 6 * BLOCK, 0, 1, 20 * US);
    settled();
    CHECK_EQUAL(cuda_true(SG_MANAGED), 6 * BLOCK);
    uint64_t out = account(0)->out, came = account(0)->in;
    p[BLOCK] = 1; /* writes the second, reads the last */
    CHECK_EQUAL(p[6 * BLOCK - 1], 0);
    uint64_t t = settled();
    go("divvy_sweep", m, 6 * BLOCK, 1, 0, 20 * US);
    CHECK_EQUAL(after(t, mark(NULL)), 20 * US + 2 * FAULT_NS + 4 * CHUNK_NS + EVENT);
    CHECK_EQUAL(account(0)->out - out, 2 * BLOCK);
    CHECK_EQUAL(account(0)->in - came, 2 * BLOCK);
    t = settled();
    go("divvy_sweep", m, 6 * BLOCK, 1, 0, 20 * US);
    CHECK_EQUAL(after(t, mark(NULL)), 20 * US + EVENT);
    /* The driver's own copies are not the program's. */
    OK(cuMemsetD8Async(m, 3, 6 * BLOCK, NULL));
    settled();
    t = settled();
    go("divvy_sweep", m, 6 * BLOCK, 1, 0, 20 * US);
    CHECK_EQUAL(after(t, mark(NULL)), 20 * US + EVENT);
    CHECK_EQUAL(p[3 * BLOCK], 3);
    OK(cuMemFree_v2(m));
}

/* Of a kernel that is not known by name the parameters tell, if the machine says so. */
static void check_named(void) {
    CUdeviceptr m;

    OK(cuMemAllocManaged(&m, 3 * BLOCK, CU_MEM_ATTACH_GLOBAL));
    CUdeviceptr inside = m + BLOCK;
    void *params[] = {&inside};
    OK(cuLaunchKernel(cuda_kernel("other"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    settled();
    CHECK_EQUAL(cuda_true(SG_MANAGED), 3 * BLOCK);
    OK(cuMemFree_v2(m));
}

static void check_copies(void) {
    static char host[BLOCK];
    CUdeviceptr m;

    OK(cuMemAllocManaged(&m, 4 * BLOCK, CU_MEM_ATTACH_GLOBAL));
    uint64_t t = settled();
    OK(cuMemcpyHtoDAsync_v2(m + 10, host, BLOCK, NULL));
    CHECK_EQUAL(after(t, mark(NULL)), 2 * FAULT_NS + CHUNK_NS + EVENT);
    CHECK_EQUAL(cuda_true(SG_MANAGED), 2 * BLOCK);
    OK(cuMemsetD8Async(m + 3 * BLOCK, 1, 5, NULL));
    settled();
    CHECK_EQUAL(cuda_true(SG_MANAGED), 3 * BLOCK);
    /* What a copy names as the host's is the CPU's: it goes back there. */
    OK(cuMemcpyDtoHAsync_v2((void *)(uintptr_t)(m + 3 * BLOCK), m, 100, NULL));
    settled();
    CHECK_EQUAL(cuda_true(SG_MANAGED), 2 * BLOCK);
    OK(cuMemFree_v2(m));
}

static void check_graph(void) {
    CUdeviceptr m;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;

    OK(cuMemAllocManaged(&m, 2 * BLOCK, CU_MEM_ATTACH_GLOBAL));
    CUDA_MEMSET_NODE_PARAMS p = {
        .dst = m, .value = 1, .elementSize = 1, .width = 2 * BLOCK, .height = 1};
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &p, sg_current()));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, NULL));
    settled();
    CHECK_EQUAL(cuda_true(SG_MANAGED), 2 * BLOCK);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree_v2(m));
}

/* To a GPU that is not the stream's: the stream waits for it all the same. */
static void check_other_gpu(void) {
    CUdeviceptr m;
    CUstream stream;

    OK(cuMemAllocManaged(&m, 2 * BLOCK, CU_MEM_ATTACH_GLOBAL));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    memset((void *)(uintptr_t)m, 1, 2 * BLOCK);
    OK(cuMemPrefetchAsync(m, 2 * BLOCK, 1, stream));
    FAILS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    settled();
    EVENTUALLY(cuStreamQuery(stream) == CUDA_SUCCESS);
    CHECK_EQUAL(account(1)->resident, 2);
    CHECK_EQUAL(account(1)->in, 2 * BLOCK);
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFree_v2(m));
}

static void check_advice(void) {
    CUdeviceptr m;
    int list[3];

    OK(cuMemAllocManaged(&m, 4 * BLOCK, CU_MEM_ATTACH_GLOBAL));
    memset((void *)(uintptr_t)m, 1, 4 * BLOCK);
    OK(cuMemAdvise(m, BLOCK, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    OK(cuMemAdvise(m + BLOCK, BLOCK, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
    OK(cuMemAdvise(m + 2 * BLOCK, BLOCK, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    FAILS(cuMemAdvise(m, BLOCK, CU_MEM_ADVISE_SET_ACCESSED_BY, 9), CUDA_ERROR_INVALID_DEVICE);
    FAILS(cuMemAdvise(m, 5 * BLOCK, CU_MEM_ADVISE_SET_READ_MOSTLY, 0), CUDA_ERROR_INVALID_VALUE);
    uint64_t t = settled();
    go("divvy_sweep", m, 4 * BLOCK, 1, 0, 4 * US);
    CHECK_EQUAL(after(t, mark(NULL)), 4 * US + 2 * FAULT_NS + 4 * CHUNK_NS + EVENT);
    CHECK_EQUAL(cuda_true(SG_MANAGED), 2 * BLOCK);
    /* A mostly read one is a copy: the CPU reads it without taking it back, until somebody writes. */
    OK(cuMemcpyDtoHAsync_v2((void *)(uintptr_t)(m + 3 * BLOCK), m + 2 * BLOCK, 8, NULL));
    settled();
    CHECK_EQUAL(cuda_true(SG_MANAGED), BLOCK);
    OK(cuMemRangeGetAttribute(list, sizeof list, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, m, BLOCK));
    CHECK_EQUAL(list[0], 0);
    OK(cuMemFree_v2(m));
}

/* Ordinary memory displaces it, and is not displaced. */
static void check_ordinary(void) {
    const size_t all = GPU_BYTES - GPU_RESERVED - 4 * MIB;
    CUdeviceptr m, ordinary;
    size_t free, total;

    OK(cuMemAllocManaged(&m, all, CU_MEM_ATTACH_GLOBAL));
    go("divvy_sweep", m, all, 0, 1, 10 * US);
    settled();
    CHECK_EQUAL(cuda_true(SG_MANAGED), all);
    OK(cuMemGetInfo_v2(&free, &total));
    CHECK_EQUAL(free, 0);
    OK(cuMemAlloc_v2(&ordinary, all - 20 * BLOCK));
    CHECK_EQUAL(cuda_true(SG_MANAGED), 20 * BLOCK);
    CHECK_EQUAL(cuda_true_all(), GPU_BYTES - GPU_RESERVED);
    go("divvy_sweep", m, all, 1, 1, 10 * US);
    settled();
    CHECK_EQUAL(cuda_true(SG_LINEAR), all - 20 * BLOCK);
    CHECK_EQUAL(cuda_true(SG_MANAGED), 20 * BLOCK);
    OK(cuMemFree_v2(ordinary));
    OK(cuMemFree_v2(m));
}

/* It comes last: the context answers an error for ever. */
static void check_host(void) {
    CUdeviceptr m, more, ordinary;

    FAILS(cuMemAllocManaged(&m, (HOST_BLOCKS + 1) * BLOCK, CU_MEM_ATTACH_GLOBAL),
          CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAllocManaged(&m, 100 * BLOCK, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemsetD8Async(m, 0, 100 * BLOCK, NULL));
    settled();
    OK(cuMemAllocManaged(&more, 195 * BLOCK, CU_MEM_ATTACH_GLOBAL));
    memset((void *)(uintptr_t)more, 1, 195 * BLOCK);
    OK(cuMemPrefetchAsync(more, 195 * BLOCK, CU_DEVICE_CPU, NULL));
    go("divvy_sweep", more, 18 * BLOCK, 1, 0, 10 * US); /* the GPU is full now */
    settled();
    OK(cuCtxSynchronize());
    FAILS(cuMemAlloc_v2(&ordinary, 10 * BLOCK), CUDA_ERROR_OUT_OF_MEMORY);
    go("divvy_sweep", more, 195 * BLOCK, 1, 0, 10 * US);
    settled();
    FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    FAILS(cuMemFree_v2(more), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(in->state->pages.host_chunks <= HOST_BLOCKS);
}

int main(void) {
    cuda_start(describe);
    in = &sg_driver.instance;
    check_kernels();
    check_program();
    check_named();
    check_copies();
    check_graph();
    check_other_gpu();
    check_advice();
    check_ordinary();
    check_host();
    return 0;
}
