/* The gate that calls pass. */
#define _GNU_SOURCE
#include "simgpu/cuda/gate.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "simgpu/machine/clock.h"

#define POLL_NS 200000 /* between looks at the calls inside, which do not tell when they leave */

_Thread_local struct gate_thread gate_thread __attribute__((tls_model("initial-exec")));
uint32_t gate_number = 1; /* a thread begins with another */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    pthread_once_t once;
    pthread_key_t key; /* tells of the end of a thread */
    bool closed;
    struct gate_thread *threads;
} gate = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .opened = PTHREAD_COND_INITIALIZER,
    .once = PTHREAD_ONCE_INIT,
};

/* Later calls of the same thread, from destructors of others, list it again. */
static void forget(void *listed) {
    struct gate_thread *t = listed;

    pthread_mutex_lock(&gate.lock);
    *t->from = t->next;
    if (t->next) {
        t->next->from = t->from;
    }
    t->listed = false;
    t->pass = 0;
    pthread_mutex_unlock(&gate.lock);
}

static void make_key(void) {
    pthread_key_create(&gate.key, forget);
}

static void list(struct gate_thread *t) {
    t->next = gate.threads;
    t->from = &gate.threads;
    if (t->next) {
        t->next->from = &t->next;
    }
    gate.threads = t;
    t->listed = true;
    pthread_setspecific(gate.key, t);
}

void gate_stop(void) {
    struct gate_thread *t = &gate_thread;

    pthread_once(&gate.once, make_key);
    pthread_mutex_lock(&gate.lock);
    if (!t->listed) {
        list(t);
    }
    while (gate.closed && t->inside == 1) {
        __atomic_store_n(&t->inside, 0, __ATOMIC_RELEASE);
        pthread_cond_wait(&gate.opened, &gate.lock);
        __atomic_store_n(&t->inside, 1, __ATOMIC_RELAXED);
    }
    if (!gate.closed) {
        t->pass = gate_number;
    }
    pthread_mutex_unlock(&gate.lock);
}

bool gate_start(void) {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* The gate's lock. No thread has the number 0. */
static void change(bool closed) {
    gate.closed = closed;
    __atomic_store_n(&gate_number, gate_number + 1 ? gate_number + 1 : 1, __ATOMIC_RELEASE);
}

static bool any_inside(void) {
    bool any = false;

    pthread_mutex_lock(&gate.lock);
    for (const struct gate_thread *t = gate.threads; t && !any; t = t->next) {
        any = __atomic_load_n(&t->inside, __ATOMIC_ACQUIRE) != 0;
    }
    pthread_mutex_unlock(&gate.lock);
    return any;
}

bool gate_close(uint32_t timeout_ms) {
    const struct timespec pause = {.tv_nsec = POLL_NS};
    uint64_t end = sg_now() + timeout_ms * UINT64_C(1000000);

    pthread_mutex_lock(&gate.lock);
    change(true);
    pthread_mutex_unlock(&gate.lock);
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    while (any_inside()) {
        if (timeout_ms && sg_now() >= end) {
            gate_open();
            return false;
        }
        nanosleep(&pause, NULL);
    }
    return true;
}

void gate_open(void) {
    pthread_mutex_lock(&gate.lock);
    change(false);
    pthread_cond_broadcast(&gate.opened);
    pthread_mutex_unlock(&gate.lock);
}

/* The child has the thread that forked alone. */
void gate_fork_child(void) {
    pthread_mutex_init(&gate.lock, NULL);
    pthread_cond_init(&gate.opened, NULL);
    gate.threads = NULL;
    gate.closed = false;
    gate_thread.listed = false;
    gate_thread.pass = 0;
}
