/* What the library asks of Linux, one function per question. Nothing here allocates memory. */
#ifndef DIVVY_SHARE_OS_H
#define DIVVY_SHARE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t os_now_ns(void);

/* Sleeps while *word is value, timeout_ns at most. The word may lie in memory of several
   processes. */
void os_futex_wait(const uint32_t *word, uint32_t value, uint64_t timeout_ns);

/* Wakes all who sleep on word, in any process. */
void os_futex_wake(const uint32_t *word);

/* A lock word that threads of one process share: 0 free, 1 taken. Without contention the lock must
 * cost one atomic operation, so unlocking is a plain store and a waiter can miss its wake-up.
 * Therefore it sleeps OS_LOCK_SLICE_NS at a time. It gives up (false) after about OS_LOCK_SLICES
 * sleeps. It counts sleeps instead of time, because a process that was stopped must not give up
 * when it continues. */
#define OS_LOCK_SLICE_NS 200000u
#define OS_LOCK_SLICES 10000u
bool os_lock_contended(uint32_t *lock, uint32_t *waiters);
void os_unlock_contended(uint32_t *lock, uint32_t *waiters);

static inline bool os_lock(uint32_t *lock, uint32_t *waiters) {
    uint32_t open = 0;
    if (__builtin_expect(
            __atomic_compare_exchange_n(lock, &open, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED),
            1)) {
        return true;
    }
    return os_lock_contended(lock, waiters);
}

static inline void os_unlock(uint32_t *lock, uint32_t *waiters) {
    __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
    if (__builtin_expect(__atomic_load_n(waiters, __ATOMIC_RELAXED) != 0, 0)) {
        os_unlock_contended(lock, waiters);
    }
}

/* Takes the write lock on the byte at offset for the open file description fd; false if another
 * description holds it. fd must be open for writing. */
bool os_try_lock_byte(int fd, uint64_t offset);
void os_unlock_byte(int fd, uint64_t offset);

/* True if any other open file description holds a lock on the byte. fd may be read-only. */
bool os_byte_locked(int fd, uint64_t offset);

/* Clock ticks after boot at which the calling process started, 0 if /proc does not say. */
uint64_t os_start_time(void);

/* Inode of the calling process's pid namespace, 0 if /proc does not say. */
uint64_t os_pid_namespace(void);

/* True while the process with this pid and start time, in our pid namespace, is exiting. The kernel
 * drops its memory, and with it the lock on its slot, before it closes the driver's files. A
 * process that replaced itself by execve is not exiting. */
bool os_process_exiting(pid_t pid, uint64_t start_time);

/* Processes that are exiting, by the pid and start time that they have in their own namespace. */
#define OS_EXITING_MAX 256u
typedef struct os_exiting {
    unsigned count;
    struct {
        pid_t pid; /* in its own pid namespace */
        uint64_t start_time;
    } process[OS_EXITING_MAX];
} os_exiting;

/* Looks for all exiting processes, in every pid namespace that we see. Takes some microseconds for
 * each process of the machine. False if that cannot be known or if there are too many. */
bool os_find_exiting(os_exiting *exiting);

#endif
