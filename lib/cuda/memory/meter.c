#include "cuda/memory/meter.h"

#define READINGS_MAX 8 /* until no other thread has read in between */

int64_t meter_follow(struct meter *meter, bool (*read)(void *arg, uint64_t *bytes), void *arg) {
    for (int i = 1;; i++) {
        uint64_t bytes;
        uint32_t before = __atomic_load_n(&meter->readings, __ATOMIC_ACQUIRE);
        if (!read(arg, &bytes)) {
            return 0;
        }
        lock_take(&meter->lock);
        /* If another thread stored a newer reading meanwhile, ours would undo it. So we read again,
         * and in the end take the larger of the two figures, which is the safe one. */
        bool overtaken = meter->readings != before;
        if (overtaken && i < READINGS_MAX) {
            lock_give(&meter->lock);
            continue;
        }
        if (overtaken && bytes < meter->held) {
            bytes = meter->held;
        }
        int64_t more = (int64_t)(bytes - meter->held);
        __atomic_store_n(&meter->held, bytes, __ATOMIC_RELAXED);
        __atomic_store_n(&meter->readings, meter->readings + 1, __ATOMIC_RELEASE);
        lock_give(&meter->lock);
        return more;
    }
}

uint64_t meter_end(struct meter *meter) {
    lock_take(&meter->lock);
    uint64_t held = meter->held;
    __atomic_store_n(&meter->held, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&meter->readings, meter->readings + 1, __ATOMIC_RELEASE);
    lock_give(&meter->lock);
    return held;
}
