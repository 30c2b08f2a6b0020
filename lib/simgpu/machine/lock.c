/* Locks between processes that survive the death of their holder at any instruction.
 *
 * The word names the holder. Who finds that the holder is dead (its file lock is free) takes the
 * lock over by a compare-and-swap of the word it saw, count included, so that only one of several
 * succeeds. No kernel robust list is used: it identifies threads by their number in a pid
 * namespace, and clients live in several.
 */
#define _GNU_SOURCE
#include "simgpu/machine/state.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OWNER_MASK 0xfffu
#define COUNT_ONE 0x1000u
#define SPINS 200

static inline void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool sg_alive(const struct sg_instance *in, uint32_t id) {
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SG_LOCK_BASE + id, .l_len = 1};

    if (id == in->id) {
        return true;
    }
    return fcntl(in->fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static bool take(struct sg_lock *lock, uint32_t seen, uint32_t id) {
    uint32_t mine = ((seen & ~OWNER_MASK) + COUNT_ONE) | (id + 1);

    return __atomic_compare_exchange_n(&lock->word, &seen, mine, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

/* Sleeps until the word changes, at most 2 ms, because a dying holder wakes nobody. */
static void sleep_on(struct sg_lock *lock, uint32_t seen) {
    struct timespec limit = {.tv_nsec = 2000000};

    __atomic_store_n(&lock->contended, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &lock->word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

/* Returns true when the holder had died and what the lock protects may be half changed. */
bool sg_acquire(struct sg_instance *in, struct sg_lock *lock) {
    bool slept = false;

    for (unsigned spin = 0;; spin++) {
        uint32_t seen = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);
        uint32_t owner = seen & OWNER_MASK;

        if (owner == 0) {
            if (take(lock, seen, in->id)) {
                /* Others may still sleep: the next unlock must wake one of them. */
                if (slept) {
                    __atomic_store_n(&lock->contended, 1, __ATOMIC_RELAXED);
                }
                return false;
            }
            continue;
        }
        /* Our own number: an earlier owner of it died with the lock. Threads are excluded
           before. */
        if (owner - 1 == in->id || (spin >= SPINS && !sg_alive(in, owner - 1))) {
            if (take(lock, seen, in->id)) {
                return true;
            }
            continue;
        }
        if (spin < SPINS) {
            pause_cpu();
        } else {
            sleep_on(lock, seen);
            slept = true;
        }
    }
}

void sg_release(struct sg_lock *lock) {
    uint32_t word = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);

    __atomic_store_n(&lock->word, word & ~OWNER_MASK, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&lock->contended, __ATOMIC_SEQ_CST)) {
        __atomic_store_n(&lock->contended, 0, __ATOMIC_RELAXED);
        syscall(SYS_futex, &lock->word, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

void sg_state_lock(struct sg_instance *in) {
    pthread_mutex_lock(&in->state_threads);
    if (sg_acquire(in, &in->state->lock)) {
        sg_reap_repair(in);
        sg_recount(in);
        sg_reap(in);
    }
}

void sg_state_unlock(struct sg_instance *in) {
    sg_release(&in->state->lock);
    pthread_mutex_unlock(&in->state_threads);
}

void sg_schedule_lock(struct sg_instance *in, uint32_t gpu) {
    pthread_mutex_lock(&in->schedule_threads[gpu]);
    if (sg_acquire(in, &in->state->gpus[gpu].schedule_lock)) {
        sg_schedule_repair(in, gpu);
    }
}

bool sg_inherited(struct sg_instance *in, struct sg_lock *lock) {
    uint32_t seen = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);

    /* By a swap, because somebody may have found our predecessor dead and be taking it over. */
    return (seen & OWNER_MASK) == in->id + 1 && take(lock, seen, in->id);
}

void sg_schedule_inherited(struct sg_instance *in, uint32_t gpu) {
    struct sg_lock *lock = &in->state->gpus[gpu].schedule_lock;

    if (sg_inherited(in, lock)) {
        sg_schedule_repair(in, gpu);
        sg_release(lock);
    }
}

void sg_schedule_unlock(struct sg_instance *in, uint32_t gpu) {
    sg_release(&in->state->gpus[gpu].schedule_lock);
    pthread_mutex_unlock(&in->schedule_threads[gpu]);
}
