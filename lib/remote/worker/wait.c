/* Threads that wait for the GPU in the executor's place. Each does one piece of work at a time; none is made before it is
 * needed, and the one that worked last works next. */
#include "remote/worker/state.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define MOST_THREADS 256u
/* Of a thread; the driver's compiler needs much. Pages that nobody touches cost nothing. */
#define STACK_BYTES (8u << 20)

struct waiter {
    struct remote_waits *waits;
    struct waiter *next; /* of those that have nothing to do */
    pthread_t thread;
    pthread_cond_t due;
    remote_work *work; /* NULL: nothing to do */
    struct remote_worker *worker;
    struct remote_head head;
    struct remote_current current;
    _Alignas(16) unsigned char argument[REMOTE_LATER_BYTES];
};

struct remote_waits {
    pthread_mutex_t lock;
    pthread_cond_t idle; /* somebody has finished */
    struct waiter *free;
    struct waiter *all[MOST_THREADS];
    unsigned count, busy;
    bool ending;
};

struct remote_waits *remote_waits_new(void) {
    struct remote_waits *waits = calloc(1, sizeof *waits);

    if (waits) {
        pthread_mutex_init(&waits->lock, NULL);
        pthread_cond_init(&waits->idle, NULL);
    }
    return waits;
}

void remote_waits_free(struct remote_waits *waits) {
    if (!waits) {
        return;
    }
    pthread_mutex_lock(&waits->lock);
    while (waits->busy) {
        pthread_cond_wait(&waits->idle, &waits->lock);
    }
    waits->ending = true;
    for (unsigned i = 0; i < waits->count; i++) {
        pthread_cond_signal(&waits->all[i]->due);
    }
    pthread_mutex_unlock(&waits->lock);
    for (unsigned i = 0; i < waits->count; i++) {
        pthread_join(waits->all[i]->thread, NULL);
        pthread_cond_destroy(&waits->all[i]->due);
        free(waits->all[i]);
    }
    pthread_cond_destroy(&waits->idle);
    pthread_mutex_destroy(&waits->lock);
    free(waits);
}

static void *serve(void *given) {
    struct waiter *self = given;
    struct remote_waits *waits = self->waits;

    pthread_mutex_lock(&waits->lock);
    for (;;) {
        while (!self->work && !waits->ending) {
            pthread_cond_wait(&self->due, &waits->lock);
        }
        if (!self->work) {
            break;
        }
        pthread_mutex_unlock(&waits->lock);
        remote_worker_enter(self->worker, &self->current, self->head.context);
        remote_capture_apply(self->worker, &self->head);
        self->work(self->worker, &self->head, self->argument);
        pthread_mutex_lock(&waits->lock);
        self->work = NULL;
        self->next = waits->free;
        waits->free = self;
        if (--waits->busy == 0) {
            pthread_cond_signal(&waits->idle);
        }
    }
    pthread_mutex_unlock(&waits->lock);
    return NULL;
}

/* Starts a thread on which no signal arrives. Called with the lock. */
static bool start(struct waiter *waiter) {
    sigset_t all, before;
    pthread_attr_t attributes;

    if (pthread_attr_init(&attributes)) {
        return false;
    }
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&waiter->thread, &attributes, serve, waiter);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return !failed;
}

/* A thread with nothing to do. Called with the lock. */
static struct waiter *take(struct remote_waits *waits) {
    struct waiter *waiter = waits->free;

    if (waiter) {
        waits->free = waiter->next;
        return waiter;
    }
    waiter = waits->count < MOST_THREADS ? calloc(1, sizeof *waiter) : NULL;
    if (!waiter) {
        return NULL;
    }
    waiter->waits = waits;
    pthread_cond_init(&waiter->due, NULL);
    if (!start(waiter)) {
        pthread_cond_destroy(&waiter->due);
        free(waiter);
        return NULL;
    }
    waits->all[waits->count++] = waiter;
    return waiter;
}

bool remote_worker_later(struct remote_decoder *decoder, remote_work *work, const void *argument,
                         size_t size) {
    struct remote_waits *waits = decoder->worker->waits;

    if (size > REMOTE_LATER_BYTES) {
        return false;
    }
    pthread_mutex_lock(&waits->lock);
    struct waiter *waiter = take(waits);
    if (waiter) {
        waiter->worker = decoder->worker;
        waiter->head = decoder->head;
        if (size) {
            memcpy(waiter->argument, argument, size);
        }
        waiter->work = work;
        waits->busy++;
        pthread_cond_signal(&waiter->due);
    }
    pthread_mutex_unlock(&waits->lock);
    return waiter != NULL;
}

static void say(struct remote_worker *worker, const struct remote_head *head, CUresult result) {
    remote_worker_say(worker, head, (int32_t)result, 0, NULL, 0);
}

static void wait_current(struct remote_worker *worker, const struct remote_head *head,
                         void *argument) {
    (void)argument;
    say(worker, head, worker->cuda.cuCtxSynchronize());
}

static void wait_context(struct remote_worker *worker, const struct remote_head *head,
                         void *argument) {
    say(worker, head, worker->cuda.cuCtxSynchronize_v2(*(CUcontext *)argument));
}

static void wait_event(struct remote_worker *worker, const struct remote_head *head,
                       void *argument) {
    say(worker, head, worker->cuda.cuEventSynchronize(*(CUevent *)argument));
}

static void wait_stream(struct remote_worker *worker, const struct remote_head *head,
                        void *argument) {
    say(worker, head, worker->cuda.cuStreamSynchronize(*(CUstream *)argument));
}

static int32_t later(struct remote_decoder *decoder, remote_work *work, const void *argument,
                     size_t size) {
    return remote_worker_later(decoder, work, argument, size) ? REMOTE_ANSWERS_LATER
                                                              : (int32_t)CUDA_ERROR_OUT_OF_MEMORY;
}

int32_t remote_back_cuCtxSynchronize(struct remote_decoder *d) {
    return later(d, wait_current, NULL, 0);
}

int32_t remote_back_cuCtxSynchronize_v2(struct remote_decoder *d, CUcontext context) {
    return later(d, wait_context, &context, sizeof context);
}

/* What has ended already needs no other thread. The driver answers a query with the errors of a wait. A wait does more than
 * a query, though: pools of memory shrink then. So it is made in both cases. */
int32_t remote_back_cuEventSynchronize(struct remote_decoder *d, CUevent event) {
    CUresult now = d->cuda->cuEventQuery ? d->cuda->cuEventQuery(event) : CUDA_ERROR_NOT_READY;

    if (now == CUDA_ERROR_NOT_READY) {
        return later(d, wait_event, &event, sizeof event);
    }
    return (int32_t)(now ? now : d->cuda->cuEventSynchronize(event));
}

int32_t remote_back_cuStreamSynchronize(struct remote_decoder *d, CUstream stream) {
    CUresult now = d->cuda->cuStreamQuery ? d->cuda->cuStreamQuery(stream) : CUDA_ERROR_NOT_READY;

    if (now == CUDA_ERROR_NOT_READY) {
        return later(d, wait_stream, &stream, sizeof stream);
    }
    return (int32_t)(now ? now : d->cuda->cuStreamSynchronize(stream));
}

/* The stream is the thread's own by now: it needs no function of the driver that knows of threads. */
int32_t remote_back_cuStreamSynchronize_ptsz(struct remote_decoder *d, CUstream stream) {
    return remote_back_cuStreamSynchronize(d, stream);
}

struct event_wait {
    nvmlReturn_t (*wait)(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout);
    nvmlEventSet_t set;
    unsigned milliseconds;
};

static void wait_nvml(struct remote_worker *worker, const struct remote_head *head,
                      void *argument) {
    const struct event_wait *w = argument;
    nvmlEventData_t data;
    bool given = head->given >> 1 & 1;

    memset(&data, 0, sizeof data);
    nvmlReturn_t result = w->wait(w->set, given ? &data : NULL, w->milliseconds);
    if (result == NVML_SUCCESS && given && data.device) {
        data.device = (nvmlDevice_t)remote_worker_number(worker, REMOTE_KIND_nvmlDevice_t,
                                                         (uint64_t)data.device);
    }
    given = given && result == NVML_SUCCESS;
    const struct remote_piece piece = {&data, sizeof data};
    remote_worker_say(worker, head, (int32_t)result, given ? 2 : 0, &piece, given);
}

static int32_t nvml_later(struct remote_decoder *d, const struct event_wait *w) {
    return remote_worker_later(d, wait_nvml, w, sizeof *w) ? REMOTE_ANSWERS_LATER
                                                           : (int32_t)NVML_ERROR_MEMORY;
}

int32_t remote_back_nvmlEventSetWait(struct remote_decoder *d, nvmlEventSet_t set,
                                     unsigned milliseconds) {
    return nvml_later(d, &(struct event_wait){d->nvml->nvmlEventSetWait, set, milliseconds});
}

int32_t remote_back_nvmlEventSetWait_v2(struct remote_decoder *d, nvmlEventSet_t set,
                                        unsigned milliseconds) {
    return nvml_later(d, &(struct event_wait){d->nvml->nvmlEventSetWait_v2, set, milliseconds});
}
