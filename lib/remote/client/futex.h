/* Sleep until a word changes: futex(2), which costs nothing while nobody sleeps. */
#ifndef DIVVY_REMOTE_CLIENT_FUTEX_H
#define DIVVY_REMOTE_CLIENT_FUTEX_H

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

long syscall(long number, ...);

/* Sleeps while the word has this value, no longer than `nanoseconds`, for ever if negative. It may return early. */
static inline void futex_sleep(uint32_t *word, uint32_t value, int64_t nanoseconds) {
    struct timespec limit = {nanoseconds / 1000000000, nanoseconds % 1000000000};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nanoseconds < 0 ? NULL : &limit, NULL, 0);
}

static inline void futex_wake(uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

#endif
