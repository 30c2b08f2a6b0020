/*
 * A lock among the threads of one process, for sections of some tens of nanoseconds.
 *
 * Lock order in this library: the lock of the memory objects (object.c), then a table's shard; the
 * others are taken alone. None is ever held across a call into the driver or the share's ledger,
 * except the turns of hooks_primary.c, which come before all others.
 * Not for signal handlers. A fork child starts with every lock free (fork.h).
 */
#ifndef DIVVY_CUDA_LOCK_H
#define DIVVY_CUDA_LOCK_H

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOCK_SPINS 200         /* some times the length of a section */
#define LOCK_SLEEP_NS 1000000L /* longest sleep of a waiter that nobody wakes */

/* All zero is a free lock. */
typedef struct lock {
    uint32_t held;
    uint32_t waiters;
} lock;

static inline int lock_try(lock *l) {
    uint32_t no = 0;
    return __atomic_compare_exchange_n(&l->held, &no, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void lock_wait(lock *l) __attribute__((noinline, cold, unused));
static void lock_wait(lock *l) {
    const struct timespec most = {.tv_nsec = LOCK_SLEEP_NS};
    for (int i = 0; i < LOCK_SPINS; i++) {
        if (__atomic_load_n(&l->held, __ATOMIC_RELAXED) == 0 && lock_try(l)) {
            return;
        }
    }
    __atomic_add_fetch(&l->waiters, 1, __ATOMIC_SEQ_CST);
    while (!lock_try(l)) {
        syscall(SYS_futex, &l->held, FUTEX_WAIT_PRIVATE, 1, &most, NULL, 0);
    }
    __atomic_sub_fetch(&l->waiters, 1, __ATOMIC_RELAXED);
}

static inline void lock_take(lock *l) {
    if (__builtin_expect(!lock_try(l), 0)) {
        lock_wait(l);
    }
}

/* A plain store frees the lock, at half the price of an exchange. A waiter that comes between the
 * store and the load of waiters is not woken, but its sleep is short. */
static inline void lock_give(lock *l) {
    __atomic_store_n(&l->held, 0, __ATOMIC_RELEASE);
    if (__builtin_expect(__atomic_load_n(&l->waiters, __ATOMIC_RELAXED) != 0, 0)) {
        syscall(SYS_futex, &l->held, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

#endif
