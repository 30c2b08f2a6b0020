#define _GNU_SOURCE
#include "cuda/test/orders.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "share/state.h"

#define AHEAD_NS 1000000000u
#define STEP_US 500

static int config = -1;
static unsigned gpu_count;
static uint64_t sequence;
static uint32_t keeps; /* atomic */

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

static void keep(void) {
    for (unsigned i = 0; i < gpu_count; i++) {
        write_turn(i, offsetof(dv_page_turn, valid), now_ns() + AHEAD_NS);
    }
}

static void *keeper(void *arg) {
    sem_post(arg);
    for (;;) {
        if (__atomic_load_n(&keeps, __ATOMIC_ACQUIRE) != 0) {
            keep();
        }
        usleep(100000);
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
    keep();
    __atomic_store_n(&keeps, 1, __ATOMIC_RELEASE);
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
    __atomic_store_n(&keeps, 0, __ATOMIC_RELEASE);
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
        usleep(STEP_US);
    }
}

void orders_await_waiting(const struct setting *setting) {
    while (slot_of_self(setting) < 0 || orders_present(setting, 0).waits == 0) {
        usleep(STEP_US);
    }
}

void orders_await_held(const struct setting *setting, uint64_t ns) {
    for (uint64_t from = orders_residence(setting, 0).held;
         orders_residence(setting, 0).held - from < ns;) {
        usleep(STEP_US);
    }
}
