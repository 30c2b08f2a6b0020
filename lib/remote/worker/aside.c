/* Calls in which the driver may hold whoever makes them: one of the threads that wait executes the whole record, with a decoder of
 * its own. The executor goes on as soon as the record is read and judged, so that all records are judged in their order, and what
 * the executor alone has is looked at by one thread at a time. */
#include "remote/worker/bulk.h"
#include "remote/worker/state.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct aside {
    struct remote_decoder decoder; /* the first: whoever is given it finds the rest */
    struct aside *next;            /* of those that are free */
    size_t size;                   /* of the record */
    enum remote_outcome outcome;   /* what the executor hears */
    bool heard;                    /* it may go on */
    bool judged;
    unsigned *users; /* of the code that the driver reads; NULL for none */
    enum remote_kind ends;
    bool suspended; /* the number of what ends is unbound, until the driver has said so */
    uint64_t number, handle;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct aside *unused; /* the executor takes them, others give them back */

/* Which handle a call ends, whose number is its first word. */
static enum remote_kind ends(uint16_t call) {
    switch (call) {
    case REMOTE_cuArrayDestroy:
        return REMOTE_KIND_CUarray;
    case REMOTE_cuCtxDestroy:
    case REMOTE_cuCtxDestroy_v2:
        return REMOTE_KIND_CUcontext;
    case REMOTE_cuLibraryUnload:
        return REMOTE_KIND_CUlibrary;
    case REMOTE_cuMemRelease:
        return REMOTE_KIND_CUmemGenericAllocationHandle;
    case REMOTE_cuMipmappedArrayDestroy:
        return REMOTE_KIND_CUmipmappedArray;
    case REMOTE_cuModuleUnload:
        return REMOTE_KIND_CUmodule;
    case REMOTE_cuStreamDestroy:
    case REMOTE_cuStreamDestroy_v2:
        return REMOTE_KIND_CUstream;
    default:
        return REMOTE_KIND_NONE;
    }
}

static void let_executor_go(struct aside *aside, enum remote_outcome outcome) {
    pthread_mutex_lock(&lock);
    aside->outcome = outcome;
    aside->heard = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static unsigned *users_of(const void *image) {
    unsigned *users = remote_bulk_users(image);

    return users || !remote_code_users ? users : remote_code_users(image);
}

/* The executor waits meanwhile. What ends has no number any more: nobody else may name it now, and something new may get its
 * handle before the driver has answered. */
static void judged(struct remote_decoder *decoder) {
    struct aside *aside = (struct aside *)(void *)decoder;

    aside->judged = true;
    aside->users = users_of(decoder->image);
    if (aside->users) {
        __atomic_add_fetch(aside->users, 1, __ATOMIC_RELAXED);
    }
    aside->ends = ends(decoder->head.call);
    if (aside->ends != REMOTE_KIND_NONE) {
        aside->number = decoder->words[0];
        aside->suspended =
            remote_worker_suspend(decoder->worker, aside->ends, aside->number, &aside->handle);
    }
    if (aside->ends == REMOTE_KIND_CUcontext) {
        __atomic_add_fetch(&decoder->worker->context_ends, 1, __ATOMIC_RELEASE);
    }
    let_executor_go(aside, REMOTE_LATER);
}

/* The driver has answered, or was not asked. */
static void settle(struct aside *aside, enum remote_outcome outcome) {
    struct remote_decoder *decoder = &aside->decoder;

    if (aside->users) {
        __atomic_sub_fetch(aside->users, 1, __ATOMIC_RELEASE);
    }
    if (aside->suspended && decoder->result != 0) {
        remote_worker_bind(decoder->worker, aside->ends, aside->number, aside->handle);
    }
    if (outcome != REMOTE_GARBLED) {
        remote_capture_after(decoder);
    }
    if (outcome == REMOTE_ANSWERED) {
        remote_worker_answer(decoder);
    } else if (outcome != REMOTE_LATER) {
        remote_link_end(decoder->worker->link);
    }
}

static void give_back(struct aside *aside) {
    pthread_mutex_lock(&lock);
    aside->next = unused;
    unused = aside;
    pthread_mutex_unlock(&lock);
}

static void execute(struct remote_worker *worker, const struct remote_head *head, void *argument) {
    struct aside *aside = *(struct aside **)argument;

    (void)worker;
    (void)head;
    enum remote_outcome outcome = remote_decode_record(&aside->decoder, aside->size);
    if (aside->judged) {
        settle(aside, outcome);
        give_back(aside);
    } else {
        let_executor_go(aside, outcome);
    }
}

static struct aside *take(void) {
    pthread_mutex_lock(&lock);
    struct aside *aside = unused;
    unused = aside ? aside->next : NULL;
    pthread_mutex_unlock(&lock);
    if (!aside && (aside = calloc(1, sizeof *aside)) && !remote_decoder_room(&aside->decoder)) {
        free(aside);
        aside = NULL;
    }
    return aside;
}

/* What the thread needs for this record. */
static void prepare(struct aside *aside, struct remote_worker *worker, size_t size) {
    struct remote_decoder *decoder = &aside->decoder;

    decoder->worker = worker;
    decoder->cuda = &worker->cuda;
    decoder->nvml = &worker->nvml;
    decoder->judged = judged;
    memcpy(decoder->record, worker->decoder.record, size);
    aside->size = size;
    aside->heard = aside->judged = aside->suspended = false;
    aside->users = NULL;
}

bool remote_worker_aside(struct remote_worker *worker, size_t size, enum remote_outcome *outcome) {
    struct aside *aside = take();

    if (!aside) {
        return false;
    }
    prepare(aside, worker, size);
    memcpy(&worker->decoder.head, aside->decoder.record, sizeof worker->decoder.head);
    if (!remote_worker_later(&worker->decoder, execute, &aside, sizeof aside)) {
        give_back(aside);
        return false;
    }
    pthread_mutex_lock(&lock);
    while (!aside->heard) {
        pthread_cond_wait(&changed, &lock);
    }
    *outcome = aside->outcome;
    pthread_mutex_unlock(&lock);
    if (*outcome == REMOTE_LATER) {
        return true;
    }
    /* The driver was not called. */
    if (*outcome == REMOTE_ANSWERED) {
        remote_worker_answer(&aside->decoder);
        *outcome = REMOTE_LATER;
    }
    give_back(aside);
    return true;
}
