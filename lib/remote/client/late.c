/* Errors of posted calls that a later call has to tell, the first of each context. A thread without a context has none. */
#include "remote/client/inside.h"

#include <pthread.h>
#include <stdlib.h>

struct kept {
    struct kept *next;
    uint64_t context;
    int32_t error;
};

static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
static struct kept *first;

static struct kept **find(uint64_t context) {
    struct kept **at = &first;

    while (*at && (*at)->context != context) {
        at = &(*at)->next;
    }
    return at;
}

static void keep(uint64_t context, int32_t error) {
    struct kept *kept = *find(context) ? NULL : malloc(sizeof *kept);

    if (kept) {
        *kept = (struct kept){first, context, error};
        __atomic_store_n(&first, kept, __ATOMIC_RELEASE);
    }
}

/* The error that was kept for a context, which is forgotten. */
static int32_t take(uint64_t context) {
    struct kept **at = find(context), *kept = *at;

    if (!kept) {
        return 0;
    }
    int32_t error = kept->error;
    __atomic_store_n(at, kept->next, __ATOMIC_RELEASE);
    free(kept);
    return error;
}

int32_t remote_late(uint16_t call, int32_t result, uint64_t late) {
    if (remote_is_nvml(call)) {
        return result;
    }
    result = remote_current_told(call, result);
    if (!late && !__atomic_load_n(&first, __ATOMIC_ACQUIRE)) {
        return result;
    }
    uint64_t context = remote_current();
    pthread_mutex_lock(&keeping);
    if (late) {
        keep(context, (int32_t)late);
    }
    if (!result && remote_tells_late(call)) {
        result = take(context);
    }
    pthread_mutex_unlock(&keeping);
    return result;
}

static void forked(void) {
    keeping = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    first = NULL;
}
ON_FORKED(forked);
