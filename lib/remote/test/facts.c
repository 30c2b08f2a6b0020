#include "remote/test/facts.h"

#include "remote/client/reserve.h"
#include "remote/generated/cuda_decode.h"
#include "remote/test/pair.h"
#include "remote/test/sequence.h"
#include "test/check.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_PIECES 65536u

bool facts_shared;
unsigned facts_taken;
uint64_t facts_reserved;

static const struct remote_cuda_driver *driver;
static struct piece {
    uint64_t start, size;
} pieces[MOST_PIECES];
static unsigned piece_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The executor, on the thread that calls: the context of the record alone is current. */
static void enter(struct remote_head *head) {
    uint64_t context = 0;

    head->context = remote_current();
    if (head->context) {
        CHECK(remote_worker_resolve(NULL, REMOTE_KIND_CUcontext, head->context, &context));
    }
    CHECK_EQUAL(driver->cuCtxSetCurrent((CUcontext)context), CUDA_SUCCESS);
}

static void leave(void) {
    while (driver->cuCtxPopCurrent_v2(NULL) == CUDA_SUCCESS) {
    }
}

static void answered(struct remote_answer *head, unsigned char *body, size_t *size) {
    (void)body;
    (void)size;
    head->result = remote_current_told(head->call, head->result);
}

void facts_start(const struct remote_cuda_driver *with) {
    driver = with;
    loopback_enter = enter;
    loopback_leave = leave;
    loopback_spoil = answered;
    loopback_start(driver, NULL);
}

CUresult remote_session_begin(void) {
    loopback_gate = CUDA_SUCCESS;
    return CUDA_SUCCESS;
}

struct remote_link *remote_session_link(void) {
    static char link;

    return (struct remote_link *)(void *)&link;
}

void *remote_link_area(struct remote_link *link, size_t *size) {
    *size = 0;
    return facts_shared ? link : NULL;
}

bool remote_reserve(uint64_t start, uint64_t size) {
    bool taken;

    pthread_mutex_lock(&lock);
    taken = facts_taken > 0;
    if (taken) {
        facts_taken--;
    } else {
        /* Two reservations of one address would be one too many. */
        for (unsigned i = 0; i < piece_count; i++) {
            CHECK(start >= pieces[i].start + pieces[i].size || pieces[i].start >= start + size);
        }
        CHECK(piece_count < MOST_PIECES && size > 0);
        pieces[piece_count++] = (struct piece){start, size};
        facts_reserved += size;
    }
    pthread_mutex_unlock(&lock);
    return !taken;
}

/* Takes a span out of the piece that has it. False if none has it whole. */
static bool cut(uint64_t start, uint64_t size) {
    for (unsigned i = 0; i < piece_count; i++) {
        struct piece p = pieces[i];
        if (start < p.start || start + size > p.start + p.size) {
            continue;
        }
        pieces[i] = pieces[--piece_count];
        if (p.start < start) {
            pieces[piece_count++] = (struct piece){p.start, start - p.start};
        }
        if (start + size < p.start + p.size) {
            pieces[piece_count++] = (struct piece){start + size, p.start + p.size - (start + size)};
        }
        return true;
    }
    return false;
}

/* Blocks that were reserved one by one may be let go of together. */
void remote_unreserve(uint64_t start, uint64_t size) {
    const uint64_t block = UINT64_C(2) << 20;

    pthread_mutex_lock(&lock);
    CHECK(size % block == 0);
    for (uint64_t at = start; at < start + size; at += block) {
        CHECK(cut(at, block));
    }
    facts_reserved -= size;
    pthread_mutex_unlock(&lock);
}

/* The simulated GPU's addresses are nobody's, and those of the test's own memory somebody's. */
bool remote_is_free(uint64_t address) {
    CUmemorytype type;

    return driver && driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                   address) == CUDA_SUCCESS;
}

void facts_run(void (*test)(void)) {
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        sim_machine machine;

        alarm(300);
        setting_describe(&machine);
        machine.cuda_version = 13040;
        setting_make(&machine);
        pair_load(SIMGPU_FOLDER "libcuda.so.1");
        remote_cuda_driver_find(&sequence_driver, pair_find);
        CHECK_EQUAL(sequence_driver.cuInit(0), CUDA_SUCCESS);
        facts_start(&sequence_driver);
        loopback_strict = true;
        test();
        exit(0);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}
