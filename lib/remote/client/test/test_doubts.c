/* Fills and copies within a device wait for the driver's word where the client cannot tell that the driver takes the memory,
 * and nowhere else. */
#include "remote/client/test/setting.h"

#include <sys/mman.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define SIZE 4096u
#define BLOCK (UINT64_C(2) << 20) /* of addresses that the client reserves */
#define BLOCKS 8u                 /* that may be used */

static CUdeviceptr addresses; /* that nobody has: each of the driver's allocations has a block */
static uint64_t made;         /* by the thread that serves alone */

/* The driver refuses each fill and copy that it is asked about. */
static void serve(struct remote_link *link, const struct remote_head *head, const uint64_t *words) {
    struct remote_head asked = *head;

    (void)words;
    asked.given = 0; /* the program's own numbers of what is made */
    if (head->posted) {
        return;
    }
    switch (head->call) {
    case REMOTE_cuMemAlloc_v2:
    case REMOTE_cuMemAllocAsync:
    case REMOTE_cuMemAddressReserve:
        setting_answer(link, head, 0, 0, addresses + BLOCK * made++);
        return;
    case REMOTE_cuCtxCreate_v2:
    case REMOTE_cuInit:
        setting_answer(link, &asked, 0, 0, 0);
        return;
    default:
        setting_answer(link, &asked, CUDA_ERROR_INVALID_VALUE, 0, 0);
    }
}

#define POSTED(call) OK(call)
#define ASKED(call) CHECK_EQUAL(call, CUDA_ERROR_INVALID_VALUE)

static void check_lines(CUdeviceptr at) {
    POSTED(cuMemsetD8_v2(at, 1, SIZE));
    POSTED(cuMemsetD8_v2(at + SIZE - 1, 1, 1));
    POSTED(cuMemsetD16Async(at + 2, 1, SIZE / 2 - 1, NULL));
    POSTED(cuMemsetD32_v2_ptds(at, 1, SIZE / 4));
    ASKED(cuMemsetD8_v2(at, 1, SIZE + 1));
    ASKED(cuMemsetD8_v2_ptds(at + SIZE, 1, 1));
    ASKED(cuMemsetD8Async(at - 1, 1, 1, NULL));
    ASKED(cuMemsetD8Async_ptsz(at, 1, SIZE_MAX, NULL));
    ASKED(cuMemsetD16_v2(at, 1, SIZE / 2 + 1));
    ASKED(cuMemsetD16Async(at + 1, 1, 1, NULL));
    ASKED(cuMemsetD16_v2(at, 1, SIZE_MAX / 2 + 2));
    ASKED(cuMemsetD32_v2(at + 4, 1, SIZE / 4));
    ASKED(cuMemsetD32Async_ptsz(at, 1, SIZE_MAX / 4 + 2, NULL));
    ASKED(cuMemsetD8_v2(4096, 1, 1));
    ASKED(cuMemsetD8_v2(0, 1, 0));
}

static void check_rows(CUdeviceptr at) {
    POSTED(cuMemsetD2D8_v2(at, 64, 1, 64, SIZE / 64));
    POSTED(cuMemsetD2D16_v2(at + 32, 64, 1, 16, SIZE / 64));
    POSTED(cuMemsetD2D32Async(at, 0, 1, SIZE / 4, 1, NULL));
    ASKED(cuMemsetD2D8_v2(at, 64, 1, 64, SIZE / 64 + 1));
    ASKED(cuMemsetD2D8Async(at, 64, 1, 65, 2, NULL));
    ASKED(cuMemsetD2D8_v2(at, SIZE_MAX, 1, 1, 3));
    ASKED(cuMemsetD2D16_v2(at + 34, 64, 1, 16, SIZE / 64));
    ASKED(cuMemsetD2D16Async_ptsz(at, 63, 1, 16, 2, NULL));
    ASKED(cuMemsetD2D32_v2(at, 64, 1, SIZE_MAX / 4 + 2, 1));
    ASKED(cuMemsetD2D32_v2_ptds(at + SIZE, 64, 1, 1, 1));
}

static void check_copies(CUdeviceptr at, CUdeviceptr other) {
    POSTED(cuMemcpyDtoD_v2(at, other, SIZE));
    POSTED(cuMemcpyDtoDAsync_v2(at + 5, other, SIZE - 5, NULL));
    POSTED(cuMemcpyPeerAsync(at, NULL, other, NULL, SIZE, NULL));
    ASKED(cuMemcpyDtoD_v2(at, other, SIZE + 1));
    ASKED(cuMemcpyDtoD_v2_ptds(at, other + 1, SIZE));
    ASKED(cuMemcpyDtoDAsync_v2(at + 1, other, SIZE, NULL));
    ASKED(cuMemcpyDtoDAsync_v2_ptsz(4096, other, 1, NULL));
    ASKED(cuMemcpyPeerAsync(at, NULL, other + 1, NULL, SIZE, NULL));
    ASKED(cuMemcpyPeerAsync(at + 1, NULL, other, NULL, SIZE, NULL));
}

/* Of such addresses the driver alone knows what is there: nothing tells the client what is mapped, or when a variable ends. */
static void check_unknown(void) {
    static const enum remote_range_kind unsure[] = {REMOTE_RANGE_GRAPH, REMOTE_RANGE_CODE};
    CUdeviceptr reserved;

    OK(cuMemAddressReserve(&reserved, BLOCK, 0, 0, 0));
    ASKED(cuMemsetD8_v2(reserved, 1, 1));
    for (unsigned i = 0; i < 2; i++) {
        const struct remote_range range = {
            .start = reserved + BLOCK * (1 + i), .size = SIZE, .kind = unsure[i]};

        CHECK(remote_range_add(&range));
        ASKED(cuMemsetD8_v2(range.start, 1, 1));
    }
    ASKED(cuMemsetD8_v2(addresses + BLOCKS * BLOCK, 1, 1));
}

static void find_addresses(void) {
    const size_t room = 512 * BLOCK;
    void *at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(at != MAP_FAILED && munmap(at, room) == 0);
    addresses = ((uintptr_t)at + BLOCK) / BLOCK * BLOCK;
}

static void test(enum remote_link_kind kind) {
    CUcontext context;
    CUdeviceptr at, pooled;

    find_addresses();
    setting_start(kind, serve);
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuMemAlloc_v2(&at, SIZE));
    OK(cuMemAllocAsync(&pooled, SIZE, NULL));
    check_lines(at);
    check_lines(pooled);
    check_rows(at);
    check_copies(at, pooled);
    check_unknown();
    POSTED(cuMemFree_v2(at));
    ASKED(cuMemsetD8_v2(at, 1, SIZE));
    ASKED(cuMemcpyDtoD_v2(pooled, at, 1));
    POSTED(cuMemsetD8_v2(pooled, 1, SIZE));
}

int main(void) {
    return setting_run(test);
}
