/* Frames through a socket alone, which leads to a relay: gathered, and written when flushed or when there are many. */
#define _GNU_SOURCE /* POLLRDHUP */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "libc/cancel.h"
#include "remote/link_inside.h"

/* The other end is a relay, so an answer takes longer than a few system calls. */
#define YIELDS 8u

/* Writes all of it, and waits for room in the socket. The parts are consumed. */
static bool write_all(struct remote_link *link, struct iovec *parts, size_t count) {
    UNCANCELLED;
    int saved = errno;

    while (count && !remote_link_ended(link)) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t sent = sendmsg(link->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EAGAIN) {
                remote_link_poll(link, link->socket, POLLOUT, INT64_MAX);
            } else if (errno != EINTR) {
                remote_link_broken(link, errno);
            }
            continue;
        }
        size_t left = (size_t)sent;
        while (count && left >= parts->iov_len) {
            left -= parts->iov_len;
            parts++;
            count--;
        }
        if (count) {
            parts->iov_base = (char *)parts->iov_base + left;
            parts->iov_len -= left;
        }
    }
    errno = saved;
    return count == 0;
}

void remote_stream_flush(struct remote_link *link) {
    struct iovec part = {.iov_base = link->gather, .iov_len = link->gathered};

    if (link->gathered) {
        link->gathered = 0;
        write_all(link, &part, 1);
    }
}

static void gather(struct remote_link *link, const void *bytes, size_t size) {
    if (size) {
        memcpy(link->gather + link->gathered, bytes, size);
        link->gathered += size;
    }
}

bool remote_stream_put(struct remote_link *link, const void *head, size_t head_size,
                       const struct remote_piece *pieces, size_t count, size_t size) {
    static unsigned char zeros[8];
    struct iovec parts[2 + 2 * REMOTE_MOST_PIECES];
    size_t used = 0;

    if (link->gathered + size <= sizeof link->gather) {
        gather(link, head, head_size);
        for (size_t i = 0; i < count; i++) {
            gather(link, pieces[i].at, pieces[i].size);
            gather(link, zeros, -pieces[i].size & 7u);
        }
        return true;
    }
    if (count > REMOTE_MOST_PIECES) {
        remote_link_fault(link, "a frame has too many pieces");
        return false;
    }
    parts[used++] = (struct iovec){.iov_base = link->gather, .iov_len = link->gathered};
    parts[used++] = (struct iovec){.iov_base = (void *)(uintptr_t)head, .iov_len = head_size};
    for (size_t i = 0; i < count; i++) {
        parts[used++] =
            (struct iovec){.iov_base = (void *)(uintptr_t)pieces[i].at, .iov_len = pieces[i].size};
        parts[used++] = (struct iovec){.iov_base = zeros, .iov_len = -pieces[i].size & 7u};
    }
    link->gathered = 0;
    return write_all(link, parts, used);
}

/* Whether a whole frame has arrived; its size is judged before the rest of it is read. */
static enum remote_ring_state whole(const struct remote_link *link, size_t *size) {
    size_t there = link->arrived - link->consumed;
    uint32_t said;

    if (there < sizeof said) {
        return REMOTE_RING_NOT_YET;
    }
    memcpy(&said, link->arrive + link->consumed, sizeof said);
    if (!remote_frame_size(said)) {
        return REMOTE_RING_WRONG;
    }
    *size = said;
    return there >= said ? REMOTE_RING_READY : REMOTE_RING_NOT_YET;
}

/* Reads what there is, without waiting. False if that is nothing. */
static bool read_some(struct remote_link *link) {
    UNCANCELLED;
    int saved = errno;

    /* A frame's remaining bytes find room behind it, once it lies at the beginning. */
    if (link->consumed) {
        link->arrived -= link->consumed;
        memmove(link->arrive, link->arrive + link->consumed, link->arrived);
        link->consumed = 0;
    }
    /* There is room: less than a frame has arrived. */
    ssize_t got =
        recv(link->socket, link->arrive + link->arrived, REMOTE_GATHERED_BYTES, MSG_DONTWAIT);
    if (got > 0) {
        link->arrived += (size_t)got;
    } else if (got == 0) {
        remote_link_gone(link, link->arrived
                                   ? REMOTE_OTHER(link, "is gone in the middle of a frame")
                                   : REMOTE_OTHER(link, "is gone"));
    } else if (errno != EAGAIN && errno != EINTR) {
        remote_link_broken(link, errno);
    }
    errno = saved;
    return got > 0;
}

enum remote_taken remote_stream_take(struct remote_link *link, void *to, size_t *size,
                                     int64_t nanoseconds) {
    enum remote_ring_state state = whole(link, size);
    int64_t deadline = INT64_MIN;

    for (unsigned tries = 0; state == REMOTE_RING_NOT_YET;) {
        bool ended = remote_link_ended(link);
        if (read_some(link)) {
            state = whole(link, size);
            continue;
        }
        if (ended) {
            return REMOTE_ENDED;
        }
        if (deadline == INT64_MIN) {
            deadline = remote_deadline(nanoseconds);
        }
        if (deadline != INT64_MAX && remote_now() >= deadline) {
            return remote_link_ended(link) ? REMOTE_ENDED : REMOTE_NOTHING_YET;
        }
        if (++tries <= YIELDS) {
            sched_yield();
        } else {
            remote_link_poll(link, link->socket, POLLIN, deadline);
        }
    }
    if (state == REMOTE_RING_WRONG) {
        remote_link_fault(link, REMOTE_OTHER(link, "sent a frame that is none"));
        return REMOTE_ENDED;
    }
    memcpy(to, link->arrive + link->consumed, *size);
    link->consumed += *size;
    return REMOTE_TAKEN;
}
