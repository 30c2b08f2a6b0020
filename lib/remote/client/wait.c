/* Answers. One thread reads the link at a time: what is for another it hands over, and when it has its own it passes the
 * reading on. So there is no thread of ours between a call and its answer, and each answer is copied from the link once.
 *
 * Where somebody registered for notices, a thread of ours reads while nobody waits. It gives the reading up after each
 * answer, and takes it again a moment later: a thread that waits next reads by itself. */
#include "remote/client/futex.h"
#include "remote/client/inside.h"

#include "libc/cancel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOMENT 200000 /* nanoseconds */
/* That wait to be told: a function of each stream, and objects that end with a graph. */
#define MOST_NOTICES 65536u

enum is { WAITING, ANSWERED, READER, OVER };

struct waiter {
    struct waiter *next;
    uint64_t sequence;
    unsigned char *frame; /* room for one */
    uint32_t is;          /* enum is; the waiter sleeps on it */
};

/* An answer that came before its thread asked for it, or a notice. */
struct held {
    struct held *next;
    struct remote_answer head;
    unsigned char body[];
};

static pthread_mutex_t waiting = PTHREAD_MUTEX_INITIALIZER; /* before that of copies_land.c */
static bool reading;
static struct waiter *waiters;
static struct held *early;
static uint32_t early_count;

static struct held *notices, **notices_end = &notices;
static uint32_t notice_count, notice_word;
static bool noticing;      /* the thread runs */
static bool notice_sleeps; /* it has to be woken */

static struct {
    uint16_t call;
    remote_notice *notice;
} registered[8];
static uint32_t registered_count;

static void change(uint32_t *word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    futex_wake(word);
}

/* Called with the lock, as the following. */
static void wake_notices(void) {
    if (notice_sleeps) {
        notice_sleeps = false;
        change(&notice_word, notice_word + 1);
    }
}

static void remove_waiter(const struct waiter *waiter) {
    for (struct waiter **at = &waiters; *at; at = &(*at)->next) {
        if (*at == waiter) {
            *at = waiter->next;
            return;
        }
    }
}

static struct held *hold(const struct remote_answer *head, const unsigned char *body) {
    size_t size = head->size - sizeof *head;
    struct held *held = malloc(sizeof *held + size);

    if (held) {
        held->next = NULL;
        held->head = *head;
        memcpy(held->body, body, size);
    }
    return held;
}

/* Why a frame ends the link, NULL if it does not. */
static const char *keep_early(const struct remote_answer *head, const unsigned char *body) {
    if (early_count / REMOTE_MOST_UNANSWERED >= remote_thread_count()) {
        return "the worker answers what nobody asked";
    }
    struct held *held = hold(head, body);
    if (!held) {
        return "there is no memory for an answer";
    }
    held->next = early;
    early = held;
    early_count++;
    return NULL;
}

static const char *keep_notice(const struct remote_answer *head, const unsigned char *body) {
    if (!noticing) {
        return NULL; /* nobody asked for any */
    }
    if (notice_count >= MOST_NOTICES) {
        return "the worker tells more than anybody asked";
    }
    struct held *held = hold(head, body);
    if (!held) {
        return "there is no memory for a notice";
    }
    *notices_end = held;
    notices_end = &held->next;
    notice_count++;
    change(&notice_word, notice_word + 1);
    return NULL;
}

/* Hands a frame to whom it is for: the reader's own room against the waiter's. */
static const char *hand_over(unsigned char **frame) {
    struct remote_answer head;

    memcpy(&head, *frame, sizeof head);
    if (!head.sequence) {
        return (head.call == REMOTE_LANDED ? remote_landed : keep_notice)(&head,
                                                                          *frame + sizeof head);
    }
    for (struct waiter *waiter = waiters; waiter; waiter = waiter->next) {
        if (waiter->sequence == head.sequence) {
            unsigned char *free_room = waiter->frame;
            waiter->frame = *frame;
            *frame = free_room;
            remove_waiter(waiter);
            change(&waiter->is, ANSWERED);
            return NULL;
        }
    }
    return keep_early(&head, *frame + sizeof head);
}

/* Who waited longest reads from now on. */
static void pass_on(void) {
    struct waiter *oldest = waiters;

    while (oldest && oldest->next) {
        oldest = oldest->next;
    }
    reading = oldest != NULL;
    if (oldest) {
        remove_waiter(oldest);
        change(&oldest->is, READER);
    } else {
        wake_notices();
    }
}

/* Everybody hears that nothing will come. */
static void end_all(void) {
    reading = false;
    while (waiters) {
        struct waiter *waiter = waiters;
        waiters = waiter->next;
        change(&waiter->is, OVER);
    }
    wake_notices();
}

/* Reads one frame. False when the link has ended, as it does for a frame that is none. */
static bool read_frame(struct remote_link *link, unsigned char *frame) {
    struct remote_answer head;
    enum remote_taken taken;
    size_t size = 0;

    do {
        taken = remote_link_take(link, frame, &size, -1);
    } while (taken == REMOTE_NOTHING_YET);
    if (taken == REMOTE_ENDED) {
        remote_session_end("the worker is gone");
        return false;
    }
    memcpy(&head, frame, sizeof head);
    if (size < sizeof head || head.size != size) {
        remote_session_end("the worker sent what is no answer");
        return false;
    }
    return true;
}

/* Reads until the answer has come, and lies in the frame; hands all others over. 0 stands for any one frame that is for
 * somebody else. False when the link has ended. */
static bool read_until(struct remote_link *link, uint64_t sequence, unsigned char **frame) {
    for (;;) {
        struct remote_answer head;
        const char *why = NULL;

        if (!read_frame(link, *frame)) {
            return false;
        }
        memcpy(&head, *frame, sizeof head);
        if (sequence && head.sequence == sequence) {
            return true;
        }
        pthread_mutex_lock(&waiting);
        why = hand_over(frame);
        pthread_mutex_unlock(&waiting);
        if (why) {
            remote_session_end(why);
            return false;
        }
        if (!sequence) {
            return true;
        }
    }
}

static bool take_early(uint64_t sequence, unsigned char *frame) {
    for (struct held **at = &early; *at; at = &(*at)->next) {
        struct held *held = *at;
        if (held->head.sequence == sequence) {
            memcpy(frame, &held->head, sizeof held->head);
            memcpy(frame + sizeof held->head, held->body, held->head.size - sizeof held->head);
            *at = held->next;
            early_count--;
            free(held);
            return true;
        }
    }
    return false;
}

static void fill(struct remote_reply *reply, const unsigned char *frame) {
    memcpy(&reply->head, frame, sizeof reply->head);
    reply->body = frame + sizeof reply->head;
    reply->size = reply->head.size - sizeof reply->head;
    reply->at = 0;
}

/* Called with the lock, which it gives; `self` is to read. */
static bool read_own(struct remote_link *link, struct waiter *self) {
    pthread_mutex_unlock(&waiting);
    bool come = read_until(link, self->sequence, &self->frame);
    pthread_mutex_lock(&waiting);
    if (come) {
        pass_on();
    } else {
        end_all();
    }
    pthread_mutex_unlock(&waiting);
    return come;
}

/* Called with the lock, which it gives: somebody else reads. */
static bool sleep_for(struct remote_link *link, struct waiter *self) {
    uint32_t is = WAITING;

    self->next = waiters;
    waiters = self;
    pthread_mutex_unlock(&waiting);
    while ((is = __atomic_load_n(&self->is, __ATOMIC_ACQUIRE)) == WAITING) {
        futex_sleep(&self->is, WAITING, -1);
    }
    if (is == READER) {
        pthread_mutex_lock(&waiting);
        return read_own(link, self);
    }
    /* Who woke us may still be in the call to wake us: it holds the lock until then. */
    pthread_mutex_lock(&waiting);
    pthread_mutex_unlock(&waiting);
    return is == ANSWERED;
}

bool remote_wait(uint64_t sequence, struct remote_reply *reply) {
    UNCANCELLED;
    struct remote_link *link = remote_session_link();
    struct waiter self = {.sequence = sequence, .frame = remote_thread_frame()};
    bool come = false;

    if (!self.frame) {
        remote_session_end("there is no memory for answers");
        return false;
    }
    pthread_mutex_lock(&waiting);
    if (take_early(sequence, self.frame)) {
        pthread_mutex_unlock(&waiting);
        come = true;
    } else if (!link) {
        pthread_mutex_unlock(&waiting);
    } else if (!reading) {
        reading = true;
        come = read_own(link, &self);
    } else {
        come = sleep_for(link, &self);
    }
    remote_thread_frame_set(self.frame);
    if (come) {
        remote_sent_see();
        fill(reply, self.frame);
    }
    return come;
}

/* The thread for notices. */
static void tell(struct held *held) {
    uint32_t count = __atomic_load_n(&registered_count, __ATOMIC_ACQUIRE);

    for (uint32_t i = 0; i < count; i++) {
        if (registered[i].call == held->head.call) {
            registered[i].notice(&held->head, held->body, held->head.size - sizeof held->head);
        }
    }
    free(held);
}

/* Called with the lock, which it gives. Reads one frame; whether it was a notice. */
static bool read_other(struct remote_link *link) {
    unsigned char *frame = remote_thread_frame();

    reading = true;
    pthread_mutex_unlock(&waiting);
    bool come = frame && read_until(link, 0, &frame);
    remote_thread_frame_set(frame);
    pthread_mutex_lock(&waiting);
    bool notice = notices != NULL;
    if (come) {
        pass_on();
    } else {
        end_all();
    }
    pthread_mutex_unlock(&waiting);
    return notice;
}

static void *take_notices(void *of) {
    struct remote_link *link = of;
    bool rested = true;

    while (!remote_link_ended(link)) {
        pthread_mutex_lock(&waiting);
        uint32_t word = __atomic_load_n(&notice_word, __ATOMIC_ACQUIRE);
        struct held *held = notices;
        if (held) {
            notices = held->next;
            notices_end = notices ? notices_end : &notices;
            notice_count--;
            pthread_mutex_unlock(&waiting);
            tell(held);
        } else if (reading) {
            notice_sleeps = true;
            pthread_mutex_unlock(&waiting);
            futex_sleep(&notice_word, word, -1);
            rested = false;
        } else if (!rested) {
            pthread_mutex_unlock(&waiting);
            futex_sleep(&notice_word, word, MOMENT);
            rested = true;
        } else {
            rested = read_other(link);
        }
    }
    return NULL;
}

/* Called with the lock. */
static void start_notices(struct remote_link *link) {
    if (!noticing && registered_count > 0) {
        noticing = remote_thread_start(take_notices, link);
    }
}

void remote_notice_register(uint16_t call, remote_notice *notice) {
    struct remote_link *link = remote_session_link();

    pthread_mutex_lock(&waiting);
    if (registered_count < sizeof registered / sizeof registered[0]) {
        registered[registered_count].call = call;
        registered[registered_count].notice = notice;
        __atomic_store_n(&registered_count, registered_count + 1, __ATOMIC_RELEASE);
    }
    if (link) {
        start_notices(link);
    }
    pthread_mutex_unlock(&waiting);
}

static void begun(struct remote_link *link) {
    pthread_mutex_lock(&waiting);
    start_notices(link);
    pthread_mutex_unlock(&waiting);
}
ON_BEGUN(begun);

static void forked(void) {
    waiting = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    reading = noticing = notice_sleeps = false;
    waiters = NULL;
    early = notices = NULL;
    notices_end = &notices;
    early_count = notice_count = 0;
}
ON_FORKED(forked);
