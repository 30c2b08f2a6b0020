/* Requests to a process about its checkpoint, through its slot in the shared state. */
#define _GNU_SOURCE
#include "simgpu/machine/state.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A process that dies wakes nobody, so who waits for one looks at it so often. */
#define LOOK_NS 2000000

static void sleep_on(uint32_t *word, uint32_t seen, const struct timespec *limit) {
    syscall(SYS_futex, word, FUTEX_WAIT, seen, limit, NULL, 0);
}

static void wake(uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static struct sg_client *slot(const struct sg_instance *in, uint32_t client) {
    return &in->state->clients[client];
}

static bool used(const struct sg_instance *in, uint32_t client) {
    return __atomic_load_n(&in->state->clients_used[client / 64], __ATOMIC_ACQUIRE) >>
               (client % 64) &
           1;
}

/* Whether the slot is that process's, and it lives. */
static bool lives(const struct sg_instance *in, uint32_t client, uint32_t generation) {
    return used(in, client) &&
           __atomic_load_n(&slot(in, client)->generation, __ATOMIC_ACQUIRE) == generation &&
           sg_alive(in, client);
}

/* The state lock. */
static bool serves(const struct sg_instance *in, uint32_t client) {
    return used(in, client) && slot(in, client)->checkpoint.thread && sg_alive(in, client);
}

int sg_checkpoint_find(struct sg_instance *in, int32_t pid, uint32_t *client,
                       uint32_t *generation) {
    struct sg_pids pids = {.count = 0};
    int result = -ESRCH;

    for (uint32_t i = 0; result && (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        sg_state_lock(in);
        bool there = serves(in, i);
        struct sg_who who = slot(in, i)->who;
        uint32_t its = slot(in, i)->generation;
        sg_state_unlock(in);
        /* Reads files, which the holder of the lock must not. */
        if (there && sg_pids_of(&pids, &who) == pid) {
            *client = i;
            *generation = its;
            result = 0;
        }
    }
    sg_pids_end(&pids);
    return result;
}

/* The state lock. Whether nobody's request is under way or waits for who asked to see its answer. */
static bool is_free(const struct sg_instance *in, const struct sg_checkpoint *c) {
    return c->asked == c->answered &&
           (c->asker == 0 || !lives(in, c->asker - 1, c->asker_generation));
}

/* Enters the request when there is none; returns its number, or 0 after a wait. */
static uint32_t enter(struct sg_instance *in, uint32_t client, const struct sg_request *request) {
    const struct timespec limit = {.tv_nsec = LOOK_NS};
    struct sg_checkpoint *c = &slot(in, client)->checkpoint;
    uint32_t number = 0;

    sg_state_lock(in);
    uint32_t answered = c->answered;
    if (is_free(in, c)) {
        c->asker = in->id + 1;
        c->asker_generation = slot(in, in->id)->generation;
        c->request = *request;
        number = c->asked + 1 ? c->asked + 1 : 1;
        __atomic_store_n(&c->asked, number, __ATOMIC_RELEASE);
    }
    sg_state_unlock(in);
    if (number) {
        wake(&c->asked);
    } else {
        sleep_on(&c->answered, answered, &limit);
    }
    return number;
}

int sg_checkpoint_ask(struct sg_instance *in, uint32_t client, uint32_t generation,
                      const struct sg_request *request, uint32_t *result) {
    const struct timespec limit = {.tv_nsec = LOOK_NS};
    struct sg_checkpoint *c = &slot(in, client)->checkpoint;
    uint32_t number = 0, seen;

    while (number == 0) {
        if (!lives(in, client, generation)) {
            return -ESRCH;
        }
        number = enter(in, client, request);
    }
    while ((seen = __atomic_load_n(&c->answered, __ATOMIC_ACQUIRE)) != number) {
        if (!lives(in, client, generation)) {
            return -ESRCH;
        }
        sleep_on(&c->answered, seen, &limit);
    }
    sg_state_lock(in);
    int ended = lives(in, client, generation) ? 0 : -ESRCH;
    if (!ended) {
        *result = c->result;
        c->asker = 0;
    }
    sg_state_unlock(in);
    return ended;
}

int sg_checkpoint_look(struct sg_instance *in, uint32_t client, uint32_t generation,
                       uint32_t *state, int32_t *thread) {
    sg_state_lock(in);
    int ended = lives(in, client, generation) ? 0 : -ESRCH;
    *state = slot(in, client)->checkpoint.state;
    *thread = slot(in, client)->checkpoint.thread;
    sg_state_unlock(in);
    return ended;
}

void sg_checkpoint_await(struct sg_instance *in, struct sg_request *request) {
    struct sg_checkpoint *c = &slot(in, in->id)->checkpoint;
    uint32_t seen;

    while ((seen = __atomic_load_n(&c->asked, __ATOMIC_ACQUIRE)) == c->answered) {
        sleep_on(&c->asked, seen, NULL);
    }
    *request = c->request;
}

void sg_checkpoint_answer(struct sg_instance *in, uint32_t result) {
    struct sg_checkpoint *c = &slot(in, in->id)->checkpoint;

    c->result = result;
    __atomic_store_n(&c->answered, __atomic_load_n(&c->asked, __ATOMIC_RELAXED), __ATOMIC_RELEASE);
    wake(&c->answered);
}

void sg_checkpoint_enter(struct sg_instance *in, enum sg_process_state state) {
    sg_state_lock(in);
    slot(in, in->id)->checkpoint.state = state;
    sg_state_unlock(in);
}
