/* When copies are done: events behind them, and the chunks of the area that wait for one. */
#include "remote/worker/copies.h"

#include <pthread.h>
#include <string.h>

#define MOST_KEPT (2 * REMOTE_MOST_BLOCKS)
/* Contexts from this number on are those that the driver makes, the devices' primary ones. */
#define FIRST_OWN (UINT64_C(1) << 62)
/* Streams of which it is remembered that they have not come so far. */
#define MOST_STREAMS 32u

/* Events that are used by no copy. */
static struct {
    pthread_mutex_t lock;
    size_t count;
    struct remote_event list[MOST_KEPT];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
    size_t count;
    struct busy {
        uint32_t block;
        CUstream stream;
        struct remote_event until;
    } list[REMOTE_MOST_BLOCKS];
    bool is_busy[REMOTE_MOST_BLOCKS];
} chunks;

/* An event of a context ends with it, and may not be named again. */
static bool is_alive(struct remote_worker *worker, uint64_t context) {
    uint64_t handle;

    return remote_worker_resolve(worker, REMOTE_KIND_CUcontext, context, &handle);
}

static struct remote_event find(struct remote_worker *worker, uint64_t context) {
    struct remote_event found = {0};
    size_t count = 0;

    pthread_mutex_lock(&kept.lock);
    for (size_t i = kept.count; i > 0 && !found.event; i--) {
        if (kept.list[i - 1].context == context) {
            found = kept.list[i - 1];
            kept.list[i - 1] = kept.list[--kept.count];
        }
    }
    for (size_t i = 0; !found.event && i < kept.count; i++) {
        if (is_alive(worker, kept.list[i].context)) {
            kept.list[count++] = kept.list[i];
        }
    }
    kept.count = found.event ? kept.count : count;
    pthread_mutex_unlock(&kept.lock);
    return found;
}

struct remote_event remote_event_take(struct remote_worker *worker, uint64_t context) {
    const struct remote_cuda_driver *cuda = remote_worker_cuda(worker);
    struct remote_event event = find(worker, context);

    if (event.event) {
        return event;
    }
    event = (struct remote_event){.context = context, .device = -1};
    if (cuda->cuEventCreate(&event.event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        event.event = NULL;
    } else if (cuda->cuCtxGetDevice) {
        cuda->cuCtxGetDevice(&event.device);
    }
    return event;
}

void remote_event_give(struct remote_worker *worker, const struct remote_event *event) {
    bool there = false;

    if (!event->event) {
        return;
    }
    pthread_mutex_lock(&kept.lock);
    if (kept.count < MOST_KEPT) {
        kept.list[kept.count++] = *event;
        there = true;
    }
    pthread_mutex_unlock(&kept.lock);
    if (!there && is_alive(worker, event->context)) {
        remote_worker_cuda(worker)->cuEventDestroy_v2(event->event);
    }
}

static bool is_primary(const struct remote_event *event, CUdevice device) {
    return event->context >= FIRST_OWN && event->device == device;
}

void remote_events_forget_device(struct remote_worker *worker, CUdevice device) {
    const struct remote_cuda_driver *cuda = remote_worker_cuda(worker);
    unsigned flags;
    int active = 1;
    size_t count = 0;

    if (!cuda->cuDevicePrimaryCtxGetState ||
        cuda->cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active) {
        return;
    }
    pthread_mutex_lock(&kept.lock);
    for (size_t i = 0; i < kept.count; i++) {
        if (!is_primary(&kept.list[i], device)) {
            kept.list[count++] = kept.list[i];
        }
    }
    kept.count = count;
    pthread_mutex_unlock(&kept.lock);
    for (size_t i = 0; i < chunks.count; i++) {
        if (is_primary(&chunks.list[i].until, device)) {
            chunks.list[i].until.event = NULL;
        }
    }
}

void remote_chunk_busy(struct remote_worker *worker, uint32_t block, CUstream stream,
                       const struct remote_event *event) {
    /* A client that names a chunk again before it was told that it is free confuses itself alone. */
    if (chunks.is_busy[block]) {
        remote_event_give(worker, event);
        return;
    }
    chunks.is_busy[block] = true;
    chunks.list[chunks.count++] = (struct busy){block, stream, *event};
}

static bool is_done(struct remote_worker *worker, const struct remote_event *until) {
    return !until->event || !is_alive(worker, until->context) ||
           remote_worker_cuda(worker)->cuEventQuery(until->event) != CUDA_ERROR_NOT_READY;
}

/* What a stream does comes in the order in which it was given: behind a copy that is not done none is asked about. */
static bool is_behind(const struct busy *const *undone, size_t count, const struct busy *busy) {
    for (size_t i = 0; i < count; i++) {
        if (undone[i]->stream == busy->stream && undone[i]->until.context == busy->until.context) {
            return true;
        }
    }
    return false;
}

size_t remote_chunks_freed(struct remote_worker *worker, uint32_t blocks[REMOTE_MOST_BLOCKS]) {
    const struct busy *undone[MOST_STREAMS];
    size_t freed = 0, left = 0, count = 0;

    for (size_t i = 0; i < chunks.count; i++) {
        const struct busy busy = chunks.list[i];

        if (!is_behind(undone, count, &busy)) {
            if (is_done(worker, &busy.until)) {
                blocks[freed++] = busy.block;
                chunks.is_busy[busy.block] = false;
                if (is_alive(worker, busy.until.context)) {
                    remote_event_give(worker, &busy.until);
                }
                continue;
            }
            if (count < MOST_STREAMS) {
                undone[count++] = &chunks.list[left];
            }
        }
        chunks.list[left++] = busy;
    }
    chunks.count = left;
    return freed;
}
