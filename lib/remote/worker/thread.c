/* The streams that stand for CU_STREAM_PER_THREAD: the driver would take that of the executor, which is every thread's of
 * the program at once. One is made when a thread first uses it in a context. It ends with the context, whose streams the
 * driver ends itself, or when there are too many and it was used the longest ago. */
#include "remote/worker/copies.h"
#include "remote/worker/state.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST_STREAMS 1024u
#define PLACES 256u
#define PER_THREAD ((CUstream)2)
/* A context that the driver told of by itself is a primary one. */
#define FIRST_OWN (UINT64_C(1) << 62)
#define NO_TIMING 2u

struct stream {
    uint64_t context;
    uint32_t thread;
    CUdevice device;
    CUstream stream;
    CUevent event; /* orders calls that take no stream; NULL before the first */
    uint64_t used; /* when, in uses of all */
};

struct remote_streams {
    pthread_mutex_t lock;
    uint64_t uses;
    unsigned count;
    struct stream all[MOST_STREAMS];
    unsigned places[PLACES]; /* where a stream was last, as a hint */
};

struct remote_streams *remote_streams_new(void) {
    struct remote_streams *streams = calloc(1, sizeof *streams);

    if (streams) {
        pthread_mutex_init(&streams->lock, NULL);
    }
    return streams;
}

void remote_streams_free(struct remote_streams *streams) {
    if (streams) {
        pthread_mutex_destroy(&streams->lock);
        free(streams);
    }
}

static struct stream *find(struct remote_streams *streams, uint32_t thread, uint64_t context) {
    unsigned *hint = &streams->places[(thread * 31u + (unsigned)context) % PLACES];

    for (unsigned i = 0; i <= streams->count; i++) {
        unsigned at = i ? i - 1 : *hint;
        struct stream *s = &streams->all[at];

        if (at < streams->count && s->thread == thread && s->context == context) {
            *hint = at;
            return s;
        }
    }
    return NULL;
}

static void drop(struct remote_streams *streams, unsigned at) {
    streams->all[at] = streams->all[--streams->count];
}

/* Ends the stream that was used the longest ago, after its work. Its context may be another than the current one, which a
 * handle does not need. */
static void make_place(struct remote_worker *worker, struct remote_streams *streams) {
    unsigned oldest = 0;

    for (unsigned i = 1; i < streams->count; i++) {
        if (streams->all[i].used < streams->all[oldest].used) {
            oldest = i;
        }
    }
    remote_chunks_stream_ends(worker, streams->all[oldest].stream);
    worker->cuda.cuStreamDestroy_v2(streams->all[oldest].stream);
    if (streams->all[oldest].event) {
        worker->cuda.cuEventDestroy_v2(streams->all[oldest].event);
    }
    drop(streams, oldest);
}

static struct stream *make(struct remote_worker *worker, uint32_t thread, uint64_t context) {
    struct remote_streams *streams = worker->streams;
    struct stream made = {.context = context, .thread = thread};

    /* None is current where the number names none. */
    if (worker->cuda.cuCtxGetDevice(&made.device) != CUDA_SUCCESS) {
        return NULL;
    }
    if (streams->count == MOST_STREAMS) {
        make_place(worker, streams);
    }
    if (worker->cuda.cuStreamCreate(&made.stream, 0) != CUDA_SUCCESS) {
        return NULL;
    }
    streams->all[streams->count] = made;
    return &streams->all[streams->count++];
}

/* Called with the lock. */
static struct stream *of(struct remote_worker *worker, uint32_t thread, uint64_t context) {
    struct stream *s = find(worker->streams, thread, context);

    s = s ? s : make(worker, thread, context);
    if (s) {
        s->used = ++worker->streams->uses;
    }
    return s;
}

uint64_t remote_worker_thread_stream(struct remote_worker *worker, uint32_t thread,
                                     uint64_t context) {
    struct remote_streams *streams = worker->streams;

    pthread_mutex_lock(&streams->lock);
    const struct stream *s = of(worker, thread, context);
    uint64_t handle = s ? (uint64_t)s->stream : 0;
    pthread_mutex_unlock(&streams->lock);
    return handle;
}

/* The driver makes none in a context whose kernel has made a fault, and says that of everything. */
int32_t remote_worker_no_stream(struct remote_worker *worker) {
    CUresult said = worker->cuda.cuStreamQuery ? worker->cuda.cuStreamQuery(NULL) : CUDA_SUCCESS;

    return said == CUDA_SUCCESS || said == CUDA_ERROR_NOT_READY ? (int32_t)CUDA_ERROR_OUT_OF_MEMORY
                                                                : (int32_t)said;
}

uint64_t remote_streams_number(struct remote_streams *streams, uint64_t handle) {
    uint64_t number = 0;

    pthread_mutex_lock(&streams->lock);
    for (unsigned i = 0; i < streams->count && !number; i++) {
        number = (uint64_t)streams->all[i].stream == handle ? (uint64_t)PER_THREAD : 0;
    }
    pthread_mutex_unlock(&streams->lock);
    return number;
}

void remote_streams_forget(struct remote_streams *streams, uint64_t context) {
    pthread_mutex_lock(&streams->lock);
    for (unsigned i = streams->count; i > 0; i--) {
        if (streams->all[i - 1].context == context) {
            drop(streams, i - 1);
        }
    }
    pthread_mutex_unlock(&streams->lock);
}

void remote_streams_forget_device(struct remote_worker *worker, CUdevice device) {
    struct remote_streams *streams = worker->streams;
    unsigned flags;
    int active = 1;

    if (!worker->cuda.cuDevicePrimaryCtxGetState ||
        worker->cuda.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS ||
        active) {
        return;
    }
    pthread_mutex_lock(&streams->lock);
    for (unsigned i = streams->count; i > 0; i--) {
        if (streams->all[i - 1].device == device && streams->all[i - 1].context >= FIRST_OWN) {
            drop(streams, i - 1);
        }
    }
    pthread_mutex_unlock(&streams->lock);
}

/* What stands for the thread's stream, with an event; a stream of NULL if there is none. */
static struct stream with_event(struct remote_worker *worker, const struct remote_head *head) {
    struct stream copy = {0};

    pthread_mutex_lock(&worker->streams->lock);
    struct stream *s = of(worker, head->thread, head->context);
    if (s && (s->event || worker->cuda.cuEventCreate(&s->event, NO_TIMING) == CUDA_SUCCESS)) {
        copy = *s;
    }
    pthread_mutex_unlock(&worker->streams->lock);
    return copy;
}

/* Has what comes into one stream from now on wait for what the other has. */
static void follow(struct remote_worker *worker, CUstream after, CUstream before, CUevent event) {
    if (worker->cuda.cuEventRecord(event, before) == CUDA_SUCCESS) {
        worker->cuda.cuStreamWaitEvent(after, event, 0);
    }
}

void remote_streams_join(struct remote_worker *worker, const struct remote_head *head) {
    const struct stream s = with_event(worker, head);

    if (s.stream) {
        follow(worker, PER_THREAD, s.stream, s.event);
    }
}

void remote_streams_part(struct remote_worker *worker, const struct remote_head *head) {
    const struct stream s = with_event(worker, head);

    if (s.stream) {
        follow(worker, s.stream, PER_THREAD, s.event);
    }
}
