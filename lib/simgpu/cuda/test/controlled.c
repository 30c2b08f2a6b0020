#define _GNU_SOURCE
#include "simgpu/cuda/test/controlled.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static CUdeviceptr map(CUmemGenericAllocationHandle *unmapped) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;

    OK(cuMemAddressReserve(&at, 4 * BLOCK, 0, 0, 0));
    OK(cuMemCreate(&handle, 2 * BLOCK, &prop, 0));
    OK(cuMemCreate(unmapped, BLOCK, &prop, 0));
    OK(cuMemMap(at + BLOCK, 2 * BLOCK, 0, handle, 0));
    OK(cuMemSetAccess(at + BLOCK, 2 * BLOCK, &access, 1));
    OK(cuMemRelease(handle));
    return at + BLOCK;
}

/* A graph allocates twice and frees once: memory behind an address, and a block that is kept without one. */
static void launch_graph(struct memory *m) {
    CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                                    .bytesize = 3000};
    CUgraphNode node;

    OK(cuGraphCreate(&m->graph, 0));
    OK(cuGraphAddMemAllocNode(&node, m->graph, NULL, 0, &p));
    m->graphed = p.dptr;
    OK(cuGraphAddMemAllocNode(&node, m->graph, &node, 1, &p));
    OK(cuGraphAddMemFreeNode(&node, m->graph, &node, 1, p.dptr));
    OK(cuGraphInstantiateWithFlags(&m->exec, m->graph, 0));
    OK(cuGraphLaunch(m->exec, NULL));
    OK(cuStreamSynchronize(NULL));
}

void memory_allocate(struct memory *m) {
    CUDA_ARRAY_DESCRIPTOR shape = {1000, 100, CU_AD_FORMAT_UNSIGNED_INT8, 1};

    OK(cuMemAlloc_v2(&m->small, 1000));
    OK(cuMemAlloc_v2(&m->own, PIECE));
    OK(cuMemAllocAsync(&m->pooled, 5000, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuArrayCreate_v2(&m->array, &shape));
    m->mapped = map(&m->spare);
    launch_graph(m);
}

void memory_free(const struct memory *m) {
    OK(cuMemFree_v2(m->small));
    OK(cuMemFree_v2(m->own));
    OK(cuMemFreeAsync(m->pooled, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuArrayDestroy(m->array));
    OK(cuMemUnmap(m->mapped, 2 * BLOCK));
    OK(cuMemAddressFree(m->mapped - BLOCK, 4 * BLOCK));
    OK(cuMemRelease(m->spare));
    OK(cuMemFree_v2(m->graphed));
    OK(cuGraphExecDestroy(m->exec));
    OK(cuGraphDestroy(m->graph));
    OK(cuDeviceGraphMemTrim(0));
}

void memory_fill(const struct memory *m, unsigned char seed) {
    static unsigned char row[1000];

    OK(cuMemsetD8_v2(m->small, seed, 1000));
    OK(cuMemsetD8_v2(m->own, (unsigned char)(seed + 1), PIECE));
    OK(cuMemsetD8_v2(m->pooled, (unsigned char)(seed + 2), 5000));
    OK(cuMemsetD8_v2(m->mapped, (unsigned char)(seed + 3), 2 * BLOCK));
    OK(cuMemsetD8_v2(m->graphed, (unsigned char)(seed + 5), 3000));
    memset(row, seed + 4, sizeof row);
    OK(cuMemcpyHtoA_v2(m->array, 0, row, sizeof row));
}

uint64_t bytes_wrong(CUdeviceptr at, uint64_t bytes, unsigned char want) {
    unsigned char *have = malloc(bytes);
    uint64_t count = 0;

    CHECK(have);
    OK(cuMemcpyDtoH_v2(have, at, bytes));
    for (uint64_t i = 0; i < bytes; i++) {
        count += have[i] != want;
    }
    free(have);
    return count;
}

uint64_t memory_wrong(const struct memory *m, unsigned char seed) {
    unsigned char row[1000];
    uint64_t count = bytes_wrong(m->small, 1000, seed) +
                     bytes_wrong(m->own, PIECE, (unsigned char)(seed + 1)) +
                     bytes_wrong(m->pooled, 5000, (unsigned char)(seed + 2)) +
                     bytes_wrong(m->mapped, 2 * BLOCK, (unsigned char)(seed + 3)) +
                     bytes_wrong(m->graphed, 3000, (unsigned char)(seed + 5));

    OK(cuMemcpyAtoH_v2(row, m->array, 0, sizeof row));
    for (size_t i = 0; i < sizeof row; i++) {
        count += row[i] != (unsigned char)(seed + 4);
    }
    return count;
}

uint64_t gpu_used(void) {
    struct sg_instance *in = &sg_driver.instance;
    uint64_t in_table = 0;

    sg_state_lock(in);
    sg_reap(in);
    uint64_t bytes = sg_gpu_used(in, 0);
    for (uint32_t i = 0; i < in->state->gpus[0].block_count; i++) {
        in_table += sg_blocks(in, 0)[i] ? BLOCK : 0;
    }
    sg_state_unlock(in);
    CHECK_EQUAL(in_table, bytes);
    return bytes;
}

/* ---- processes ---- */

static void begin(struct memory *m, unsigned char seed) {
    CUcontext ctx;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    memory_allocate(m);
    memory_fill(m, seed);
}

static void obey(char word, struct memory *m, unsigned char *seed) {
    CUipcMemHandle handle;
    CUdeviceptr managed;

    switch (word) {
    case TELL_BEGIN:
        begin(m, *seed);
        break;
    case TELL_LOOK:
        CHECK_EQUAL(memory_wrong(m, *seed), 0);
        break;
    case TELL_FILL:
        memory_fill(m, ++*seed);
        break;
    case TELL_SHARE:
        OK(cuIpcGetMemHandle(&handle, m->own));
        break;
    case TELL_MANAGED:
        OK(cuMemAllocManaged(&managed, BLOCK, CU_MEM_ATTACH_GLOBAL));
        break;
    case TELL_WORK:
        OK(cuda_busy(NULL, 20000000));
        break;
    case TELL_STUCK:
        OK(cuda_busy(NULL, 3600000000000u));
        OK(cuCtxSynchronize());
        break;
    }
}

void controlled_live(int channel) {
    unsigned char seed = 7;
    struct memory m;
    char word;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (read(channel, &word, 1) == 1) {
        obey(word, &m, &seed);
        CHECK_EQUAL(write(channel, &word, 1), 1);
    }
    _exit(0);
}

struct controlled controlled_fork(void (*body)(int channel)) {
    struct controlled c;
    int ends[2];

    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    c.pid = fork();
    CHECK(c.pid >= 0);
    if (c.pid == 0) {
        close(ends[0]);
        body(ends[1]);
    }
    close(ends[1]);
    c.channel = ends[0];
    return c;
}

void controlled_hear(const struct controlled *c, char word) {
    char heard = 0;

    CHECK_EQUAL(read(c->channel, &heard, 1), 1);
    CHECK_EQUAL(heard, word);
}

void controlled_say(const struct controlled *c, char word) {
    CHECK_EQUAL(write(c->channel, &word, 1), 1);
}

void controlled_tell(const struct controlled *c, char word) {
    controlled_say(c, word);
    controlled_hear(c, word);
}

bool controlled_silent(const struct controlled *c) {
    char word;

    return recv(c->channel, &word, 1, MSG_DONTWAIT | MSG_PEEK) < 0;
}

bool controlled_waits(const struct controlled *c) {
    char path[64], text[256] = "";

    snprintf(path, sizeof path, "/proc/%d/syscall", c->pid);
    FILE *file = fopen(path, "re");
    CHECK(file);
    char *line = fgets(text, sizeof text, file);
    fclose(file);
    return line && atoi(text) == SYS_futex;
}

void controlled_kill(const struct controlled *c) {
    setting_kill(c->pid);
    close(c->channel);
}
