/*
 * A lock among the threads of one process, for sections of some tens of nanoseconds.
 *
 * Lock order in this library: the lock of the memory objects (objects.c), then a table's shard, then
 * a device's figures (overhead.c). None is ever held across a call into the driver or the ledger of
 * the share, except that a device's figures are held over dv_overhead, which is bounded.
 * Not for signal handlers. A fork child starts with every lock free (tenant.c).
 */
#ifndef DIVVY_CUDA_LOCK_H
#define DIVVY_CUDA_LOCK_H

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 0 free, 1 held, 2 held and others may sleep. All zero is a free lock. */
typedef struct lock {
    uint32_t state;
} lock;

static inline void lock_wait(lock *l) {
    while (__atomic_exchange_n(&l->state, 2, __ATOMIC_ACQUIRE) != 0) {
        syscall(SYS_futex, &l->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    }
}

static inline void lock_take(lock *l) {
    uint32_t free = 0;
    if (!__atomic_compare_exchange_n(&l->state, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        lock_wait(l);
    }
}

static inline void lock_give(lock *l) {
    if (__atomic_exchange_n(&l->state, 0, __ATOMIC_RELEASE) == 2) {
        syscall(SYS_futex, &l->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

#endif
