/* Posted copies to the area, whose bytes the client gets before any answer that is sent when they are done. None is sent
 * before somebody waits for an answer, and so takes frames: a client that only posts is not written to. */
#include "remote/worker/copies.h"

#include <pthread.h>
#include <string.h>

static struct landing {
    struct remote_event
        event; /* NULL for one that was not given to the driver, or whose context has ended */
    CUstream stream;
    uint32_t block, bytes;
    int32_t result;
    bool undone;              /* in this look */
} list[REMOTE_MOST_LANDINGS]; /* in the order of their records */
static uint32_t count;        /* read without the lock */
/* Held while an event is asked and the bytes are sent: who finds a copy no more in the list has its bytes before it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool remote_landing_add(struct remote_worker *worker, const struct remote_copy *copy,
                        CUresult result) {
    if (result != CUDA_SUCCESS) {
        remote_event_give(worker, &copy->event);
    }
    pthread_mutex_lock(&lock);
    bool room = count < REMOTE_MOST_LANDINGS;
    if (room) {
        list[count] = (struct landing){.event = copy->event,
                                       .stream = copy->stream,
                                       .block = copy->block,
                                       .bytes = copy->bytes,
                                       .result = (int32_t)result};
        if (result != CUDA_SUCCESS) {
            list[count].event.event = NULL;
        }
        __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    remote_worker_before_answers(remote_landings_settle);
    return room;
}

void remote_landings_forget_device(CUdevice device) {
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < count; i++) {
        if (remote_event_is_primary(&list[i].event, device)) {
            list[i].event.event = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* What a stream does comes in the order in which it was given: behind a copy that is not done none is asked about. */
static bool is_behind(const struct landing *landing) {
    for (const struct landing *one = list; one < landing; one++) {
        if (one->undone && one->stream == landing->stream &&
            one->event.context == landing->event.context) {
            return true;
        }
    }
    return false;
}

/* Whether it is done or never will be. An event ends with its context, and the copy with both. */
static bool is_over(struct remote_worker *worker, struct landing *landing) {
    if (!landing->event.event || !remote_event_lives(worker, &landing->event)) {
        landing->result = landing->result ? landing->result : CUDA_ERROR_CONTEXT_IS_DESTROYED;
        return true;
    }
    if (is_behind(landing)) {
        return false;
    }
    CUresult result = remote_worker_cuda(worker)->cuEventQuery(landing->event.event);
    if (result == CUDA_ERROR_NOT_READY) {
        return false;
    }
    landing->result = (int32_t)result;
    remote_event_give(worker, &landing->event);
    return true;
}

static void send(struct remote_worker *worker, const struct landing *landing) {
    size_t size;
    const unsigned char *area = remote_area(&size);

    remote_worker_land(worker, landing->block, landing->result,
                       area + (size_t)landing->block * REMOTE_BLOCK_BYTES,
                       landing->result ? 0 : landing->bytes);
}

void remote_landings_settle(struct remote_worker *worker) {
    uint32_t left = 0;

    if (!__atomic_load_n(&count, __ATOMIC_ACQUIRE)) {
        return;
    }
    pthread_mutex_lock(&lock);
    remote_capture_relax(worker);
    for (uint32_t i = 0; i < count; i++) {
        list[left] = list[i];
        if (is_over(worker, &list[left])) {
            send(worker, &list[left]);
        } else {
            list[left++].undone = true;
        }
    }
    for (uint32_t i = 0; i < left; i++) {
        list[i].undone = false;
    }
    __atomic_store_n(&count, left, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}
