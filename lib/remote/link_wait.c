#define _GNU_SOURCE /* ppoll, POLLRDHUP */
#include <errno.h>
#include <poll.h>
#include <time.h>

#include "libc/cancel.h"
#include "remote/link_inside.h"

int64_t remote_now(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t remote_deadline(int64_t nanoseconds) {
    int64_t now = remote_now();

    return nanoseconds < 0 || nanoseconds > INT64_MAX - now ? INT64_MAX : now + nanoseconds;
}

bool remote_link_poll(struct remote_link *link, int descriptor, short events, int64_t deadline) {
    UNCANCELLED;
    int saved = errno;
    /* Of the link's socket only its end is asked here, so that descriptors which lie in it wake nobody. */
    struct pollfd polled[2] = {{.fd = link->socket, .events = POLLRDHUP},
                               {.fd = descriptor, .events = events}};
    struct timespec left, *most = NULL;
    int64_t span = 0;

    if (deadline != INT64_MAX) {
        span = deadline - remote_now();
        span = span > 0 ? span : 0;
        left = (struct timespec){.tv_sec = (time_t)(span / 1000000000),
                                 .tv_nsec = (long)(span % 1000000000)};
        most = &left;
    }
    int ready = ppoll(polled, 2, most, NULL);
    errno = saved;
    if (ready <= 0) {
        /* A signal that the program handles is no event, and no reason to give up. */
        return false;
    }
    if (polled[0].revents || (polled[1].revents & ~events)) {
        remote_link_broken(link,
                           (polled[0].revents | polled[1].revents) & POLLNVAL ? EBADF : EPIPE);
    }
    return true;
}

void remote_link_await_end(struct remote_link *link) {
    while (!remote_link_ended(link)) {
        remote_link_poll(link, -1, 0, remote_deadline(-1));
    }
}
