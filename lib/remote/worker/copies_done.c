/* The events that tell when copies are done. */
#include "remote/worker/copies.h"

#include <pthread.h>
#include <string.h>

#define MOST_KEPT (2 * REMOTE_MOST_BLOCKS)
/* Contexts from this number on are those that the driver makes, the devices' primary ones. */
#define FIRST_OWN (UINT64_C(1) << 62)

/* Events that are used by no copy. */
static struct {
    pthread_mutex_t lock;
    size_t count;
    struct remote_event list[MOST_KEPT];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

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

bool remote_event_lives(struct remote_worker *worker, const struct remote_event *event) {
    return is_alive(worker, event->context);
}

bool remote_event_is_primary(const struct remote_event *event, CUdevice device) {
    return event->context >= FIRST_OWN && event->device == device;
}

bool remote_events_forget_device(struct remote_worker *worker, CUdevice device) {
    const struct remote_cuda_driver *cuda = remote_worker_cuda(worker);
    unsigned flags;
    int active = 1;
    size_t count = 0;

    if (!cuda->cuDevicePrimaryCtxGetState ||
        cuda->cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active) {
        return false;
    }
    pthread_mutex_lock(&kept.lock);
    for (size_t i = 0; i < kept.count; i++) {
        if (!remote_event_is_primary(&kept.list[i], device)) {
            kept.list[count++] = kept.list[i];
        }
    }
    kept.count = count;
    pthread_mutex_unlock(&kept.lock);
    return true;
}
