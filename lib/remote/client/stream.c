/* The stream of records: one of the process, in the order in which its threads send.
 *
 * What a thread waits for is seen by the worker at once. What is posted into rings is too. Into a socket it is gathered, and
 * seen when a thread waits, or 50 µs later: then by a thread of our own, which sleeps while nothing is posted.
 * The first work for the GPU after a wait is seen at once, because the GPU may have nothing to do by then. */
#include "remote/client/futex.h"
#include "remote/client/inside.h"

#include "libc/cancel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

int64_t remote_gather_for = 50000;
int64_t remote_beat_after = INT64_C(15) * 1000 * 1000 * 1000;

/* Order of locks: numbers.c before it, none after. */
static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sequence;
static bool gathers;      /* the link is a socket, and the thread below runs */
static bool gathered;     /* something was put and not flushed */
static bool waited;       /* and nothing was posted since that has the GPU work */
static uint32_t due;      /* something is, or was, for the thread to flush */
static uint64_t last_put; /* the sequence when the thread last woke */
static uint32_t ahead;    /* posted into a socket since the last record that waits */

#define MOST_AHEAD 1024u /* rings hold up who is 96 KiB ahead, which is as much */

static struct remote_head head_of(const struct remote_head *head) {
    struct remote_head filled = *head;

    filled.thread = remote_thread();
    filled.context = remote_current();
    return filled;
}

static bool is_work(uint16_t call) {
    switch (call) {
    case REMOTE_cuGraphLaunch:
    case REMOTE_cuGraphLaunch_ptsz:
    case REMOTE_cuLaunchCooperativeKernel:
    case REMOTE_cuLaunchCooperativeKernel_ptsz:
    case REMOTE_cuLaunchKernel:
    case REMOTE_cuLaunchKernelEx:
    case REMOTE_cuLaunchKernelEx_ptsz:
    case REMOTE_cuLaunchKernel_ptsz:
        return true;
    default:
        return false;
    }
}

/* Called with the lock. Whether a posted record may stay for a while. */
static bool may_gather(const struct remote_head *head) {
    if (!head->posted || !gathers) {
        waited = true;
        return false;
    }
    bool first = waited && is_work(head->call);
    waited = waited && !first;
    return !first;
}

/* Called with the lock. */
static uint64_t put(struct remote_link *link, struct remote_head *head,
                    const struct remote_piece *pieces, size_t count, bool gather) {
    head->sequence = sequence + 1;
    remote_sent_note(head->sequence);
    if (!remote_link_put(link, head, sizeof *head, pieces, count)) {
        return 0;
    }
    gathered = gather;
    __atomic_store_n(&ahead, head->posted && gathers ? ahead + 1 : 0, __ATOMIC_RELAXED);
    if (!gather) {
        remote_link_flush(link);
    }
    return ++sequence;
}

uint64_t remote_send(const struct remote_head *head, const struct remote_piece *pieces,
                     size_t count) {
    UNCANCELLED;
    struct remote_link *link = remote_session_link();
    struct remote_head filled = head_of(head);

    if (!link) {
        return 0;
    }
    pthread_mutex_lock(&sending);
    bool gather = may_gather(head);
    uint64_t number = put(link, &filled, pieces, count, gather);
    pthread_mutex_unlock(&sending);
    if (!number) {
        remote_session_end("the worker is gone");
    } else if (gather && !__atomic_exchange_n(&due, 1, __ATOMIC_ACQ_REL)) {
        futex_wake(&due);
    }
    return number;
}

bool remote_give_descriptor(uint64_t number, int descriptor) {
    UNCANCELLED;
    struct remote_link *link = remote_session_link();

    pthread_mutex_lock(&sending);
    bool there = link && remote_link_give(link, number, descriptor);
    pthread_mutex_unlock(&sending);
    return there;
}

static void flush(struct remote_link *link) {
    pthread_mutex_lock(&sending);
    if (gathered) {
        remote_link_flush(link);
        gathered = false;
    }
    last_put = sequence;
    pthread_mutex_unlock(&sending);
}

/* Sends a sign of life, unless something was sent since the last one was due. */
static void beat(struct remote_link *link) {
    struct remote_head head = {.size = sizeof head, .call = REMOTE_BEAT, .posted = 1};

    pthread_mutex_lock(&sending);
    if (sequence == last_put) {
        put(link, &head, NULL, 0, false);
    }
    last_put = sequence;
    pthread_mutex_unlock(&sending);
}

static void *gather(void *of) {
    struct remote_link *link = of;
    struct timespec pause = {remote_gather_for / 1000000000, remote_gather_for % 1000000000};

    prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul); /* the kernel's own is as long as the pause */
    while (!remote_link_ended(link)) {
        if (!__atomic_load_n(&due, __ATOMIC_ACQUIRE)) {
            futex_sleep(&due, 0, remote_beat_after);
        }
        if (!__atomic_load_n(&due, __ATOMIC_ACQUIRE)) {
            beat(link);
            continue;
        }
        nanosleep(&pause, NULL);
        __atomic_store_n(&due, 0, __ATOMIC_RELEASE);
        flush(link);
    }
    return NULL;
}

static void begun(struct remote_link *link) {
    size_t size;

    gathers = !remote_link_area(link, &size) && remote_thread_start(gather, link);
}
ON_BEGUN(begun);

bool remote_strict(void) {
    static int strict = -1;
    int now = __atomic_load_n(&strict, __ATOMIC_RELAXED);

    if (now < 0) {
        const char *says = getenv("DIVVY_REMOTE");
        now = says && strcmp(says, "strict") == 0;
        __atomic_store_n(&strict, now, __ATOMIC_RELAXED);
    }
    return now || !remote_current();
}

bool remote_ahead(void) {
    return __atomic_load_n(&ahead, __ATOMIC_RELAXED) >= MOST_AHEAD;
}

static void forked(void) {
    sending = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    sequence = last_put = 0;
    gathers = gathered = waited = false;
    due = ahead = 0;
}
ON_FORKED(forked);
