/* A driver, an agent and a program that take turns as they like: each byte is counted once, and
 * nobody is refused for memory that is free.
 *
 * The program allocates and frees, and its overhead grows and shrinks without a call that tells how
 * much. The agent reads the driver's figure again and again, between two looks at the ledger. */
#define _GNU_SOURCE
#include "share/test/tenant.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNIT ((uint64_t)DV_PAGE_UNIT)
#define LIMIT (1000 * UNIT)
#define PIECES 64
#define STEPS 20000

static struct tenant tenant;
static dv_page_device *page; /* as the agent maps it */
static uint64_t held;        /* what the driver shows; atomic */
static uint32_t stopped;

static void *map_config(void) {
    int file = open(tenant_path(&tenant, "config"), O_RDWR | O_CLOEXEC);
    void *memory = mmap(NULL, sizeof(dv_page_config), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(file >= 0 && memory != MAP_FAILED && close(file) == 0);
    return memory;
}

/* One reading: the driver's figure belongs to a ledger that stood still meanwhile. */
static void observe(dv_share *share) {
    uint64_t begun = os_now_ns();
    ledger_word before = load_ledger(&share->gpu[0]);
    uint64_t figure = load64(&held);
    ledger_word after = load_ledger(&share->gpu[0]);
    if (before.tag != after.tag || before.amounts != after.amounts ||
        amounts_pending(after.amounts) != 0) {
        return;
    }
    uint64_t told = amounts_used(after.amounts) * UNIT;
    store64(&page->overhead, figure > told ? figure - told : 0);
    store64(&page->measured, begun);
}

static void *agent(void *arg) {
    while (load32(&stopped) == 0) {
        observe(arg);
    }
    return NULL;
}

static void change(uint64_t bytes) {
    __atomic_fetch_add(&held, bytes, __ATOMIC_SEQ_CST);
}

/* What the share tells when the agent has seen all there is to see. */
static void counts_each_byte_once(dv_share *share) {
    uint64_t now = os_now_ns();
    while (load64(&page->measured) <= now) {
        os_futex_wait(&stopped, 0, 1000000);
    }
    CHECK_EQUAL(used_bytes(share, 0), load64(&held));
}

struct program {
    uint64_t piece[PIECES];
    uint64_t overhead;
    unsigned granted, refused;
};

static void allocate(dv_share *share, struct program *program, unsigned at) {
    uint64_t bytes = (uint64_t)(1 + rand() % 200) * UNIT, before = load64(&held);
    if (dv_reserve(share, 0, bytes) != DV_OK) {
        program->refused++;
        CHECK(before + bytes > LIMIT); /* else there was room */
        return;
    }
    program->granted++;
    change(bytes);
    dv_settle(share, 0, bytes, bytes);
    program->piece[at] = bytes;
}

static void release(dv_share *share, struct program *program, unsigned at) {
    dv_retire(share, 0, program->piece[at]);
    change(-program->piece[at]);
    dv_settle(share, 0, program->piece[at], 0);
    program->piece[at] = 0;
}

static void step(dv_share *share, struct program *program) {
    unsigned at = (unsigned)rand() % PIECES, choice = (unsigned)rand() % 16;
    uint64_t bytes = (uint64_t)(rand() % 40) * UNIT;
    if (choice == 0 && program->overhead + bytes <= LIMIT / 2) {
        program->overhead += bytes;
        change(bytes);
    } else if (choice == 1) {
        bytes = bytes < program->overhead ? bytes : program->overhead;
        program->overhead -= bytes;
        change(-bytes);
        dv_eased(share, 0);
    } else if (program->piece[at] != 0) {
        release(share, program, at);
    } else {
        allocate(share, program, at);
    }
}

int main(void) {
    struct program program = {.overhead = 0};
    pthread_t thread;
    tenant_make(&tenant, 1, LIMIT);
    dv_share *share = tenant_open(&tenant);
    page = ((dv_page_config *)map_config())->device;
    srand(4711);
    CHECK_EQUAL(pthread_create(&thread, NULL, agent, share), 0);
    for (unsigned i = 0; i < STEPS; i++) {
        step(share, &program);
        if (i % 256 == 0) {
            counts_each_byte_once(share);
        }
    }
    counts_each_byte_once(share);
    CHECK(program.granted > STEPS / 16 && program.refused > STEPS / 64);
    store32(&stopped, 1);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    tenant_remove(&tenant);
    return 0;
}
