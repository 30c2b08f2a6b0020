#define _GNU_SOURCE
#include "cuda/test/orders.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "share/residence.h"
#include "share/state.h"

#define AHEAD_NS (DV_TURN_AHEAD_NS - 100000000u) /* about as far as a gate may be closed */
#define STEP_US 500
#define KEEP_US 50000
#define TRIES 10
#define TRY_VARIABLE "DIVVY_TEST_TRY"

static int config = -1;
static unsigned gpu_count;
static uint64_t sequence;
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
static bool keeps;          /* guarded by it */
static uint32_t lapses;     /* atomic */
static uint64_t kept_until; /* atomic; 0: no order is kept */
static char **arguments;
static pid_t owner;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void write_turn(unsigned gpu, size_t field, uint64_t value) {
    size_t at = offsetof(dv_page_config, device) + gpu * sizeof(dv_page_device) +
                offsetof(dv_page_device, turn) + field;
    CHECK_EQUAL(pwrite(config, &value, sizeof value, (off_t)at), sizeof value);
}

/* Whether gates were open for a while that an order had closed, because the test had no processor to keep it. */
static bool has_lapsed(void) {
    uint64_t until = __atomic_load_n(&kept_until, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&lapses, __ATOMIC_ACQUIRE) != 0 || (until != 0 && now_ns() > until);
}

/* A test that failed after that proves nothing: it runs anew. */
static void run_anew(int status, void *unused) {
    const char *text = getenv(TRY_VARIABLE);
    int tries = text != NULL ? atoi(text) : 1;
    char next[16];
    (void)unused;
    if (status == 0 || getpid() != owner || tries >= TRIES || !has_lapsed()) {
        return;
    }
    fprintf(stderr, "the test was kept from its processor: it runs anew\n");
    snprintf(next, sizeof next, "%d", tries + 1);
    setenv(TRY_VARIABLE, next, 1);
    execv("/proc/self/exe", arguments);
}

/* Before all others, so that it is called after those that remove what the test made. */
__attribute__((constructor)) static void begin(int count, char **vector) {
    (void)count;
    arguments = vector;
    owner = getpid();
    CHECK(on_exit(run_anew, NULL) == 0);
}

static void keep(void) {
    if (has_lapsed()) {
        __atomic_store_n(&lapses, 1, __ATOMIC_RELEASE);
    }
    uint64_t until = now_ns() + AHEAD_NS;
    for (unsigned i = 0; i < gpu_count; i++) {
        write_turn(i, offsetof(dv_page_turn, valid), until);
    }
    __atomic_store_n(&kept_until, until, __ATOMIC_RELEASE);
}

/* Looks again a moment later. */
static void pause_a_step(void) {
    CHECK(!has_lapsed());
    usleep(STEP_US);
}

static void *keeper(void *arg) {
    sem_post(arg);
    for (;;) {
        pthread_mutex_lock(&keeping);
        if (keeps) {
            keep();
        }
        pthread_mutex_unlock(&keeping);
        usleep(KEEP_US);
    }
    return NULL;
}

static void begin_keeping(const struct setting *setting, unsigned gpus) {
    static pthread_t thread;
    static sem_t begun;
    gpu_count = gpus;
    config = open(setting_path(setting, "config"), O_WRONLY | O_CLOEXEC);
    CHECK(config >= 0);
    CHECK(sem_init(&begun, 0, 0) == 0);
    CHECK_EQUAL(pthread_create(&thread, NULL, keeper, &begun), 0);
    pthread_detach(thread);
    /* A sanitizer allocates when a thread begins. A fork meanwhile would leave its lock taken in the child. */
    CHECK(sem_wait(&begun) == 0);
}

static void have_turns(struct setting *setting, unsigned device) {
    uint32_t turns = DV_PAGE_BUDGET_TURNS;
    setting_write(setting, device, offsetof(dv_page_device, budget.flags), &turns, sizeof turns);
}

void orders_make(struct setting *setting, unsigned gpus, uint64_t limit, uint64_t kept) {
    uint32_t flags = DV_PAGE_FLAG_SWAP;
    sim_make_closed(setting, 2 * gpus, limit);
    tenant_write(&setting->tenant, "config", offsetof(dv_page_config, flags), &flags, sizeof flags);
    for (unsigned i = 0; i < 2 * gpus; i++) {
        uint8_t uuid[16];
        memset(uuid, (int)(i % gpus + 1), sizeof uuid);
        setting_uuid(setting, i, uuid);
        have_turns(setting, i);
        if (i >= gpus) {
            setting_write(setting, i, offsetof(dv_page_device, limit), &kept, sizeof kept);
        }
    }
    begin_keeping(setting, gpus);
}

void orders_make_ordinary(struct setting *setting, unsigned gpus, uint64_t limit) {
    sim_make_closed(setting, gpus, limit);
    for (unsigned i = 0; i < gpus; i++) {
        have_turns(setting, i);
    }
    begin_keeping(setting, gpus);
}

uint64_t orders_give(unsigned state, uint64_t give, uint64_t room) {
    uint64_t order = ++sequence << DV_PAGE_TURN_BITS | state;
    pthread_mutex_lock(&keeping);
    keep();
    keeps = true;
    pthread_mutex_unlock(&keeping);
    for (unsigned i = 0; i < gpu_count; i++) {
        write_turn(i, offsetof(dv_page_turn, give), give);
        write_turn(i, offsetof(dv_page_turn, room), room);
    }
    for (unsigned i = 0; i < gpu_count; i++) {
        write_turn(i, offsetof(dv_page_turn, order), order);
    }
    return order;
}

void orders_cease(void) {
    pthread_mutex_lock(&keeping);
    keeps = false;
    __atomic_store_n(&kept_until, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&keeping);
}

static int slot_of_self(const struct setting *setting) {
    for (int slot = 0; slot < (int)DV_PAGE_SLOTS; slot++) {
        if (load32(&setting->share->state->slot[slot].pid) == (uint32_t)getpid()) {
            return slot;
        }
    }
    return -1;
}

dv_page_present orders_present(const struct setting *setting, unsigned gpu) {
    int slot = slot_of_self(setting);
    CHECK(slot >= 0);
    const dv_page_present *from = &setting->share->gpu[gpu].present[slot];
    return (dv_page_present){.done = load64(&from->done),
                             .there = load64(&from->there),
                             .waits = load64(&from->waits),
                             .called = load64(&from->called),
                             .takes_part = load32(&from->takes_part)};
}

dv_page_residence orders_residence(const struct setting *setting, unsigned gpu) {
    const dv_page_residence *from = &setting->share->gpu[gpu].residence;
    return (dv_page_residence){.moved_in = load64(&from->moved_in),
                               .moved_out = load64(&from->moved_out),
                               .moving = load64(&from->moving),
                               .held = load64(&from->held)};
}

void orders_await_done(const struct setting *setting, uint64_t order) {
    while (orders_present(setting, 0).done != order) {
        pause_a_step();
    }
}

void orders_await_waiting(const struct setting *setting) {
    while (slot_of_self(setting) < 0 || orders_present(setting, 0).waits == 0) {
        pause_a_step();
    }
}

void orders_await_held(const struct setting *setting, uint64_t ns) {
    for (uint64_t from = orders_residence(setting, 0).held;
         orders_residence(setting, 0).held - from < ns;) {
        pause_a_step();
    }
}
