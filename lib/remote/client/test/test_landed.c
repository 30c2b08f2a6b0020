/* Threads whose copies to host memory are posted, through a socket: the bytes come before an answer, which may be another
 * thread's, and are there for whoever waited. */
#include "remote/client/test/setting.h"

#include "remote/places.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define THREADS 8u
#define ROUNDS 300
#define SIZE 1000u
#define BLOCK (UINT64_C(2) << 20) /* of addresses that the client reserves */

static CUcontext context;
static CUdeviceptr device, free_address;
static unsigned landings; /* that came by themselves */

/* What is to come. The thread that serves has it alone. */
static struct {
    uint64_t block, from, size;
} due[REMOTE_MOST_LANDINGS];
static unsigned due_count;

/* Each copy brings one value, which its address says. */
static void land(struct remote_link *link, unsigned i) {
    static unsigned char bytes[REMOTE_CHUNK_BYTES];
    const struct remote_piece pieces[] = {{&due[i].block, 8}, {bytes, due[i].size}};
    const struct remote_answer head = {
        .size = (uint32_t)(sizeof head + 8 + remote_padded(due[i].size)), .call = REMOTE_LANDED};

    memset(bytes, (int)(due[i].from / SIZE), due[i].size);
    CHECK(remote_link_put(link, &head, sizeof head, pieces, 2));
    __atomic_add_fetch(&landings, 1, __ATOMIC_RELEASE);
}

static void tell_area(struct remote_link *link, const struct remote_head *head) {
    const struct remote_area_facts facts = {UINT64_C(32) << 20, 1};
    const struct remote_piece piece = {&facts, sizeof facts};
    const struct remote_answer answer = {.size = sizeof answer + sizeof facts,
                                         .call = head->call,
                                         .sequence = head->sequence,
                                         .given = 1};

    CHECK(remote_link_put(link, &answer, sizeof answer, &piece, 1));
    remote_link_flush(link);
}

static void serve(struct remote_link *link, const struct remote_head *head, const uint64_t *words) {
    if (head->posted) {
        if (head->call == REMOTE_cuMemcpyAsync) {
            CHECK_EQUAL(words[REMOTE_COPY_MANNER], REMOTE_COPY_LANDS | REMOTE_COPY_BYTES);
            CHECK(due_count < REMOTE_MOST_LANDINGS);
            due[due_count].block = words[REMOTE_COPY_TO + 2] / REMOTE_BLOCK_BYTES;
            due[due_count].from = words[REMOTE_COPY_FROM + 1] - free_address;
            due[due_count++].size = words[REMOTE_COPY_SIZE];
        }
        return;
    }
    for (unsigned i = 0; i < due_count; i++) {
        land(link, i);
    }
    due_count = 0;
    if (head->call == REMOTE_REGION && words[0] == REMOTE_AREA_OPEN) {
        tell_area(link, head);
    } else {
        struct remote_head asked = *head;

        asked.given = head->call == REMOTE_cuMemAlloc_v2;
        setting_answer(link, &asked, 0, 0, free_address);
    }
}

static void *run(void *number) {
    unsigned at = (unsigned)(uintptr_t)number;
    unsigned char *to;

    OK(cuCtxSetCurrent(context));
    OK(cuMemHostAlloc((void **)&to, 4 * SIZE, 0));
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned value = (at * ROUNDS + i) % 251, count = 1 + i % 4;

        for (unsigned k = 0; k < count; k++) {
            OK(cuMemcpyDtoHAsync_v2(to + k * SIZE, device + (value + k) * SIZE, SIZE, NULL));
        }
        OK(i % 2 ? cuStreamSynchronize(NULL) : cuStreamQuery(NULL));
        for (unsigned k = 0; k < count; k++) {
            CHECK(to[k * SIZE] == value + k && to[k * SIZE + SIZE - 1] == value + k);
        }
    }
    OK(cuMemFreeHost(to));
    return NULL;
}

/* Where nothing is, also of a sanitizer, nor will be soon: the kernel places other memory at the end of room. */
static void find_address(void) {
    const size_t room = 512 * BLOCK;
    void *at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(at != MAP_FAILED && munmap(at, room) == 0);
    free_address = ((uintptr_t)at + BLOCK) / BLOCK * BLOCK;
}

static void test(enum remote_link_kind kind) {
    pthread_t threads[THREADS];

    if (kind == REMOTE_LINK_RINGS) {
        return; /* where both sides share memory no bytes come later */
    }
    find_address();
    setting_start(kind, serve);
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuMemAlloc_v2(&device, 256 * SIZE));
    CHECK_EQUAL(device, free_address);
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(__atomic_load_n(&landings, __ATOMIC_ACQUIRE) > THREADS * ROUNDS);
}

int main(void) {
    return setting_run(test);
}
