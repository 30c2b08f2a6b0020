/* Waiting for the program's functions. A call of the driver may wait for the GPU after all, as that does which frees
 * memory, and so for a function of the program. Then the executor takes no frames, among which would be the word that the
 * function has returned. So whoever waits for such a word takes frames in the executor's place, and keeps what is not for
 * itself. */
#include "remote/worker/callback.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A frame that was taken for the executor. */
struct kept {
    struct kept *next;
    size_t size;
    unsigned char frame[];
};

/* More than this is not kept: the client waits until there is room in the link. */
#define MOST_KEPT ((size_t)64 << 20)

static struct due_wait *all;
static unsigned waiters; /* how many; the executor reads it without the lock */
static uint64_t tickets;
static struct kept *first, **last = &first;
static size_t kept_bytes;
static bool busy;    /* the executor is inside a record, which it says without the lock */
static bool reading; /* a thread is taking a frame */
static bool ended;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

bool due_wait_begin(struct due_wait *wait) {
    pthread_mutex_lock(&lock);
    wait->ticket = ++tickets;
    wait->next = all;
    all = wait;
    __atomic_add_fetch(&waiters, 1, __ATOMIC_SEQ_CST);
    bool there = !ended;
    pthread_mutex_unlock(&lock);
    return there;
}

static void mark(uint64_t ticket) {
    for (struct due_wait *wait = all; wait; wait = wait->next) {
        if (wait->ticket == ticket) {
            wait->returned = true;
        }
    }
    pthread_cond_broadcast(&changed);
}

void due_returned(uint64_t ticket) {
    pthread_mutex_lock(&lock);
    mark(ticket);
    pthread_mutex_unlock(&lock);
}

/* The word that a function has returned, if a frame is that and nothing else. */
static bool is_word(const unsigned char *frame, size_t size, uint64_t *ticket) {
    struct remote_head head;

    if (size != sizeof head + sizeof *ticket) {
        return false;
    }
    memcpy(&head, frame, sizeof head);
    memcpy(ticket, frame + sizeof head, sizeof *ticket);
    return head.call == REMOTE_CALLBACK && head.size == size;
}

static bool keep(const unsigned char *frame, size_t size) {
    struct kept *kept = malloc(sizeof *kept + size);

    if (!kept) {
        return false;
    }
    kept->next = NULL;
    kept->size = size;
    memcpy(kept->frame, frame, size);
    *last = kept;
    last = &kept->next;
    kept_bytes += size;
    return true;
}

/* Takes one frame in the executor's place. The lock, which is let go meanwhile. */
static void read_one(struct remote_worker *worker, unsigned char *room) {
    struct remote_link *link = remote_worker_link(worker);
    uint64_t ticket;
    size_t size;

    reading = true;
    pthread_mutex_unlock(&lock);
    enum remote_taken taken = remote_link_take(link, room, &size, -1);
    pthread_mutex_lock(&lock);
    reading = false;
    if (taken == REMOTE_TAKEN && is_word(room, size, &ticket)) {
        mark(ticket);
    } else if (taken == REMOTE_TAKEN && !keep(room, size)) {
        /* A frame that is lost would be noticed by nobody. */
        remote_link_end(link);
    } else if (taken == REMOTE_ENDED) {
        ended = true;
    }
    pthread_cond_broadcast(&changed);
}

void due_wait_end(struct remote_worker *worker, struct due_wait *wait) {
    unsigned char *room = NULL;

    pthread_mutex_lock(&lock);
    while (!wait->returned && !ended) {
        if (!__atomic_load_n(&busy, __ATOMIC_SEQ_CST) || reading || kept_bytes >= MOST_KEPT) {
            pthread_cond_wait(&changed, &lock);
        } else if (room || (room = malloc(REMOTE_RECORD_BYTES))) {
            read_one(worker, room);
        } else {
            remote_link_end(remote_worker_link(worker));
            break;
        }
    }
    for (struct due_wait **at = &all; *at; at = &(*at)->next) {
        if (*at == wait) {
            *at = wait->next;
            break;
        }
    }
    __atomic_sub_fetch(&waiters, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&lock);
    free(room);
}

void remote_callbacks_end(void) {
    pthread_mutex_lock(&lock);
    ended = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Whoever waits takes over when the executor goes into the driver. Either it sees the executor busy when it begins to wait,
 * or the executor sees it here. */
static void be_busy(void) {
    __atomic_store_n(&busy, true, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&waiters, __ATOMIC_SEQ_CST)) {
        pthread_mutex_lock(&lock);
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
}

/* The lock. A frame that was kept, or the next of the link. */
static enum remote_taken next(struct remote_link *link, void *to, size_t *size) {
    struct kept *kept = first;

    if (kept) {
        *size = kept->size;
        memcpy(to, kept->frame, kept->size);
        first = kept->next;
        last = first ? last : &first;
        kept_bytes -= kept->size;
        free(kept);
        return REMOTE_TAKEN;
    }
    if (ended) {
        return REMOTE_ENDED;
    }
    reading = true;
    pthread_mutex_unlock(&lock);
    enum remote_taken taken = remote_link_take(link, to, size, -1);
    pthread_mutex_lock(&lock);
    reading = false;
    return taken;
}

static enum remote_taken take(struct remote_link *link, void *to, size_t *size) {
    if (!__atomic_load_n(&waiters, __ATOMIC_SEQ_CST) && !first) {
        return remote_link_take(link, to, size, -1);
    }
    pthread_mutex_lock(&lock);
    while (!first && reading && !ended) {
        pthread_cond_wait(&changed, &lock);
    }
    enum remote_taken taken = next(link, to, size);
    pthread_mutex_unlock(&lock);
    return taken;
}

/* A word is nothing that the executor is busy with: whoever waits for it must not begin to take frames meanwhile. */
enum remote_taken remote_frame_next(struct remote_worker *worker, void *to, size_t *size) {
    struct remote_link *link = remote_worker_link(worker);
    enum remote_taken taken;
    uint64_t ticket;

    __atomic_store_n(&busy, false, __ATOMIC_SEQ_CST);
    while ((taken = take(link, to, size)) == REMOTE_TAKEN && is_word(to, *size, &ticket)) {
        due_returned(ticket);
    }
    be_busy();
    return taken;
}
