/* How a link ends. */
#include <errno.h>
#include <sys/socket.h>

#include "remote/link_inside.h"

static void give_reason(struct remote_link *link, const char *why) {
    const char *none = NULL;

    __atomic_compare_exchange_n(&link->why, &none, why, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void remote_link_gone(struct remote_link *link, const char *why) {
    uint32_t lives = REMOTE_LINK_LIVES;

    /* The reason first, for who sees the state. Not if this side has ended it already: then the socket says so too. */
    if (remote_link_state(link) == REMOTE_LINK_LIVES) {
        give_reason(link, why);
    }
    __atomic_compare_exchange_n(&link->state, &lives, REMOTE_LINK_GONE, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_RELAXED);
    /* It may have closed one direction only, and wait in the other. What it sent can still be read. */
    shutdown(link->socket, SHUT_WR);
}

void remote_link_broken(struct remote_link *link, int error) {
    if (error == EBADF || error == ENOTSOCK) {
        remote_link_fault(link, "this process has closed its descriptor");
    } else {
        remote_link_gone(link, REMOTE_OTHER(link, "is gone"));
    }
}

void remote_link_fault(struct remote_link *link, const char *why) {
    give_reason(link, why);
    remote_link_end(link);
}

void remote_link_end(struct remote_link *link) {
    int saved = errno;

    __atomic_store_n(&link->state, REMOTE_LINK_ENDED, __ATOMIC_RELEASE);
    /* Wakes everybody who waits on either side: each reads one of these, or watches the first. */
    shutdown(link->socket, SHUT_RDWR);
    shutdown(link->out.wake, SHUT_RDWR);
    shutdown(link->in.wake, SHUT_RDWR);
    errno = saved;
}

bool remote_link_ended(const struct remote_link *link) {
    return remote_link_state(link) != REMOTE_LINK_LIVES;
}

bool remote_link_left(const struct remote_link *link) {
    return remote_link_state(link) == REMOTE_LINK_GONE;
}

const char *remote_link_why(const struct remote_link *link) {
    return remote_link_ended(link) ? __atomic_load_n(&link->why, __ATOMIC_ACQUIRE) : NULL;
}
